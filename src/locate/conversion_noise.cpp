// SPDX-License-Identifier: Apache-2.0
#include "locate/conversion_noise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "locate/sim_rounding.hpp"
#include "reference/aten/call.hpp"
#include "reference/ggml/operators.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

constexpr size_t kBlockValues = 32;

/// A step as a part of the largest magnitude of a block, or of the distance between its largest and its smallest value.
struct BlockStep {
  std::string_view type;
  double of_magnitude = 0;
  double of_range = 0;
};
constexpr std::array<BlockStep, 6> kSteps = {{
    {"q8_0", 1.0 / 127, 0},
    {"q5_0", 1.0 / 16, 0},
    {"q5_1", 0, 1.0 / 31},
    {"q4_0", 1.0 / 8, 0},
    {"q4_1", 0, 1.0 / 15},
    // Sixteen values that are not evenly spaced, at most 24 apart, of which the largest is 113.
    {"iq4_nl", 24.0 / 113, 0},
}};

const BlockStep* step_of(std::string_view type) {
  const auto found = std::ranges::find(kSteps, type, &BlockStep::type);
  return found == kSteps.end() ? nullptr : &*found;
}

}  // namespace

Status add_conversion_noise(const std::string& type, const Tensor& weight, const Tensor& x,
                            Tensor* result) {
  if (type == "f32" || weight.view.shape.size() != 2 || x.view.shape.empty()) return {};
  const int64_t in = weight.view.shape[1];
  if (in == 0 || x.view.shape[x.view.shape.size() - 1] != in) return {};
  reference::aten::Call call{"ggml.mul_mat", {}};
  call.arguments["src0"].value = weight;
  ASSAY_TRY(call.arguments["src1"].value,
            reference::reshaped(x, Dims{x.view.element_count() / in, in}));
  call.arguments["src0_type"].value = type;
  ASSAY_TRY(const reference::aten::Magnitudes error, reference::ggml::rounding(call));
  ASSAY_TRY(reference::Wide values, reference::widen(result->view));
  if (error.variance.size() != values.size()) return {};
  for (size_t i = 0; i < values.values.size(); ++i)
    values.values[i] += std::sqrt(12 * error.variance.values[i]) * jitter(0, i);
  *result = reference::to_tensor(std::move(values));
  return {};
}

Status add_angle_noise(const reference::aten::Call& call, Tensor* result) {
  constexpr double kUnit = 0x1p-24;
  const auto self = call.arguments.find("self");
  const auto* tensor =
      self == call.arguments.end() ? nullptr : std::get_if<Tensor>(&self->second.value);
  if (tensor == nullptr || tensor->view.shape.empty()) return {};
  ASSAY_TRY(const reference::Wide angles, reference::widen(tensor->view));
  ASSAY_TRY(reference::Wide values, reference::widen(result->view));
  const auto columns = static_cast<size_t>(angles.shape[angles.shape.size() - 1]);
  const size_t count = angles.values.size();
  if (columns == 0 || values.values.size() != count) return {};
  // In the last row, whose position is no zero.
  const std::span<const double> last = std::span(angles.values).last(count == 0 ? 0 : columns);
  const bool even = columns % 2 == 0 && count > 0;
  const bool neighbours = even && last[0] == last[1];
  const bool halves = even && !neighbours && last[0] == last[columns / 2];
  const bool is_cosine = base_name(call.name) == "cos";
  for (size_t i = 0; i < count; ++i) {
    const size_t column = i % columns;
    const size_t factors = neighbours ? column / 2 : halves ? column % (columns / 2) : column;
    const double angle = angles.values[i];
    const double error =
        4 * kUnit * static_cast<double>(factors + 1) * std::abs(angle) * jitter(1, i);
    const double slope = is_cosine ? -std::sin(angle) : std::cos(angle);
    if (std::isfinite(angle)) values.values[i] += slope * error;
  }
  *result = reference::to_tensor(std::move(values));
  return {};
}

bool has_block_steps(std::string_view type) { return step_of(type) != nullptr; }

Result<Tensor> with_attention_noise(const AttentionRounding& rounding, const Tensor& values,
                                    uint64_t seed) {
  constexpr double kRoundoff = 0x1p-11;
  const BlockStep none{};
  const BlockStep* step = rounding.blocks.empty() ? &none : step_of(rounding.blocks);
  if (step == nullptr) return fail(Errc::Unsupported, "the steps of " + rounding.blocks);
  ASSAY_TRY(reference::Wide wide, reference::widen(values.view));
  const size_t rank = wide.shape.size();
  const auto row = static_cast<size_t>(rank == 0 ? 1 : wide.shape[rank - 1]);
  const double relative = std::sqrt(12.0) * kRoundoff * rounding.roundoffs;
  for (size_t begin = 0, size = 0; begin < wide.values.size(); begin += size) {
    size = std::min(kBlockValues, row - begin % row);
    const std::span<double> block = std::span(wide.values).subspan(begin, size);
    if (!std::ranges::all_of(block, [](double value) { return std::isfinite(value); })) continue;
    const auto [low, high] = std::ranges::minmax(block);
    const double width =
        rounding.spread * (step->of_magnitude * std::max(std::abs(low), std::abs(high)) +
                           step->of_range * (high - low));
    for (size_t i = 0; i < size; ++i) {
      // Independent of the first: the seed of another tensor.
      const double of_value = relative * std::abs(block[i]) * jitter(~seed, begin + i);
      block[i] += width * jitter(seed, begin + i) + of_value;
    }
  }
  return reference::to_tensor(std::move(wide));
}

}  // namespace assay::locate
