// SPDX-License-Identifier: Apache-2.0
#include "reference/norms/layer_norm.hpp"

namespace assay::reference {

Result<Wide> layer_norm(std::span<const Term> terms, const std::optional<TensorView>& gamma,
                        const std::optional<TensorView>& beta, const LayerNormOptions& options) {
  ASSAY_TRY(Summed x, Summed::of(terms));
  ASSAY_TRY(const RowShape rows, rows_of(x.shape(), options.dims));
  std::optional<Repeated> weights;
  std::optional<Repeated> shifts;
  if (gamma) {
    ASSAY_TRY(weights, Repeated::over(x.shape(), rows.length, *gamma, "gamma"));
  }
  if (beta) {
    ASSAY_TRY(shifts, Repeated::over(x.shape(), rows.length, *beta, "beta"));
  }
  const auto length = static_cast<double>(rows.length);
  Wide result(x.shape());
  for_each_row(x, rows, result, [&](int64_t row) {
    double* values = result.data() + row * rows.length;
    const double mean = row_sum(values, rows.length) / length;
    const double variance = row_sum_of_squares(values, rows.length, mean) / length;
    normalise_row(values, rows.length, mean, 1.0 / std::sqrt(variance + options.eps),
                  weights ? weights->row(row) : nullptr, shifts ? shifts->row(row) : nullptr);
  });
  return result;
}

}  // namespace assay::reference
