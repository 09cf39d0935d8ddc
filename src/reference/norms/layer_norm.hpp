// SPDX-License-Identifier: Apache-2.0
// Zero mean, unit variance.   docs/opcheck/norms.md
#pragma once
#include "reference/norms/rows.hpp"

namespace assay::reference {

struct LayerNormOptions {
  double eps = 1e-5;
  /// How many of the last dimensions are normalised together.
  size_t dims = 1;
};

/// y = (x - mean) / sqrt(var + eps) * gamma + beta with the biased variance.
///
/// terms        their sum is x; see sum_of()
/// gamma, beta  the sizes that x ends with, leading ones apart: fewer dimensions than are
///              normalised, or more (Cohere: one gamma a head); none: 1 and 0
/// returns      shape of x
/// errors       Invalid (shapes) | Unsupported (no real numbers) | TooLarge
/// source       Ba, Kiros, Hinton, Layer Normalization
[[nodiscard]] Result<Wide> layer_norm(std::span<const Term> terms,
                                      const std::optional<TensorView>& gamma,
                                      const std::optional<TensorView>& beta,
                                      const LayerNormOptions& options = {});

}  // namespace assay::reference
