// SPDX-License-Identifier: Apache-2.0
#include "pair/tokens.hpp"

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "vendor/msit/pairs.hpp"

namespace assay::pair {
namespace {

// Part 0 is the prompt's model, part 1 the decoder's; each counts its own runs.
const StepParts kPromptOnceDecoderThrice = {{0, {0, 1}}, {1, {1}}, {2, {1}}};
const StepParts kPromptTwiceDecoderThrice = {{0, {0, 1}}, {1, {0, 1}}, {2, {1}}};

std::map<std::pair<int64_t, int>, int64_t> tokens(const StepParts& steps, TokenTable table) {
  std::map<std::pair<int64_t, int>, int64_t> out;
  for (const TokenPlace& place : token_places(steps, table))
    out[{place.step, place.part}] = place.token;
  return out;
}

TEST(TokenTables, WithoutWarmUpTheDecoderIsOneTokenAhead) {
  const TokenTable table = detect_token_table(kPromptOnceDecoderThrice, -1, -1);
  EXPECT_EQ(table, TokenTable::Shifted);
  const std::map<std::pair<int64_t, int>, int64_t> expected = {
      {{0, 0}, 0}, {{0, 1}, 1}, {{1, 1}, 2}, {{2, 1}, 3}};
  EXPECT_EQ(tokens(kPromptOnceDecoderThrice, table), expected);
}

TEST(TokenTables, TwoDifferentPromptsAreAWarmUpOfBothModels) {
  const TokenTable table = detect_token_table(kPromptTwiceDecoderThrice, 1, 0);
  EXPECT_EQ(table, TokenTable::WarmUp);
  const std::map<std::pair<int64_t, int>, int64_t> expected = {
      {{0, 0}, kWarmupToken}, {{0, 1}, kWarmupToken}, {{1, 0}, 0}, {{1, 1}, 1}, {{2, 1}, 2}};
  EXPECT_EQ(tokens(kPromptTwiceDecoderThrice, table), expected);
}

TEST(TokenTables, ADecoderThatGoesOnFromItsFirstRunHadNoWarmUp) {
  const TokenTable table = detect_token_table(kPromptTwiceDecoderThrice, 1, 1);
  EXPECT_EQ(table, TokenTable::PromptWarmUp);
  const std::map<std::pair<int64_t, int>, int64_t> expected = {
      {{0, 0}, kWarmupToken}, {{0, 1}, 1}, {{1, 0}, 0}, {{1, 1}, 2}, {{2, 1}, 3}};
  EXPECT_EQ(tokens(kPromptTwiceDecoderThrice, table), expected);
}

TEST(TokenTables, TwoPromptsOfWhichTheFirstIsGoldensAreNoWarmUp) {
  EXPECT_EQ(detect_token_table(kPromptTwiceDecoderThrice, 0, 1), TokenTable::Shifted);
}

TEST(TokenTables, TheOriginalTakesEveryPairOfModelsForAWarmUp) {
  EXPECT_EQ(vendor::msit::token_table(kPromptOnceDecoderThrice), TokenTable::WarmUp);
  EXPECT_EQ(vendor::msit::token_table({{0, {0}}, {1, {0}}}), TokenTable::Plain);
}

}  // namespace
}  // namespace assay::pair
