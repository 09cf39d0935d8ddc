// SPDX-License-Identifier: Apache-2.0
// A row for each format: fraction bits, smallest normal exponent, largest value, `tiny`.
#include "tensor/float_grid.hpp"

namespace assay {

std::optional<FloatGrid> float_grid(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Complex128:
      return FloatGrid{52, -1022, 0x1.fffffffffffffp+1023, 0};
    case DType::Float32:
    case DType::Complex64:
      return FloatGrid{23, -126, 0x1.fffffep+127, 0x1p-126};
    case DType::Float16:
    case DType::Complex32:
      return FloatGrid{10, -14, 65504, 0x1p-24};
    case DType::BFloat16:
      return FloatGrid{7, -126, 0x1.fep+127, 0x1p-126};
    case DType::Float8E4M3FN:
      return FloatGrid{3, -6, 448, 0x1p-9};
    case DType::Float8E5M2:
      return FloatGrid{2, -14, 57344, 0x1p-16};
    case DType::Float8E4M3FNUZ:
      return FloatGrid{3, -7, 240, 0x1p-10};
    case DType::Float8E5M2FNUZ:
      return FloatGrid{2, -15, 57344, 0x1p-17};
    default:
      return std::nullopt;
  }
}

bool is_narrower(DType a, DType b) {
  const int bits_a = info(a).element_bits;
  const int bits_b = info(b).element_bits;
  if (bits_a != bits_b) return bits_a < bits_b;
  const std::optional<FloatGrid> grid_a = float_grid(a);
  const std::optional<FloatGrid> grid_b = float_grid(b);
  return grid_a && grid_b && grid_a->fraction_bits < grid_b->fraction_bits;
}

}  // namespace assay
