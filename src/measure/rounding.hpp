// SPDX-License-Identifier: Apache-2.0
// What storing a value in an element type does to it, one value at a time: the nearest value, the
// distance in units of the last place, the range.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "tensor/float_grid.hpp"

namespace assay::measure {

/// The values of one real element type, and rounding to them.
class Rounding {
 public:
  /// Precondition: neither complex nor Bits, one value an element.
  explicit Rounding(DType dtype);

  /// The nearest value, halves to even; floats overflow to infinity where they have one and to the
  /// largest value where not, integers clamp. NaN stays NaN (integers: 0). Bool: value != 0.
  [[nodiscard]] double nearest(double value) const;
  /// Representable values between two of them, both finite: 0 for equal ones (zeros of either sign
  /// too).
  [[nodiscard]] uint64_t distance(double a, double b) const;
  /// The value with its surplus digits cut off: the nearest towards zero. Binary formats only.
  [[nodiscard]] double truncated(double value) const;
  /// One unit of the last place at |value|; 1 for integers.
  [[nodiscard]] double unit(double value) const;
  /// From this magnitude on, nearest() is infinite; infinity for types that have none.
  [[nodiscard]] double overflow() const { return overflow_; }

 private:
  enum class Kind : uint8_t { Binary, Double, Table, Integer, Bool };
  [[nodiscard]] size_t table_index(double value) const;

  Kind kind_ = Kind::Double;
  FloatGrid grid_;  // of Binary and Double
  double overflow_ = std::numeric_limits<double>::infinity();
  double lowest_ = 0, highest_ = 0;  // integers
  std::vector<double> table_;        // one-byte floats: all finite values, ascending
};

}  // namespace assay::measure
