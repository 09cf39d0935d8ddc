// SPDX-License-Identifier: Apache-2.0
// The codes are unpacked twice: as they are, and with every code 1 (of nf4 with the gaps of its
// levels), which gives the step at each value. The distance from golden is counted in these steps.
#include "locate/judge/coded_weights.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "compare/dequantise.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/wide.hpp"
#include "run/load.hpp"
#include "tensor/convert.hpp"
#include "tensor/float_grid.hpp"

namespace assay::locate {
namespace {

using pair::Coding;
using run::TensorRecord;

bool is_float8(DType dtype) { return is_float(dtype) && info(dtype).element_bits == 8; }

/// A byte whose codes, one or as many narrower ones as fit, all stand for 1.
std::byte byte_of_ones(const TensorView& codes, Coding coding, int64_t values) {
  const int64_t words = codes.element_count();
  // The exponent field of the float 1 is the bias, which is 1 less the smallest exponent.
  if (is_float8(codes.dtype)) {
    const FloatGrid grid = *float_grid(codes.dtype);
    return static_cast<std::byte>((1 - grid.smallest_exponent) << grid.fraction_bits);
  }
  // Codes of a word, four or eight bits each, around the middle one.
  if (coding == Coding::CompressedTensors || coding == Coding::QWeight)
    return words * 8 == values ? std::byte{0x99} : std::byte{0x81};
  const bool is_pair = words * 2 == values;  // of 4-bit codes
  return is_pair ? std::byte{0x11} : std::byte{0x01};
}

/// Codes of which each is 1, so that unpacking them without a zero point gives the scale of every
/// value.
Result<Tensor> ones_like(const Tensor& codes, Coding coding, int64_t values) {
  const std::byte byte = byte_of_ones(codes.view, coding, values);
  ASSAY_TRY(const reference::NewTensor ones, reference::copy_of(codes));
  std::fill(ones.bytes->data(), ones.bytes->data() + ones.bytes->size(), byte);
  return ones.tensor();
}

/// How far rounding to the nearest code, and the rounding of the scales themselves, may move a
/// value.
class Allowed {
 public:
  Allowed(DType codes, DType scales) {
    if (is_float8(codes)) codes_ = float_grid(codes);
    if (const std::optional<FloatGrid> grid = float_grid(scales)) of_scale_ = grid->roundoff();
  }
  [[nodiscard]] double operator()(double golden, double mine, double scale) const {
    const double larger = std::max(std::abs(golden), std::abs(mine));
    const double step = codes_ && scale > 0 ? scale * codes_->ulp(larger / scale) : scale;
    return step / 2 + std::abs(mine) * of_scale_;
  }

 private:
  std::optional<FloatGrid> codes_;  // of floats; integers are 1 apart
  double of_scale_ = 0;             // half an ULP of 1 in the type of the scales
};

/// gap_at() of each level of nf4.
std::array<double, 16> gaps_of_levels() {
  std::array<double, 16> gaps{};
  for (size_t i = 0; i < gaps.size(); ++i) gaps[i] = gap_at(compare::kNormalFloat4, i);
  return gaps;
}

/// A weight in codes, read.
struct Loaded {
  Coding coding;
  Tensor codes;
  Tensor scale;
  std::optional<Tensor> zero;
  std::optional<Tensor> group_index;
  double scale_factor = 1;
};

compare::QuantisedParts views_of(const Loaded& loaded) {
  compare::QuantisedParts parts;
  parts.coding = loaded.coding;
  parts.codes = loaded.codes.view;
  parts.scale = loaded.scale.view;
  parts.scale_factor = loaded.scale_factor;
  if (loaded.coding == Coding::Levels) parts.levels = compare::kNormalFloat4;
  if (loaded.zero) parts.zero = loaded.zero->view;
  if (loaded.group_index) parts.group_index = loaded.group_index->view;
  return parts;
}

Result<Loaded> load(const pair::CodedLeaves& leaves, const pair::Weight& weight) {
  ASSAY_TRY(Tensor codes, run::load_tensor(leaves.record(weight.record)));
  ASSAY_TRY(Tensor scale, run::load_tensor(leaves.record(*weight.scale)));
  Loaded loaded{weight.coding, std::move(codes), std::move(scale), {}, {}, weight.scale_factor};
  if (weight.zero) {
    ASSAY_TRY(loaded.zero, run::load_tensor(leaves.record(*weight.zero)));
  }
  if (weight.group_index) {
    ASSAY_TRY(loaded.group_index, run::load_tensor(leaves.record(*weight.group_index)));
  }
  return loaded;
}

}  // namespace

double gap_at(std::span<const double> levels, size_t at) {
  double widest = 0;
  if (at > 0) widest = levels[at] - levels[at - 1];
  if (at + 1 < levels.size()) widest = std::max(widest, levels[at + 1] - levels[at]);
  return widest;
}

Result<StepDifference> step_difference(const pair::CodedLeaves& leaves, const pair::Weight& weight,
                                       const TensorRecord& golden_record) {
  ASSAY_TRY(const Tensor golden, run::load_tensor(golden_record));
  ASSAY_TRY(const Loaded loaded, load(leaves, weight));
  if (loaded.codes.view.dtype == DType::HiFloat8)
    return fail(Errc::Unsupported, "hifloat8 has steps of its own");
  compare::QuantisedParts parts = views_of(loaded);
  const Dims& shape = golden.view.shape;
  ASSAY_TRY(const compare::Dequantised made, compare::dequantise(parts, shape, false, /*jobs=*/1));
  if (!(made.tensor.view.shape == shape))
    return fail(Errc::Invalid, "codes of another shape than golden's");
  const std::array<double, 16> gaps = gaps_of_levels();
  Tensor ones = loaded.codes;
  if (weight.coding == Coding::Levels) {
    parts.levels = gaps;
  } else {
    ASSAY_TRY(ones, ones_like(loaded.codes, weight.coding, golden.view.element_count()));
    parts.codes = ones.view;
    parts.zero.reset();
  }
  ASSAY_TRY(const compare::Dequantised scales,
            compare::dequantise(parts, shape, false, /*jobs=*/1));
  ASSAY_TRY(const reference::Wide g, reference::widen(golden.view));
  ASSAY_TRY(const reference::Wide m, reference::widen(made.tensor.view));
  ASSAY_TRY(const reference::Wide s, reference::widen(scales.tensor.view));
  const Allowed allowed(loaded.codes.view.dtype, loaded.scale.view.dtype);
  StepDifference out;
  out.scheme = made.scheme;
  out.may_be_calibrated =
      weight.coding == Coding::CompressedTensors || weight.coding == Coding::QWeight;
  for (int64_t i = 0; i < g.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const double mine = m.values[at];
    const double off = std::abs(mine - g.values[at]);
    const double half_steps = off == 0 ? 0
                              : std::isfinite(off)
                                  ? off / allowed(g.values[at], mine, std::abs(s.values[at]))
                                  : INFINITY;
    out.error += off * off;
    out.energy += g.values[at] * g.values[at];
    if (out.worst >= 0 && !(half_steps > out.half_steps)) continue;
    out.half_steps = half_steps;
    out.worst = i;
    out.golden_value = g.values[at];
    out.mine_value = mine;
  }
  return out;
}

Result<Tensor> restored_weight(const pair::CodedLeaves& leaves, const std::string& name,
                               const Dims& shape) {
  const pair::Weight* weight = leaves.find(name);
  if (weight == nullptr) return fail(Errc::NotFound, name + " is not stored in codes");
  ASSAY_TRY(const Loaded loaded, load(leaves, *weight));
  ASSAY_TRY(compare::Dequantised made,
            compare::dequantise(views_of(loaded), shape, false, /*jobs=*/1));
  if (!(made.tensor.view.shape == shape))
    return fail(Errc::Invalid, "codes of another shape than golden's");
  return std::move(made.tensor);
}

}  // namespace assay::locate
