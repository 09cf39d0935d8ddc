// SPDX-License-Identifier: Apache-2.0
// The norm is normalised() of rows.cpp without its mean. The gradient is one pass over the rows, in
// which dgamma is added up.
#include "reference/norms/rms_norm.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {

Result<Wide> rms_norm(std::span<const Term> terms, const std::optional<TensorView>& gamma,
                      const RmsNormOptions& options) {
  if (gamma && gamma->shape.empty()) return fail(Errc::Invalid, "gamma has no dimensions");
  return normalised(terms, gamma, options.beta,
                    {.eps = options.eps,
                     .dims = gamma ? without_leading_ones(gamma->shape).size() : 1,
                     .unit_offset = options.unit_offset,
                     .round_to_float16 = options.round_to_float16});
}

Result<Wide> reciprocal_rms(const TensorView& x, size_t dims, double eps) {
  ASSAY_TRY(const RowShape rows, rows_of(x.shape, dims));
  if (rows.length == 0) return fail(Errc::Invalid, "x of shape ", x.shape, " has empty rows");
  ASSAY_TRY(const Wide wide, widen(x));
  Wide result(reduced_shape(x.shape, dims));
  for (int64_t row = 0; row < rows.count; ++row) {
    result.values[static_cast<size_t>(row)] =
        row_statistics(wide.data() + row * rows.length, rows.length, false, eps).rstd;
  }
  return result;
}

Result<RmsNormGradient> rms_norm_gradient(const TensorView& dy, const TensorView& x,
                                          const TensorView& rstd, const TensorView& gamma) {
  if (dy.shape != x.shape)
    return fail(Errc::Invalid, "dy has shape ", dy.shape, ", x has shape ", x.shape);
  if (gamma.shape.empty()) return fail(Errc::Invalid, "gamma has no dimensions");
  ASSAY_TRY(const RowShape rows, rows_of(x.shape, without_leading_ones(gamma.shape).size()));
  ASSAY_TRY(const Repeated weights, Repeated::over(x.shape, rows.length, gamma, "gamma"));
  ASSAY_TRY(const Wide factors, widen(rstd));
  if (factors.size() != rows.count)
    return fail(Errc::Invalid, "rstd has shape ", rstd.shape, ", x has ", rows.count, " rows");
  ASSAY_TRY(const Wide values, widen(x));
  ASSAY_TRY(Wide gradient, widen(dy));
  RmsNormGradient result{Wide(x.shape), Wide(gamma.shape, 0.0)};
  const auto length = static_cast<double>(rows.length);
  for (int64_t row = 0; row < rows.count && rows.length > 0; ++row) {
    const double factor = factors.values[static_cast<size_t>(row)];
    const double* x_row = values.data() + row * rows.length;
    double* dy_row = gradient.data() + row * rows.length;
    double* dx_row = result.dx.data() + row * rows.length;
    for (int64_t i = 0; i < rows.length; ++i)
      result.dgamma.values[static_cast<size_t>(i)] += dy_row[i] * x_row[i] * factor;
    normalise_row(dy_row, rows.length, 0.0, factor, weights.row(row), nullptr);
    const double slope = row_dot(dy_row, x_row, rows.length) / length * factor * factor;
    for (int64_t i = 0; i < rows.length; ++i) dx_row[i] = dy_row[i] - slope * x_row[i];
  }
  return result;
}

}  // namespace assay::reference
