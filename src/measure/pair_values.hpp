// SPDX-License-Identifier: Apache-2.0
// Two views read side by side: position i of golden with position i of mine, as doubles.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/interruption.hpp"
#include "measure/kl_divergence.hpp"
#include "measure/metrics.hpp"

namespace assay::measure {

/// Three arrays of these and their weights take 32 KiB of the L1 cache.
inline constexpr int64_t kBlockValues = 1024;
static_assert(kBlockValues <= kKlBlock);

/// How the two sides are read so that position i of both is one pair.
struct PairSource {
  const TensorView* golden;
  const TensorView* mine;
  MetricRules rules;
  // Complex sides under Float32 count by their real part; a real side against a complex one has
  // imaginary part 0.
  bool real_part_only;
  bool pads_imaginary;
  /// Both integers, one of 64 bits: differences are taken before rounding to double.
  bool exact_integers;
  int64_t value_count;
};

/// Values of both sides as doubles. 24 KiB.
struct Block {
  alignas(64) double golden[kBlockValues];
  alignas(64) double mine[kBlockValues];
  alignas(64) double difference[kBlockValues];
  int64_t count = 0;
};

/// value_count is left 0: it is known once both sides agree on it.
[[nodiscard]] PairSource make_source(const TensorView& golden, const TensorView& mine,
                                     MetricRules rules);
/// Values of one side as pairs count them.
[[nodiscard]] int64_t value_count_of(const PairSource& source, const TensorView& view);
/// Values of one row of the last axis of golden; 1 for a 0-d tensor.
[[nodiscard]] int64_t row_values_of(const TensorView& golden, int64_t value_count);

/// Reads values [first, first + count), count <= kBlockValues, and their differences.
void read_block(const PairSource& source, int64_t first, int64_t count, Block& block);
/// Calls use(block, first) for one block after the other.
template <typename Use>
void for_each_block(const PairSource& source, Block& block, Use use) {
  for (int64_t first = 0; first < source.value_count; first += kBlockValues) {
    throw_if_interrupted();
    read_block(source, first, std::min(kBlockValues, source.value_count - first), block);
    use(first);
  }
}

/// mine - golden of the block's places: 0 where both sides hold NaN or the same infinity, infinity
/// where they do not and one is not finite.
void pooled_differences(const Block& block, double* out);
/// Moves the pairs that are finite on both sides together, and calls other(i, golden, mine) for the
/// rest.
template <typename Other>
void keep_finite_pairs(Block& block, Other other) {
  int64_t kept = 0;
  for (int64_t i = 0; i < block.count; ++i) {
    const double golden = block.golden[i];
    const double mine = block.mine[i];
    if (!std::isfinite(golden) || !std::isfinite(mine)) {
      other(i, golden, mine);
      continue;
    }
    block.golden[kept] = golden;
    block.mine[kept] = mine;
    block.difference[kept] = block.difference[i];
    ++kept;
  }
  block.count = kept;
}
/// Asks the memory for the values that are read next. Contiguous views only.
void prefetch_values(const TensorView& view, int64_t first, int64_t count);

}  // namespace assay::measure
