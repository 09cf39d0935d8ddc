// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/token_divergence.hpp"

#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;

/// One step with logits [batch 1, 2 positions, 3 tokens]; those of the first position never decide.
void add_step(TestRun& run, int64_t step, const std::vector<double>& last) {
  run.step = step;
  std::vector<double> values = {9, 0, 0};
  values.insert(values.end(), last.begin(), last.end());
  run.module_output("lm_head", run.value(DType::Float32, {1, 2, 3}, values));
}

TEST(TokenDivergence, IsTheFirstStepWithAnotherLargestLogit) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  add_step(golden, 1, {1, 5, 2});
  TestRun mine;
  add_step(mine, 0, {1, 4, 2});
  add_step(mine, 1, {1, 3, 4});
  const TokenDivergence found = find_token_divergence(golden.run(), mine.run());
  EXPECT_EQ(found.step, 1);
  EXPECT_EQ(found.golden_token, 1);
  EXPECT_EQ(found.mine_token, 2);
  EXPECT_DOUBLE_EQ(found.margin, 3);      // 5 - 2
  EXPECT_DOUBLE_EQ(found.difference, 2);  // |3 - 5|, |4 - 2|
  EXPECT_TRUE(found.near_tie);            // 3 <= 4 sqrt((0 + 4 + 4) / 3)
}

TEST(TokenDivergence, OneLogitFarOffIsNoTie) {
  // Given 64 tokens, of which golden chooses the first by 5, and mine another whose logit alone is
  // 6 off
  std::vector<double> logits(64, 0);
  logits[0] = 5;
  TestRun golden;
  golden.module_output("lm_head", golden.value(DType::Float32, {1, 64}, logits));
  logits[7] = 6;
  TestRun mine;
  mine.module_output("lm_head", mine.value(DType::Float32, {1, 64}, logits));
  // Then the logits differ by sqrt(36 / 64) = 0.75 as a rule, and 4 times that is below 5
  const TokenDivergence found = find_token_divergence(golden.run(), mine.run());
  EXPECT_EQ(found.mine_token, 7);
  EXPECT_DOUBLE_EQ(found.margin, 5);
  EXPECT_FALSE(found.near_tie);
}

/// Golden has no bytes, and its largest logits only.
void leave_choices(TestRun& golden, int64_t vocabulary, std::vector<run::Choice> row) {
  run::TensorRecord& record = golden.run().records.back();
  record.bytes.reset();
  record.choices =
      std::make_shared<const run::TopChoices>(run::TopChoices{vocabulary, {std::move(row)}});
}

TEST(TokenDivergence, OfGoldensLargestLogitsIsTheSame) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  leave_choices(golden, 3, {{1, 5}, {2, 2}, {0, 1}});
  TestRun mine;
  add_step(mine, 0, {1, 3, 4});
  const TokenDivergence found = find_token_divergence(golden.run(), mine.run());
  EXPECT_EQ(found.golden_token, 1);
  EXPECT_EQ(found.mine_token, 2);
  EXPECT_DOUBLE_EQ(found.margin, 3);
  EXPECT_DOUBLE_EQ(found.difference, 2);
  EXPECT_TRUE(found.near_tie);  // as with all three of them, above
}

TEST(TokenDivergence, ATokenBeyondGoldensLargestDiffersAtLeastByTheSmallestOfThese) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  leave_choices(golden, 3, {{1, 5}, {2, 2}});
  TestRun mine;
  add_step(mine, 0, {9, 5, 2});
  const TokenDivergence found = find_token_divergence(golden.run(), mine.run());
  EXPECT_EQ(found.mine_token, 0);
  EXPECT_DOUBLE_EQ(found.difference, 7);  // 9 - 2
  EXPECT_FALSE(found.near_tie);           // the others do not differ
}

TEST(TokenDivergence, ChoicesOfAnotherVocabularyAreLeftOut) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  leave_choices(golden, 4, {{1, 5}, {3, 2}});
  TestRun mine;
  add_step(mine, 0, {9, 5, 2});
  EXPECT_EQ(find_token_divergence(golden.run(), mine.run()).step, -1);
}

TEST(TokenDivergence, IsOfTheFirstRankThatTheUserDidNotLeaveOut) {
  TestRun golden;
  TestRun mine;
  for (TestRun* run : {&golden, &mine}) {
    run->rank = 0;
    add_step(*run, 0, {1, 5, 2});
    run->rank = 1;
  }
  add_step(golden, 0, {1, 5, 2});
  add_step(mine, 0, {1, 3, 4});
  for (TestRun* run : {&golden, &mine}) {
    for (run::TensorRecord& record : run->run().records)
      if (record.rank == 0) record.kind = run::RecordKind::WatchedAgain;
  }
  EXPECT_EQ(find_token_divergence(golden.run(), mine.run()).step, 0);
}

TEST(TokenDivergence, EqualChoicesAreNone) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  TestRun mine;
  add_step(mine, 0, {4, 4.5, 2});
  EXPECT_EQ(find_token_divergence(golden.run(), mine.run()).step, -1);
}

TEST(TokenDivergence, OtherShapesAndStepsAreLeftOut) {
  TestRun golden;
  golden.module_output("lm_head", golden.value(DType::Float32, {1, 2}, {1, 2}));
  TestRun mine;
  add_step(mine, 0, {1, 5, 2});
  add_step(mine, 1, {1, 5, 2});
  EXPECT_EQ(find_token_divergence(golden.run(), mine.run()).step, -1);
}

TEST(TokenDivergence, TheModelsOwnLogitsCountMoreThanThoseOfItsHead) {
  // Given a model that changes what its head gives, as a soft cap does
  TestRun golden;
  TestRun mine;
  for (TestRun* run : {&golden, &mine}) {
    add_step(*run, 0, run == &mine ? std::vector<double>{1, 2, 3} : std::vector<double>{3, 2, 1});
    run->module_output("", run->value(DType::Float32, {1, 3}, {0, 1, 0}));
    run->run().records.back().slot = "logits";
  }
  EXPECT_EQ(find_token_divergence(golden.run(), mine.run()).step, -1);
}

}  // namespace
}  // namespace assay::locate
