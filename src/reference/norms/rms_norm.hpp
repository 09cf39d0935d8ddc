// SPDX-License-Identifier: Apache-2.0
// Division by the root of the mean square.   docs/opcheck/norms.md
#pragma once
#include "reference/norms/rows.hpp"

namespace assay::reference {

struct RmsNormOptions {
  double eps = 1e-5;
  /// gamma' = 1 + gamma, as Gemma stores its weights.
  bool unit_offset = false;
  /// x / rms is rounded to float16 before gamma, as kernels do that compute in it.
  bool round_to_float16 = false;
  /// Added to the result: what quantised norms have between gamma and the scale. Shapes as gamma's.
  std::optional<TensorView> beta = {};
};

/// y = x * gamma' / sqrt(mean(x^2) + eps), the mean over the dimensions that gamma has.
///
/// terms     their sum is x [..., normalised]; see sum_of()
/// gamma     [normalised], leading ones apart; none: the last dimension, gamma = 1
/// returns   shape of x
/// errors    Invalid (shapes) | Unsupported (no real numbers) | TooLarge
/// source    Zhang and Sennrich, Root Mean Square Layer Normalization
[[nodiscard]] Result<Wide> rms_norm(std::span<const Term> terms,
                                    const std::optional<TensorView>& gamma,
                                    const RmsNormOptions& options = {});

/// 1 / sqrt(mean(x^2) + eps) over the last `dims` dimensions, which stay as ones.
/// errors    as rms_norm(); Invalid when they have no elements
[[nodiscard]] Result<Wide> reciprocal_rms(const TensorView& x, size_t dims, double eps = 1e-5);

struct RmsNormGradient {
  Wide dx;      // shape of x
  Wide dgamma;  // shape of gamma
};
/// The gradient of y = x * rstd * gamma, rstd = 1 / rms(x) as the forward pass left it:
///   dx = dy * gamma * rstd - x * mean(dy * gamma * rstd^3 * x),   dgamma = sum over rows of dy * x * rstd
///
/// dy, x     [..., normalised]
/// rstd      one value a row, any shape
/// gamma     [normalised]
/// errors    as rms_norm()
[[nodiscard]] Result<RmsNormGradient> rms_norm_gradient(const TensorView& dy, const TensorView& x,
                                                        const TensorView& rstd,
                                                        const TensorView& gamma);

}  // namespace assay::reference
