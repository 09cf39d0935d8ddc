// SPDX-License-Identifier: Apache-2.0
#include "pair/step_tokens.hpp"

#include <gtest/gtest.h>

namespace assay::pair {
namespace {

StepTokens step(int64_t number, int64_t first, const std::vector<int64_t>& ids) {
  StepTokens out{.step = number, .ids = true};
  for (size_t i = 0; i < ids.size(); ++i)
    out.tokens.push_back({.position = first + static_cast<int64_t>(i), .token = ids[i]});
  return out;
}

TEST(TokenKeys, OfOneTextAreEqualHoweverItIsCut) {
  const TokenKeys whole = token_keys({step(0, 0, {7, 8, 9})});
  const TokenKeys cut = token_keys({step(0, 0, {7}), step(1, 1, {8, 9})});
  EXPECT_TRUE(whole.from_start);
  EXPECT_EQ(whole.steps[0][0], cut.steps[0][0]);
  EXPECT_EQ(whole.steps[0][1], cut.steps[1][0]);
  EXPECT_EQ(whole.steps[0][2], cut.steps[1][1]);
}

TEST(TokenKeys, OfATokenBehindAnotherTokenDiffer) {
  // The guess 5 is refused and 8 computed in its place; 9 behind 5 is not 9 behind 8.
  const TokenKeys keys = token_keys({step(0, 0, {7, 5, 9}), step(1, 1, {8}), step(2, 2, {9})});
  EXPECT_TRUE(keys.from_start);
  EXPECT_NE(keys.steps[0][2], keys.steps[2][0]);
}

TEST(TokenKeys, WithoutTheBeginningSayThatTheyLackIt) {
  EXPECT_FALSE(token_keys({step(3, 20, {7, 8})}).from_start);
  const TokenKeys unknown = token_keys({{.step = 0, .tokens = {{.position = -1, .token = 3}}}});
  EXPECT_FALSE(unknown.from_start);
}

StepTokens graph(std::vector<PlacedToken> tokens) {
  return {.tokens = std::move(tokens), .ids = true};
}

TEST(SequenceKeys, FollowEachSequenceThroughGraphsThatHoldSeveral) {
  // "7 8 5" and "7 9 6", the second beside the first's third token, then one token of each.
  const std::vector<StepTokens> graphs = {
      graph({{.position = 0, .token = 7}, {.position = 1, .token = 8}}),
      graph(
          {{.position = 2, .token = 5}, {.position = 0, .token = 7}, {.position = 1, .token = 9}}),
      graph({{.position = 2, .token = 6}, {.position = 3, .token = 4}})};
  EXPECT_TRUE(hold_sequences(graphs));
  const TokenKeys first = token_keys({step(0, 0, {7, 8, 5, 4})});
  const TokenKeys second = token_keys({step(0, 0, {7, 9, 6})});
  std::set<uint64_t> wanted(first.steps[0].begin(), first.steps[0].end());
  wanted.insert(second.steps[0].begin(), second.steps[0].end());
  const TokenKeys found = sequence_keys(graphs, wanted);
  EXPECT_EQ(found.steps[0], (std::vector{first.steps[0][0], first.steps[0][1]}));
  EXPECT_EQ(found.steps[1],
            (std::vector{first.steps[0][2], second.steps[0][0], second.steps[0][1]}));
  EXPECT_EQ(found.steps[2], (std::vector{second.steps[0][2], first.steps[0][3]}));
}

TEST(SequenceKeys, ChooseAmongSequencesOfOneLengthByWhatIsLookedFor) {
  // Two sequences of one token; then, in the other order, the second token of each. Only the first
  // is looked for.
  const std::vector<StepTokens> graphs = {
      graph({{.position = 0, .token = 1}}), graph({{.position = 0, .token = 2}}),
      graph({{.position = 1, .token = 9}, {.position = 1, .token = 8}})};
  const TokenKeys wanted = token_keys({step(0, 0, {1, 8})});
  const TokenKeys found = sequence_keys(graphs, {wanted.steps[0].begin(), wanted.steps[0].end()});
  EXPECT_EQ(found.steps[2][1], wanted.steps[0][1]);
  EXPECT_NE(found.steps[2][0], wanted.steps[0][1]);
}

TEST(SequenceKeys, OfPositionsThatNobodyHasAreNoTrap) {
  const TokenKeys found = sequence_keys(
      {graph({{.position = -1, .token = 3}, {.position = int64_t{1} << 40, .token = 3}})}, {});
  EXPECT_FALSE(found.from_start);
  EXPECT_EQ(found.steps[0].size(), 2u);
}

/// Golden's ten tokens, of which the run under test's step has the fifth to the eighth.
StepRows chunk() {
  return {.golden_step = 0,
          .mine_step = 1,
          .golden = {4, 5, 6, 7},
          .mine = {0, 1, 2, 3},
          .golden_count = 10,
          .mine_count = 4,
          .golden_context = 10,
          .mine_context = 8};
}

TEST(SelectRows, TakesTheRowsOfTheTokensInCommon) {
  const RowSelection chosen = select_rows(chunk(), {1, 10, 64}, {1, 4, 64});
  ASSERT_TRUE(chosen.known);
  EXPECT_EQ(chosen.axis, 1u);
  EXPECT_EQ(chosen.golden, (std::vector<int64_t>{4, 5, 6, 7}));
  EXPECT_EQ(chosen.mine, (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(select_rows(chunk(), {1, 8, 10, 16}, {1, 8, 4, 16}).axis, 2u);  // of each head
  EXPECT_EQ(select_rows(chunk(), {10, 6}, {4, 6}).axis, 0u);                // of a router
}

TEST(SelectRows, CountsAHeadsRowsFromTheLast) {
  // Logits of golden's last two tokens are of tokens 8 and 9; the run under test's step ends with
  // token 7.
  EXPECT_TRUE(select_rows(chunk(), {1, 2, 96}, {1, 4, 96}).none);
  // Of the last four they are of 6 and 7, too, which are the run under test's rows 2 and 3.
  const RowSelection chosen = select_rows(chunk(), {1, 4, 96}, {1, 4, 96});
  ASSERT_TRUE(chosen.known);
  EXPECT_EQ(chosen.golden, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(chosen.mine, (std::vector<int64_t>{2, 3}));
}

TEST(SelectRows, OfKeysTakesThoseOfTheShorterText) {
  const RowSelection chosen = select_rows(chunk(), {1, 2, 10, 16}, {1, 2, 8, 16});
  ASSERT_TRUE(chosen.known);
  EXPECT_TRUE(chosen.keys);
  EXPECT_EQ(chosen.axis, 2u);
  EXPECT_EQ(chosen.count, 8);
}

TEST(SelectRows, DoesNotGuess) {
  EXPECT_FALSE(select_rows(chunk(), {1, 10, 64}, {1, 4, 32}).known);         // two axes differ
  EXPECT_FALSE(select_rows(chunk(), {1, 10, 64}, {10, 64}).known);           // other ranks
  EXPECT_FALSE(select_rows(chunk(), {1, 2, 10, 16}, {1, 4, 10, 16}).known);  // heads repeated
  EXPECT_FALSE(select_rows(chunk(), {}, {}).known);
}

TEST(SelectRows, LeavesAloneWhatHoldsNoTokens) {
  const RowSelection table = select_rows(chunk(), {8}, {8});  // inverse frequencies
  EXPECT_TRUE(table.known);
  EXPECT_TRUE(table.whole);
}

}  // namespace
}  // namespace assay::pair
