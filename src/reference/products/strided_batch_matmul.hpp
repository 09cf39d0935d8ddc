// SPDX-License-Identifier: Apache-2.0
// Products of batches of different sizes whose matrices lie interleaved by heads.
//   docs/opcheck/products.md
#pragma once
#include <vector>

#include "reference/wide.hpp"

namespace assay::reference {

/// Row r of head j in batch i starts at base[i] + stride[i] j + ld[i] r; base[i + 1] is base[i]
/// plus what the heads of batch i hold: m k heads for A, k n heads for B, m n heads for C.
struct StridedBatches {
  bool transpose_a = false;  // A holds k rows of m values
  bool transpose_b = false;  // B holds n rows of k values
  int64_t heads = 1;
  std::vector<int64_t> m, n, k;  // one a batch, as all lists
  std::vector<int64_t> lda, ldb, ldc;
  std::vector<int64_t> stride_a, stride_b, stride_c;
};

/// Which elements of C the product writes, in ascending order; the others are undefined.
///
/// a_count, b_count, c_count  elements of the flat operands
/// errors                     Invalid (lists of different lengths, sizes below 0, rows that overlap
///                            or leave their operand)
[[nodiscard]] Result<std::vector<int64_t>> written_elements(const StridedBatches& batches,
                                                            int64_t a_count, int64_t b_count,
                                                            int64_t c_count);

/// C [c_count]; elements that no head writes are 0.
///
/// a, b     any shape, read in C order
/// errors   of written_elements() | Unsupported (complex, packed types)
[[nodiscard]] Result<Wide> strided_batch_matmul(const TensorView& a, const TensorView& b,
                                                const StridedBatches& batches, int64_t c_count);

}  // namespace assay::reference
