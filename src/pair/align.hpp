// SPDX-License-Identifier: Apache-2.0
// Two sequences aligned by their longest common runs, as Python's difflib.SequenceMatcher does
// without junk.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace assay::pair {

/// a[a .. a + size) equals b[b .. b + size).
struct MatchingBlock {
  size_t a = 0;
  size_t b = 0;
  size_t size = 0;
  friend bool operator==(const MatchingBlock&, const MatchingBlock&) = default;
};

/// Above this product of the lengths only what both begin and end with is aligned: the time is
/// quadratic.
inline constexpr uint64_t kMaxAlignedPairs = uint64_t{1} << 26;

/// The longest block, of several the first in `a`, of these the first in `b`; then the same on both
/// sides of it. Ascending in both; adjacent blocks are joined; none is empty.
[[nodiscard]] std::vector<MatchingBlock> matching_blocks(std::span<const uint32_t> a,
                                                         std::span<const uint32_t> b);

}  // namespace assay::pair
