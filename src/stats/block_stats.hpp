// SPDX-License-Identifier: Apache-2.0
// The kernels behind compute_stats: partial statistics of one block of consecutive elements.
#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>

#include "stats/tensor_stats.hpp"
#include "tensor/dtype.hpp"

namespace assay::stats {

/// Partial result over some values. The neutral element of merge() when default-constructed.
struct BlockStats {
  double sum = 0;             // of the finite values, each times the scale
  double sum_of_squares = 0;  // of the finite values, each times the scale before squaring
  double min = std::numeric_limits<double>::infinity();  // of the finite values, unscaled
  double max = -std::numeric_limits<double>::infinity();
  int64_t nan_count = 0;
  int64_t positive_inf_count = 0;
  int64_t negative_inf_count = 0;
  /// By bucket, the finite values with their signs, scaled as the sum is; of types that
  /// has_sketch() names.
  double sketch[kSketchBuckets] = {};

  /// Adds what comes after this part. Not commutative in the last bit: call in index order.
  void merge(const BlockStats& next) {
    sum += next.sum;
    sum_of_squares += next.sum_of_squares;
    if (next.min < min) min = next.min;
    if (next.max > max) max = next.max;
    nan_count += next.nan_count;
    positive_inf_count += next.positive_inf_count;
    negative_inf_count += next.negative_inf_count;
    for (size_t i = 0; i < kSketchBuckets; ++i) sketch[i] += next.sketch[i];
  }
};

/// Statistics of `count` consecutive elements. Real and boolean types of whole bytes only.
///
/// group  number of the sketch group (kSketchGroup values) that the first element begins
using BlockKernel = BlockStats (*)(const std::byte* elements, int64_t count, uint64_t group);

/// How many elements one block of a type has.
[[nodiscard]] int64_t block_elements(DType dtype);

/// The statistics of a tensor whose blocks were summed elsewhere and merged as compute_stats() does.
///
/// count      elements that were summed; times: how often each occurs
/// row_major  whether they were summed in row-major order: only then is there a sketch
/// Precondition: block_kernel(dtype) is not null, and the type is not Float64, whose sums may need
/// a second pass.
[[nodiscard]] TensorStats statistics_of_sums(const BlockStats& sums, DType dtype, int64_t count,
                                             int64_t times, bool row_major);

/// The kernel of a type; null for Complex, Int4, UInt4 and Bits types.
[[nodiscard]] BlockKernel block_kernel(DType dtype);

/// The part of block_kernel() for integers and Bool; null for other types.
[[nodiscard]] BlockKernel integer_kernel(DType dtype);

/// False for types whose kernel counts how often each byte occurs, and so does not know where.
[[nodiscard]] bool has_sketch(DType dtype);

/// The Float64 kernel with every value multiplied by a power of two before it is summed or squared.
[[nodiscard]] BlockStats scaled_float64_block(const std::byte* elements, int64_t count,
                                              uint64_t group, double scale);

}  // namespace assay::stats
