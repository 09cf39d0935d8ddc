// SPDX-License-Identifier: Apache-2.0
// Three sources of noise, each moved by jitter(), so that it is the same in every replay: what is
// multiplied with a stored weight, the angles of a rotary embedding, and keys and values in blocks.
#include "locate/noise/conversion_noise.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "locate/noise/kernel_rounding.hpp"
#include "reference/aten/call.hpp"
#include "reference/products/matmul.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

constexpr size_t kBlockValues = 32;

/// A step as a part of the largest magnitude of a block, or of the distance between its largest and
/// its smallest value.
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

Tensor with_last_axes_exchanged(Tensor tensor) {
  const size_t rank = tensor.view.shape.size();
  std::swap(tensor.view.shape[rank - 2], tensor.view.shape[rank - 1]);
  std::swap(tensor.view.strides[rank - 2], tensor.view.strides[rank - 1]);
  return tensor;
}

/// The groups of rows that _grouped_mm cuts at `offs`; rows behind the last group have no matrix.
std::optional<std::vector<int64_t>> matrices_of_groups(const Tensor& ends, int64_t rows) {
  const auto values = reference::whole(ends.view);
  if (!values) return std::nullopt;
  std::vector<int64_t> matrices;
  for (size_t group = 0; group < values->values.size(); ++group) {
    const int64_t end = values->values[group];
    if (end < static_cast<int64_t>(matrices.size()) || end > rows) return std::nullopt;
    matrices.resize(static_cast<size_t>(end), static_cast<int64_t>(group));
  }
  if (static_cast<int64_t>(matrices.size()) != rows) return std::nullopt;
  return matrices;
}

/// Rows of x, one after the other, that meet the same matrix.
struct RowsOfMatrix {
  int64_t matrix = 0;
  int64_t first = 0;
  int64_t count = 0;
};
std::vector<RowsOfMatrix> rows_by_matrix(const WeightProduct& product, int64_t rows) {
  if (product.matrices.empty()) return {{0, 0, rows}};
  std::vector<RowsOfMatrix> runs;
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t matrix = product.matrices[static_cast<size_t>(row)];
    if (runs.empty() || runs.back().matrix != matrix) runs.push_back({matrix, row, 0});
    ++runs.back().count;
  }
  return runs;
}

Tensor matrix_of(Tensor weight, int64_t matrix) {
  TensorView& view = weight.view;
  if (view.shape.size() == 2) return weight;
  view.offset_elements += matrix * view.strides[0];
  view.shape = {view.shape[1], view.shape[2]};
  view.strides = {view.strides[1], view.strides[2]};
  return weight;
}

}  // namespace

std::optional<WeightProduct> weight_product(const reference::aten::Call& call,
                                            std::string_view slot) {
  const Tensor* weight = argument_of<Tensor>(call.arguments, slot);
  const bool is_left = slot == "self";
  const std::string_view other = slot == "weight"                  ? "input"
                                 : is_left                         ? "mat2"
                                 : slot != "mat2"                  ? ""
                                 : call.arguments.contains("mat1") ? "mat1"
                                                                   : "self";
  const Tensor* x = argument_of<Tensor>(call.arguments, other);
  if (weight == nullptr || x == nullptr || weight->view.shape.size() < 2 ||
      weight->view.shape.size() > 3 || x->view.shape.empty())
    return std::nullopt;
  WeightProduct product{*weight, *x};
  if (slot == "mat2") product.weight = with_last_axes_exchanged(*weight);
  const Dims& shape = product.weight.view.shape;
  const size_t rank = shape.size();
  if (is_left) {
    // One column for each matrix: its result lies as a row's does.
    const Dims& columns = x->view.shape;
    if (rank != 3 || columns.size() != 3 || columns[2] != 1) return std::nullopt;
    product.x = with_last_axes_exchanged(*x);
  }
  const int64_t in = shape[rank - 1];
  const Dims& x_shape = product.x.view.shape;
  if (in == 0 || x_shape[x_shape.size() - 1] != in) return std::nullopt;
  if (rank == 2) return product;
  const int64_t rows = product.x.view.element_count() / in;
  if (const Tensor* ends = argument_of<Tensor>(call.arguments, "offs")) {
    auto matrices = matrices_of_groups(*ends, rows);
    if (!matrices) return std::nullopt;
    product.matrices = *std::move(matrices);
  } else if (shape[0] > 0 && x_shape.size() == 3 && x_shape[0] == shape[0]) {
    for (int64_t row = 0; row < rows; ++row) product.matrices.push_back(row / (rows / shape[0]));
  } else {
    return std::nullopt;
  }
  return product;
}

Status add_conversion_noise(const Engine& engine, const StoredWeight& stored,
                            const WeightProduct& product, Tensor* result) {
  const Dims& shape = product.weight.view.shape;
  const size_t axis = shape.size() - 2;
  const int64_t out = shape[axis];
  const int64_t rows = product.x.view.element_count() / shape[axis + 1];
  if (rows == 0 || rows * out != result->view.element_count()) return {};
  const int64_t in = shape[axis + 1];
  ASSAY_TRY(const Tensor x, reference::reshaped(product.x, Dims{rows, in}));
  reference::Wide values;
  for (size_t part = 0; part < stored.parts.size(); ++part) {
    const int64_t first = stored.parts[part].first_row;
    const int64_t end = part + 1 < stored.parts.size() ? stored.parts[part + 1].first_row : out;
    if (stored.parts[part].type == "f32" || first >= end || end > out) continue;
    if (values.values.empty()) {
      ASSAY_TRY(values, reference::widen(result->view));
    }
    for (const RowsOfMatrix& run : rows_by_matrix(product, rows)) {
      Tensor weight = matrix_of(product.weight, run.matrix);
      weight.view = reference::section(weight.view, 0, first, end - first);
      Tensor some = x;
      some.view = reference::section(x.view, 0, run.first, run.count);
      ASSAY_TRY(
          const reference::Wide variance,
          engine.conversion_variance(stored.parts[part].type, std::move(weight), std::move(some)));
      for (int64_t i = 0; i < variance.size(); ++i) {
        const int64_t row = run.first + i / (end - first);
        const int64_t at = row * out + first + i % (end - first);
        values.data()[at] +=
            std::sqrt(12 * variance.data()[i]) * jitter(0, static_cast<uint64_t>(at));
      }
    }
  }
  if (!values.values.empty()) *result = reference::to_tensor(std::move(values));
  return {};
}

Status add_angle_noise(const reference::aten::Call& call, Tensor* result) {
  constexpr double kUnit = 0x1p-24;
  const Tensor* tensor = argument_of<Tensor>(call.arguments, "self");
  if (tensor == nullptr || tensor->view.shape.empty()) return {};
  ASSAY_TRY(const reference::Wide angles, reference::widen(tensor->view));
  ASSAY_TRY(reference::Wide values, reference::widen(result->view));
  const auto columns = static_cast<size_t>(angles.shape[angles.shape.size() - 1]);
  const size_t count = angles.values.size();
  if (columns == 0 || values.values.size() != count) return {};
  // Looked at in the last row: at position 0 all angles are 0.
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
  const auto first = std::min(static_cast<size_t>(rounding.first_channel), row);
  const double relative = std::sqrt(12.0) * kRoundoff * rounding.roundoffs;
  for (size_t begin = 0, size = 0; begin < wide.values.size(); begin += size) {
    size = std::min(kBlockValues, row - begin % row);
    if (begin % row < first) {
      size = first - begin % row;
      continue;
    }
    const std::span<double> block = std::span(wide.values).subspan(begin, size);
    if (!std::ranges::all_of(block, [](double value) { return std::isfinite(value); })) continue;
    const auto [low, high] = std::ranges::minmax(block);
    const double width =
        rounding.spread * (step->of_magnitude * std::max(std::abs(low), std::abs(high)) +
                           step->of_range * (high - low));
    for (size_t i = 0; i < size; ++i) {
      // Another seed, so that the two are independent.
      const double of_value = relative * std::abs(block[i]) * jitter(~seed, begin + i);
      block[i] += width * jitter(seed, begin + i) + of_value;
    }
  }
  return reference::to_tensor(std::move(wide));
}

}  // namespace assay::locate
