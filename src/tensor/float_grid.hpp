// SPDX-License-Identifier: Apache-2.0
// The values that a float type can hold, as far as rounding to it is concerned.
//   docs/localisation.md, "Own error"
#pragma once
#include <bit>
#include <cstdint>
#include <optional>

#include "tensor/dtype.hpp"

namespace assay {

/// p stored fraction bits, smallest normal exponent E.
struct FloatGrid {
  int fraction_bits = 23;
  int smallest_exponent = -126;
  double largest = 0;  // largest finite value
  /// An error that localisation always allows: of one rounding near 0, or of a flush to zero.
  double tiny = 0;

  /// max(floor(log2 |x|), E). x is finite.
  [[nodiscard]] int exponent_of(double x) const {
    // The exponent field of a subnormal double is 0, which stands far below every E but its own.
    const auto exponent = static_cast<int>(std::bit_cast<uint64_t>(x) >> 52 & 0x7FFu) - 1023;
    return exponent > smallest_exponent ? exponent : smallest_exponent;
  }
  /// Distance of neighbouring values at x: 2^(max(floor(log2 |x|), E) - p). x is finite.
  [[nodiscard]] double ulp(double x) const { return power_of_two(exponent_of(x) - fraction_bits); }
  [[nodiscard]] double smallest_normal() const { return power_of_two(smallest_exponent); }
  /// u_d: half a ULP of 1.
  [[nodiscard]] double roundoff() const { return power_of_two(-fraction_bits - 1); }

  [[nodiscard]] static double power_of_two(int exponent) {
    if (exponent < -1022)  // subnormal doubles, where float64 itself is the grid
      return exponent < -1074 ? 0 : std::bit_cast<double>(uint64_t{1} << (exponent + 1074));
    return std::bit_cast<double>(static_cast<uint64_t>(exponent + 1023) << 52);
  }
};

/// The grid of a float type, or of the parts of a complex one; nothing for types without a
/// fraction.
[[nodiscard]] std::optional<FloatGrid> float_grid(DType dtype);
/// Fewer bits, or of two types with equally many the one with fewer of the fraction.
[[nodiscard]] bool is_narrower(DType a, DType b);

}  // namespace assay
