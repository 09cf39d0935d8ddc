// SPDX-License-Identifier: Apache-2.0
// What blocks of a product's rows add up to, without the product.
//   docs/localisation.md, "Golden by sums and in parts"
#pragma once
#include "reference/aten/call.hpp"
#include "reference/products/column_sums.hpp"

namespace assay::reference::aten {

/// Of a result y [..., n], all axes but the last as one. Columns and factors are those of
/// column_sums.hpp.
struct ProductSums {
  /// [rows, kColumnDraws, blocks]: sum over the columns j of a block of factor(d, j) y_ij.
  Wide sums;
  Wide sizes;           // [rows, blocks]: sum over them of C_ij, see magnitudes.hpp
  int64_t columns = 0;  // n
  double terms = 1;     // K
};

/// Sums of mm, addmm, linear and matmul with one matrix for all batches. Reads each operand once.
///
/// errors  Unsupported (other operators, batches of matrices) | Invalid | of evaluate()
[[nodiscard]] Result<ProductSums> product_sums(const Call& call, int jobs = 1);

}  // namespace assay::reference::aten
