// SPDX-License-Identifier: Apache-2.0
// Weighted sums over blocks of columns of a matrix w: x times such a sum is the same sum over a row
// of x . w, and costs a hundredth of the product.
//   docs/localisation.md, "Golden by sums and in parts"
#pragma once
#include "reference/wide.hpp"

namespace assay::reference {

inline constexpr int kColumnDraws = 2;       // sets of factors
inline constexpr int64_t kColumnBlock = 64;  // columns in one sum; the last may have fewer

/// The factor of column j in set `draw`: +-[0.75, 1.25), spread at random but always the same. Two
/// columns rarely have factors of one size, so an exchange of two values does not cancel.
[[nodiscard]] double column_factor(int draw, int64_t j);

[[nodiscard]] inline int64_t column_blocks(int64_t n) {
  return (n + kColumnBlock - 1) / kColumnBlock;
}

struct ColumnSums {
  /// [kColumnDraws * blocks, k]: sum over the columns j of block b of factor(d, j) w[., j].
  Wide weighted;
  Wide sizes;  // [blocks, k]: sum over them of |w[., j]|
};

/// Reads w once.
///
/// w       [k, n], a real type with one value an element, any strides
/// jobs    threads; <= 0: one per core. Never changes a bit of the result.
/// memory  the result, 3 / kColumnBlock of w in doubles, and 64 KB a thread
[[nodiscard]] ColumnSums column_sums(const TensorView& w, int jobs = 1);

}  // namespace assay::reference
