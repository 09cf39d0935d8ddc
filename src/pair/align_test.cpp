// SPDX-License-Identifier: Apache-2.0
#include "pair/align.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

namespace assay::pair {
namespace {

using Numbers = std::vector<uint32_t>;
using Blocks = std::vector<MatchingBlock>;

// Expected: Python 3.11, difflib.SequenceMatcher(None, a, b,
// autojunk=False).get_matching_blocks()[:-1]
TEST(MatchingBlocks, AreThoseOfDifflib) {
  EXPECT_EQ(matching_blocks(Numbers{0, 2, 2, 0, 1, 2, 1, 2}, Numbers{2, 0, 2, 0, 1, 1, 2, 0}),
            (Blocks{{0, 1, 1}, {2, 2, 3}, {6, 5, 2}}));
  EXPECT_EQ(matching_blocks(Numbers{1, 3, 3, 3, 1, 1, 1, 3, 0, 0, 1, 0},
                            Numbers{2, 0, 2, 3, 3, 3, 3, 3, 1}),
            (Blocks{{1, 5, 4}}));
  EXPECT_EQ(matching_blocks(Numbers{1, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1},
                            Numbers{0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0}),
            (Blocks{{3, 0, 4}, {7, 6, 2}, {11, 10, 4}}));
  EXPECT_EQ(matching_blocks(Numbers{}, Numbers{1}), Blocks{});
  EXPECT_EQ(matching_blocks(Numbers{1, 2}, Numbers{1, 2}), (Blocks{{0, 0, 2}}));
}

Blocks by_definition(const Numbers& a, const Numbers& b, size_t a_begin, size_t a_end,
                     size_t b_begin, size_t b_end) {
  MatchingBlock best;
  for (size_t i = a_begin; i < a_end; ++i) {
    for (size_t j = b_begin; j < b_end; ++j) {
      size_t size = 0;
      while (i + size < a_end && j + size < b_end && a[i + size] == b[j + size]) ++size;
      if (size > best.size) best = {i, j, size};
    }
  }
  if (best.size == 0) return {};
  Blocks blocks = by_definition(a, b, a_begin, best.a, b_begin, best.b);
  const auto add = [&](const MatchingBlock& block) {
    if (!blocks.empty() && blocks.back().a + blocks.back().size == block.a &&
        blocks.back().b + blocks.back().size == block.b) {
      blocks.back().size += block.size;
    } else {
      blocks.push_back(block);
    }
  };
  add(best);
  for (const MatchingBlock& block :
       by_definition(a, b, best.a + best.size, a_end, best.b + best.size, b_end)) {
    add(block);
  }
  return blocks;
}

RC_GTEST_PROP(MatchingBlocks, AreThoseOfTheDefinition, ()) {
  const auto numbers = rc::gen::container<Numbers>(rc::gen::inRange<uint32_t>(0, 4));
  const Numbers a = *numbers;
  const Numbers b = *numbers;
  RC_ASSERT(matching_blocks(a, b) == by_definition(a, b, 0, a.size(), 0, b.size()));
}

TEST(MatchingBlocks, AlignsTheEndsOfHugeSequences) {
  Numbers a(20'000, 1);
  Numbers b(20'000, 1);
  a[5'000] = 2;
  b[10'000] = 3;
  EXPECT_EQ(matching_blocks(a, b), (Blocks{{0, 0, 5'000}, {10'001, 10'001, 9'999}}));
}

}  // namespace
}  // namespace assay::pair
