// SPDX-License-Identifier: Apache-2.0
// Products of experts: each weight sees the rows that were routed to it.   docs/opcheck/products.md
#pragma once
#include "reference/wide.hpp"

namespace assay::reference {

/// Which rows of x each expert takes.
struct ExpertRows {
  const TensorView* group_ends = nullptr;  // [experts]: rows of expert 0, of experts 0 and 1, ...
  const TensorView* tokens = nullptr;      // [rows]: the token of each row, sorted by expert
  /// false: rows are gathered, out[r] = x[tokens[r]] . w[expert of r].
  /// true: rows are scattered back, out[tokens[r]] += x[r] . w[expert of r].
  bool down = false;
  bool transpose_w = true;
  int64_t token_count = 0;  // down: rows of the result
  int jobs = 1;
};

/// x             up [tokens, k], down [rows, k]
/// w             [experts, n, k], or [experts, k, n] without transpose_w
/// column_scale  nullptr or [experts, n]: multiplies the products of integers
/// row_scale     nullptr or one value for each row of x
/// returns       up [rows, n], down [token_count, n]
/// errors        Invalid (shapes; ends that descend or exceed the rows; tokens that are not there)
///               | of matmul()
/// source        hicann/ascend-transformer-boost: data_generation.py,
///               GroupedMatmulWithRoutingOperation
[[nodiscard]] Result<Wide> grouped_matmul_with_routing(const TensorView& x, const TensorView& w,
                                                       const ExpertRows& routing,
                                                       const TensorView* column_scale,
                                                       const TensorView* row_scale);

/// out[g] = accum[g] + x[:, group g] . w[group g, :], with groups of k.
///
/// x           [m, k], or [k, m] with transpose_x
/// w           [k, n]
/// group_ends  [groups]: k of group 0, of groups 0 and 1, ...
/// accum       groups m n elements
/// returns     the shape of accum
/// errors      Invalid (shapes, ends that descend or exceed k) | of matmul()
/// source      hicann/ascend-transformer-boost: data_generation.py,
///             GroupedMatmulInplaceAddOperation
[[nodiscard]] Result<Wide> grouped_matmul_add(const TensorView& x, const TensorView& w,
                                              const TensorView& group_ends, const TensorView& accum,
                                              bool transpose_x, int jobs);

}  // namespace assay::reference
