// SPDX-License-Identifier: Apache-2.0
// How far two results of one operator are apart, element by element.
#pragma once
#include <cmath>
#include <cstdint>
#include <optional>

#include "tensor/float_grid.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::repeat {

struct Spread {
  int64_t different = 0;   // elements whose values differ
  double largest_ulp = 0;  // of integers the largest difference
  double largest_error = 0;
  double largest_value = 0;  // of the first result
  double error_squared = 0;  // sums over finite elements
  double first_squared = 0;
  int64_t worst = -1;           // flat index
  double first = 0, other = 0;  // at `worst`

  void add(int64_t element, double a, double b, const std::optional<FloatGrid>& grid);
  /// |b - a| / |a|; 0 / 0 = 0
  [[nodiscard]] double relative_error() const;
};

/// Of equal types and shapes.
[[nodiscard]] Spread spread_of(const TensorView& first, const TensorView& other);

}  // namespace assay::repeat
