// SPDX-License-Identifier: Apache-2.0
// The centred case of normalised(), which is in rows.cpp.
#include "reference/norms/layer_norm.hpp"

namespace assay::reference {

Result<Wide> layer_norm(std::span<const Term> terms, const std::optional<TensorView>& gamma,
                        const std::optional<TensorView>& beta, const LayerNormOptions& options) {
  return normalised(terms, gamma, beta,
                    {.centred = true, .eps = options.eps, .dims = options.dims});
}

}  // namespace assay::reference
