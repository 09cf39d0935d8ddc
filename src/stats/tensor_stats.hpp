// SPDX-License-Identifier: Apache-2.0
// One pass over a tensor: extremes, sums and counts, accumulated in fp64. Definitions: docs/metrics.md
#pragma once
#include <cmath>
#include <cstdint>

#include "tensor/tensor_view.hpp"

namespace assay::stats {

/// Statistics of the values of one tensor, in the values' own units.
/// Non-finite values are counted and left out of min, max, mean and l2_norm; `with_non_finite()` gives what torch
/// and NumPy return, where NaN and infinities take part.
/// Complex elements: of the absolute value. Bool: 0 and 1. Bits types: no values (count 0).
struct TensorStats {
  int64_t count = 0;  // all values, NaN and infinities included; 2 per element of Float4E2M1FNx2
  int64_t nan_count = 0;
  int64_t positive_inf_count = 0;
  int64_t negative_inf_count = 0;
  double min = NAN;  // over the finite values; NaN when there is none
  double max = NAN;
  double mean = NAN;   // fp64 sum of finite values / their number
  double l2_norm = 0;  // sqrt of the fp64 sum of squares of the finite values

  [[nodiscard]] int64_t finite_count() const {
    return count - nan_count - positive_inf_count - negative_inf_count;
  }
  [[nodiscard]] bool has_non_finite() const { return finite_count() != count; }
  /// min, max, mean, l2_norm as IEEE arithmetic over all values gives them: NaN poisons all four, infinities win.
  [[nodiscard]] TensorStats with_non_finite() const;
  friend bool operator==(const TensorStats&, const TensorStats&) = default;
};

/// The result does not depend on strides (same values, same shape order not required), nor on the number of threads:
/// the sums are taken over fixed blocks in storage order of the dense layout and merged in order.
[[nodiscard]] TensorStats compute_stats(const TensorView& view);

/// Runs `body(data, i)` for i in [0, count), in any order, on any threads; returns when all are done.
/// The host's own OpenMP pool in a capture, parallel_for in a tool.
using BlockRunner = void (*)(void (*body)(void* data, size_t index), void* data, size_t count);
[[nodiscard]] TensorStats compute_stats(const TensorView& view, BlockRunner run_blocks);

/// The plain loop the kernels are tested against.
[[nodiscard]] TensorStats compute_stats_reference(const TensorView& view);

}  // namespace assay::stats
