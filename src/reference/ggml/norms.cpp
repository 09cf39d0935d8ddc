// SPDX-License-Identifier: Apache-2.0
// Normalisation of rows and of groups of channels; none has weights of its own.
#include <algorithm>
#include <cmath>

#include "reference/ggml/dialect.hpp"
#include "reference/norms/rows.hpp"

namespace assay::reference::ggml {
namespace {

enum class Kind : uint8_t {
  Rms,        // x / sqrt(mean x^2 + eps)
  Layer,      // (x - mean) / sqrt(var + eps)
  Euclidean,  // x / max(|x|, eps)
};

/// `count` consecutive values in place; with `magnitude` their C: (|x| + mean|x|) times the factor.
void normalise(Kind kind, double eps, bool magnitude, double* values, int64_t count) {
  const bool centred = kind == Kind::Layer;
  RowStatistics row = row_statistics(values, count, centred, eps);
  if (kind == Kind::Euclidean)
    row.rstd = 1 / std::fmax(std::sqrt(row_sum_of_squares(values, count, 0.0)), eps);
  if (magnitude) {
    for (int64_t i = 0; i < count; ++i) values[i] = std::fabs(values[i]);
    row.mean = centred ? -row_sum(values, count) / static_cast<double>(count) : 0;
  }
  normalise_row(values, count, row.mean, row.rstd, nullptr, nullptr);
}

Result<Wide> of_rows(const Arguments& arguments, Kind kind, bool magnitude) {
  ASSAY_TRY(const double eps, real(arguments, "eps", 0));
  ASSAY_TRY(Wide x, values_of(arguments, "src0"));
  const int64_t length = x.shape[3];
  for (int64_t first = 0; first < x.size(); first += length)
    normalise(kind, eps, magnitude, x.data() + first, length);
  return x;
}

/// Channels are the third axis; the last group may have fewer.
Result<Wide> of_groups(const Arguments& arguments, Kind, bool magnitude) {
  ASSAY_TRY(const int64_t wanted, integer(arguments, "groups", 0));
  ASSAY_TRY(const double eps, real(arguments, "eps", 1));
  ASSAY_TRY(Wide x, values_of(arguments, "src0"));
  if (wanted <= 0) return fail(arguments.invalid(wanted, " groups"));
  const int64_t channels = x.shape[1];
  const int64_t area = x.shape[2] * x.shape[3];
  const int64_t of_group = (channels + wanted - 1) / wanted;
  for (int64_t image = 0; area > 0 && image < x.shape[0]; ++image)
    for (int64_t first = 0; first < channels; first += of_group)
      normalise(Kind::Layer, eps, magnitude, x.data() + (image * channels + first) * area,
                std::min(of_group, channels - first) * area);
  return x;
}

using Norm = Result<Wide> (*)(const Arguments& arguments, Kind kind, bool magnitude);

template <Norm kNorm, Kind kKind>
Result<Values> norm(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Wide y, kNorm(arguments, kKind, false));
  return result_of(std::move(y));
}
template <Norm kNorm, Kind kKind>
Result<Magnitudes> rounding_of_norm(const Arguments& arguments, int) {
  ASSAY_TRY(Wide c, kNorm(arguments, kKind, true));
  return scaled_rounding(std::move(c), 16 * kFloat32Roundoff);
}
template <Norm kNorm, Kind kKind>
constexpr DialectRow row_of(std::string_view name) {
  return own(name, OperatorClass::Norm, norm<kNorm, kKind>, rounding_of_norm<kNorm, kKind>);
}

}  // namespace

std::span<const DialectRow> norm_operators() {
  static constexpr DialectRow kTable[] = {
      row_of<of_groups, Kind::Layer>("ggml.group_norm"),
      row_of<of_rows, Kind::Euclidean>("ggml.l2_norm"),
      row_of<of_rows, Kind::Layer>("ggml.norm"),
      row_of<of_rows, Kind::Rms>("ggml.rms_norm"),
  };
  return kTable;
}

}  // namespace assay::reference::ggml
