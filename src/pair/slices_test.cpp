// SPDX-License-Identifier: Apache-2.0
#include "pair/slices.hpp"

#include <gtest/gtest.h>

namespace assay::pair {
namespace {

TEST(LastRow, IsTheLastPositionOfOneSequence) {
  const auto steps = last_row(Dims{1, 7, 32}, Dims{1, 32});
  ASSERT_TRUE(steps);
  ASSERT_EQ(steps->size(), 1u);
  EXPECT_EQ((*steps)[0].kind, RecipeStep::Kind::Select);
  EXPECT_EQ((*steps)[0].axis, 1);
  EXPECT_EQ((*steps)[0].first, 6);
}

TEST(LastRow, SaysNothingWhereItIsNotClear) {
  EXPECT_FALSE(last_row(Dims{2, 7, 32}, Dims{1, 32}));  // which of the two sequences?
  EXPECT_FALSE(last_row(Dims{7, 32}, Dims{1, 16}));
  EXPECT_FALSE(last_row(Dims{7, 32}, Dims{2, 32}));
  EXPECT_FALSE(last_row(Dims{1, 32}, Dims{1, 32}));
  EXPECT_FALSE(last_row(Dims{}, Dims{}));
  EXPECT_FALSE(last_row(Dims{7, 0}, Dims{1, 0}));
}

TEST(RopeSlice, TakesThePositionOfTheLastToken) {
  // rank 4 [batch, heads, positions, half]; mine holds both equal halves of a row
  const auto slice = rope_slice(Dims{1, 1, 9, 4}, Dims{1, 8}, 5, 0, false);
  ASSERT_TRUE(slice);
  EXPECT_EQ(slice->golden[0].axis, 2);
  EXPECT_EQ(slice->golden[0].first, 4);
  // ... then the batch goes: [1, 1, 4] becomes [1, 4]
  ASSERT_EQ(slice->golden.size(), 2u);
  EXPECT_EQ(slice->golden[1].axis, 0);
  ASSERT_EQ(slice->mine.size(), 1u);
  EXPECT_EQ(slice->mine[0].last, 4);
  // positions on the second axis
  const auto second = rope_slice(Dims{1, 9, 1, 4}, Dims{1, 4}, 5, 0, false);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->golden[0].axis, 1);
  EXPECT_TRUE(second->mine.empty());
  // rank 3 [positions, half, cos and sin]
  const auto third = rope_slice(Dims{9, 4, 2}, Dims{1, 4}, 9, 1, false);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->golden[0].first, 8);
  EXPECT_EQ(third->golden[1].first, 1);
  EXPECT_EQ(third->golden[2].shape, (std::vector<int64_t>{1, 4}));
}

TEST(RopeSlice, ComparesAllPositionsWhenBothSidesHaveThem) {
  const auto slice = rope_slice(Dims{1, 9, 8}, Dims{9, 8}, 9, 0, false);
  ASSERT_TRUE(slice);
  EXPECT_TRUE(slice->golden.empty() && slice->mine.empty() && slice->note.empty());
}

TEST(RopeSlice, KeepsTheOriginalsTestOnRequest) {
  EXPECT_TRUE(rope_slice(Dims{1, 1, 9, 4}, Dims{1, 8}, 9, 0, false));
  EXPECT_FALSE(rope_slice(Dims{1, 1, 9, 4}, Dims{1, 8}, 9, 0, true));
  EXPECT_FALSE(rope_slice(Dims{1, 1, 9, 4}, Dims{1, 8}, 10, 0, false));
  EXPECT_FALSE(rope_slice(Dims{1, 1, 9, 4}, Dims{1, 8}, 0, 0, false));
  EXPECT_FALSE(rope_slice(Dims{1, 1, 9, 4}, Dims{1, 6}, 5, 0, false));
}

}  // namespace
}  // namespace assay::pair
