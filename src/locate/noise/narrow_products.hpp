// SPDX-License-Identifier: Apache-2.0
// Products of float32 whose kernels round the operands first: to TF32, to bfloat16, or to pairs of
// the latter.   docs/localisation.md, "Products narrower than their storage"
#pragma once
#include <array>
#include <string_view>

#include "reference/aten/call.hpp"

namespace assay::locate {

enum class ProductType : uint8_t {
  Float32,        // operands as they are stored
  BFloat16Pairs,  // the sum of two bfloat16; the product of the smaller ones is left out
  TF32,           // 10 bits of fraction, to the nearest, ties to even
  TF32Ties,       // the same, ties away from zero
  TF32Cut,        // the same, without rounding
  BFloat16,       // to the nearest, ties to even
  // What meets a weight in whole steps, as dynamic quantisation does:
  Int8OfTensor,  // 255 between the smallest and the largest value
  Int7OfTensor,  // 127, so that sums of two products fit in 16 bits
  Int8OfRows,    // 127 to either side, of each row
};
/// From the finest on.
inline constexpr std::array kNarrowProducts = {ProductType::BFloat16Pairs, ProductType::TF32,
                                               ProductType::TF32Ties, ProductType::TF32Cut,
                                               ProductType::BFloat16};

inline constexpr std::array kNarrowActivations = {
    ProductType::Int8OfTensor, ProductType::Int7OfTensor, ProductType::Int8OfRows};
/// Only what meets a weight is rounded, and no weight.
[[nodiscard]] constexpr bool is_of_activations(ProductType type) {
  return type >= ProductType::Int8OfTensor;
}

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
