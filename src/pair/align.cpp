// SPDX-License-Identifier: Apache-2.0
// The longest common run is found row by row, with one row of lengths kept; then the ranges in
// front of it and behind it are searched the same way.
#include "pair/align.hpp"

#include <algorithm>
#include <unordered_map>

namespace assay::pair {
namespace {

using Sequence = std::span<const uint32_t>;

struct Range {
  size_t a_begin = 0, a_end = 0;
  size_t b_begin = 0, b_end = 0;
};

size_t common_prefix(Sequence a, Sequence b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t length = 0;
  while (length < shorter && a[length] == b[length]) ++length;
  return length;
}

size_t common_suffix(Sequence a, Sequence b) {
  const size_t shorter = std::min(a.size(), b.size());
  size_t length = 0;
  while (length < shorter && a[a.size() - 1 - length] == b[b.size() - 1 - length]) ++length;
  return length;
}

class Aligner {
 public:
  Aligner(Sequence a, Sequence b) : a_(a), b_(b), ending_(b.size() + 1), touched_(b.size() + 1) {
    for (size_t j = 0; j < b.size(); ++j) places_[b[j]].push_back(j);
  }

  std::vector<MatchingBlock> align() {
    std::vector<Range> pending = {{0, a_.size(), 0, b_.size()}};
    std::vector<MatchingBlock> blocks;
    while (!pending.empty()) {
      const Range range = pending.back();
      pending.pop_back();
      const MatchingBlock block = longest(range);
      if (block.size == 0) continue;
      blocks.push_back(block);
      pending.push_back({range.a_begin, block.a, range.b_begin, block.b});
      pending.push_back({block.a + block.size, range.a_end, block.b + block.size, range.b_end});
    }
    return blocks;
  }

 private:
  /// ending_[j + 1] is the length of the common run that ends at a[i] and b[j]. Going down in j
  /// leaves the row before in place where it is still needed.
  MatchingBlock longest(const Range& range) {
    MatchingBlock best{range.a_begin, range.b_begin, 0};
    for (size_t i = range.a_begin; i < range.a_end; ++i) {
      const auto found = places_.find(a_[i]);
      ++row_;
      if (found == places_.end()) continue;
      const std::vector<size_t>& places = found->second;
      const auto first = std::ranges::lower_bound(places, range.b_begin);
      const auto last = std::ranges::lower_bound(places, range.b_end);
      MatchingBlock best_of_row;
      for (auto place = last; place != first;) {
        const size_t j = *--place;
        const size_t before =
            j > range.b_begin && touched_[j] == row_ - 1 && i > range.a_begin ? ending_[j] : 0;
        ending_[j + 1] = before + 1;
        touched_[j + 1] = row_;
        // The first in b among equals is met last.
        if (before + 1 >= best_of_row.size) best_of_row = {i - before, j - before, before + 1};
      }
      if (best_of_row.size > best.size) best = best_of_row;
    }
    ++row_;  // the next range does not continue this one's rows
    return best;
  }

  Sequence a_;
  Sequence b_;
  std::unordered_map<uint32_t, std::vector<size_t>> places_;  // in b, ascending
  std::vector<size_t> ending_;
  std::vector<uint64_t> touched_;  // the row that wrote ending_
  uint64_t row_ = 1;
};

std::vector<MatchingBlock> joined(std::vector<MatchingBlock> blocks) {
  std::ranges::sort(blocks, {}, &MatchingBlock::a);
  std::vector<MatchingBlock> result;
  for (const MatchingBlock& block : blocks) {
    if (block.size == 0) continue;
    if (!result.empty() && result.back().a + result.back().size == block.a &&
        result.back().b + result.back().size == block.b) {
      result.back().size += block.size;
    } else {
      result.push_back(block);
    }
  }
  return result;
}

}  // namespace

std::vector<MatchingBlock> matching_blocks(Sequence a, Sequence b) {
  const size_t prefix = common_prefix(a, b);
  if (prefix == a.size() && prefix == b.size()) return joined({{0, 0, prefix}});
  if (!a.empty() && b.size() > kMaxAlignedPairs / a.size()) {
    const size_t suffix = common_suffix(a.subspan(prefix), b.subspan(prefix));
    return joined({{0, 0, prefix}, {a.size() - suffix, b.size() - suffix, suffix}});
  }
  return joined(Aligner(a, b).align());
}

}  // namespace assay::pair
