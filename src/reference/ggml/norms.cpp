// SPDX-License-Identifier: Apache-2.0
// Normalisation of rows and of groups of channels; none has weights of its own.
#include <cmath>

#include "reference/ggml/volume.hpp"

namespace assay::reference::ggml {
namespace {

enum class Kind : uint8_t {
  Rms,        // x / sqrt(mean x^2 + eps)
  Layer,      // (x - mean) / sqrt(var + eps)
  Euclidean,  // x / max(|x|, eps)
};

/// `count` consecutive values in place; with `magnitude` their C: (|x| + mean|x|) times the factor.
void normalise(Kind kind, double eps, bool magnitude, double* values, int64_t count) {
  const auto n = static_cast<double>(count);
  double sum = 0;
  double absolute = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += values[i];
    absolute += std::fabs(values[i]);
  }
  const double mean = kind == Kind::Layer ? sum / n : 0;
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += (values[i] - mean) * (values[i] - mean);
  const double factor = kind == Kind::Euclidean ? 1 / std::fmax(std::sqrt(squares), eps)
                                                : 1 / std::sqrt(squares / n + eps);
  const double centre = kind == Kind::Layer ? absolute / n : 0;
  for (int64_t i = 0; i < count; ++i)
    values[i] = magnitude ? (std::fabs(values[i]) + centre) * factor : (values[i] - mean) * factor;
}

Result<Volume> rows(const Arguments& arguments, Kind kind, bool magnitude) {
  ASSAY_TRY(const double eps, real(arguments, "eps", 0));
  ASSAY_TRY(Volume x, source(arguments, "src0"));
  for (int64_t row = 0; row < x.rows(); ++row)
    normalise(kind, eps, magnitude, x.values.data() + row * x.ne[0], x.ne[0]);
  return x;
}

/// Channels are dimension 2; the last group may have fewer.
Result<Volume> groups(const Arguments& arguments, bool magnitude) {
  ASSAY_TRY(const int64_t wanted, integer(arguments, "groups", 0));
  ASSAY_TRY(const double eps, real(arguments, "eps", 1));
  ASSAY_TRY(Volume x, source(arguments, "src0"));
  if (wanted <= 0) return fail(arguments.invalid(std::to_string(wanted) + " groups"));
  const int64_t channels = (x.ne[2] + wanted - 1) / wanted;
  for (int64_t i3 = 0; i3 < x.ne[3]; ++i3)
    for (int64_t first = 0; first < x.ne[2]; first += channels)
      normalise(Kind::Layer, eps, magnitude, x.row(0, first, i3),
                std::min(channels, x.ne[2] - first) * x.ne[0] * x.ne[1]);
  return x;
}

template <Kind kKind>
Result<Values> norm(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Volume y, rows(arguments, kKind, false));
  return single(std::move(y));
}
template <Kind kKind>
Result<Magnitudes> rounding_of_norm(const Arguments& arguments, int) {
  ASSAY_TRY(Volume c, rows(arguments, kKind, true));
  return scaled_rounding(std::move(c.values), 16 * kFloat32Roundoff);
}
Result<Values> group_norm(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Volume y, groups(arguments, false));
  return single(std::move(y));
}
Result<Magnitudes> rounding_of_group_norm(const Arguments& arguments, int) {
  ASSAY_TRY(Volume c, groups(arguments, true));
  return scaled_rounding(std::move(c.values), 16 * kFloat32Roundoff);
}

}  // namespace

std::span<const Operator> norm_operators() {
  constexpr auto kNorm = OperatorClass::Norm;
  static constexpr Operator kTable[] = {
      {"ggml.group_norm", kNorm, group_norm, rounding_of_group_norm},
      {"ggml.l2_norm", kNorm, norm<Kind::Euclidean>, rounding_of_norm<Kind::Euclidean>},
      {"ggml.norm", kNorm, norm<Kind::Layer>, rounding_of_norm<Kind::Layer>},
      {"ggml.rms_norm", kNorm, norm<Kind::Rms>, rounding_of_norm<Kind::Rms>},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
