// SPDX-License-Identifier: Apache-2.0
// One pass over a tensor: extremes, sums and counts, accumulated in fp64. Definitions:
// docs/metrics.md
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>

#include "tensor/tensor_view.hpp"

namespace assay::stats {

/// A count sketch: sixteen sums of values with pseudo-random signs. It is linear, so that for
/// tensors of one shape
/// |sketch(m) - sketch(g)| estimates |m - g| within some 18 %, wherever they differ.
///   docs/formats/native.md
///
/// Value i (row-major) is in bucket i % 16; its sign is that of its bucket in the group i / 64
/// times that of its place in the group: + - + + of sixteen values each.
inline constexpr size_t kSketchBuckets = 16;
inline constexpr int64_t kSketchGroup = 64;
using Sketch = std::array<float, kSketchBuckets>;

/// Bit l: the values of bucket l in this group count negatively. Pseudo-random, the same for ever:
/// files hold sketches.
[[nodiscard, gnu::always_inline]] inline uint64_t sketch_signs(uint64_t group) {
  uint64_t hash = (group + 1) * 0x9E3779B97F4A7C15u;
  hash = (hash ^ (hash >> 29)) * 0xBF58476D1CE4E5B9u;
  return hash >> 48;
}

/// Statistics of the values of one tensor, in the values' own units. Non-finite values are counted
/// and left out of min, max, mean and l2_norm; `with_non_finite()` gives what torch and NumPy
/// return, where NaN and infinities take part. Complex elements: of the absolute value. Bool: 0 and
/// 1. Bits types: no values (count 0).
struct TensorStats {
  int64_t count = 0;  // all values, NaN and infinities included; 2 per element of Float4E2M1FNx2
  int64_t nan_count = 0;
  int64_t positive_inf_count = 0;
  int64_t negative_inf_count = 0;
  double min = NAN;  // over the finite values; NaN when there is none
  double max = NAN;
  double mean = NAN;   // fp64 sum of finite values / their number
  double l2_norm = 0;  // sqrt of the fp64 sum of squares of the finite values
  /// Of the finite values, summed in fp64. Nothing for a tensor that does not lie in row-major
  /// order (transposed, flipped, expanded), for types that are counted byte by byte (8-bit floats,
  /// packed ones), where a sum leaves the range of float32, and for a tensor without finite values.
  std::optional<Sketch> sketch = std::nullopt;

  [[nodiscard]] int64_t finite_count() const {
    return count - nan_count - positive_inf_count - negative_inf_count;
  }
  [[nodiscard]] bool has_non_finite() const { return finite_count() != count; }
  /// min, max, mean, l2_norm as IEEE arithmetic over all values gives them: NaN poisons all four,
  /// infinities win.
  [[nodiscard]] TensorStats with_non_finite() const;
  friend bool operator==(const TensorStats&, const TensorStats&) = default;
};

/// The result does not depend on strides (same values, same shape order not required), nor on the
/// number of threads: the sums are taken over fixed blocks in storage order of the dense layout and
/// merged in order.
[[nodiscard]] TensorStats compute_stats(const TensorView& view);

/// Runs `body(data, i)` for i in [0, count), in any order, on any threads; returns when all are
/// done. The host's own OpenMP pool in a capture, parallel_for in a tool.
using BlockRunner = void (*)(void (*body)(void* data, size_t index), void* data, size_t count);
[[nodiscard]] TensorStats compute_stats(const TensorView& view, BlockRunner run_blocks);

/// The plain loop the kernels are tested against.
[[nodiscard]] TensorStats compute_stats_reference(const TensorView& view);

}  // namespace assay::stats
