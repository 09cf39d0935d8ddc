// SPDX-License-Identifier: Apache-2.0
// What a product of ggml errs because it converts what it multiplies with a stored weight.
#pragma once
#include <string>

#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::locate {

/// Moves every element of a product's simulated result at random by what the conversion of the activation errs: a
/// uniform number of the variance that reference::ggml::rounding() gives, the same each time.
///
/// type     of the weight in the file: "q8_0", "f16"
/// weight   [out, in]
/// x        [..., in]
/// result   as many values as [..., out]
/// errors   of reference::ggml::rounding()
[[nodiscard]] Status add_conversion_noise(const std::string& type, const Tensor& weight,
                                          const Tensor& x, Tensor* result);

}  // namespace assay::locate
