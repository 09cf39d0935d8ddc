// SPDX-License-Identifier: Apache-2.0
// Products of float32 whose kernels round the operands first: to TF32, to bfloat16, or to pairs of
// the latter.   docs/localisation.md, "Products narrower than their storage"
#pragma once
#include <string_view>

#include "locate/program/product_type.hpp"
#include "reference/aten/call.hpp"

namespace assay::locate {

/// "bf16", "TF32", "pairs of bf16"
[[nodiscard]] std::string_view product_name(ProductType type);
/// Half a ULP of 1.
[[nodiscard]] double product_roundoff(ProductType type);

/// The operand is a factor of a product or of fused attention: no bias, no mask.
[[nodiscard]] bool is_multiplied(std::string_view overload, std::string_view slot);
/// The operator multiplies what is_multiplied().
[[nodiscard]] bool is_product(std::string_view overload);

/// The values that kernels multiply. Other types than float32 and float64 as they are.
/// draw  0: rounded as kernels do; any other number: moved by as much at random
[[nodiscard]] Result<Tensor> narrowed(const Tensor& operand, ProductType type, uint64_t draw = 0);

/// evaluate() of a product whose kernel rounds its float32 operands to the type.
[[nodiscard]] Result<std::vector<Tensor>> evaluate_narrow(
    const reference::aten::Call& call, ProductType type,
    const reference::aten::EvaluateOptions& options = {});

/// Fused attention also rounds its probabilities to that type: moves its result by as much.
[[nodiscard]] Status add_noise_of_probabilities(const reference::aten::Call& call, ProductType type,
                                                uint64_t draw, Tensor* result);

}  // namespace assay::locate
