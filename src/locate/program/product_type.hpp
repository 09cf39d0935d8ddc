// SPDX-License-Identifier: Apache-2.0
// What kernels of float32 products round their operands to.
#pragma once
#include <array>
#include <cstdint>

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

}  // namespace assay::locate
