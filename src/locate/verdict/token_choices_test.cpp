// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/token_choices.hpp"

#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;

TokenChoices choices_of(TestRun& golden, TestRun& mine,
                        const std::optional<InputDifference>& inputs = {}) {
  return find_token_choices(golden.program(), mine.program(), inputs);
}

/// One step with logits [batch 1, 2 positions, 3 tokens]; both runs choose token 0 at the first.
void add_step(TestRun& run, int64_t step, const std::vector<double>& last) {
  run.step = step;
  std::vector<double> values = {9, 0, 0};
  values.insert(values.end(), last.begin(), last.end());
  run.module_output("lm_head", run.value(DType::Float32, {1, 2, 3}, values));
}

void add_logits(TestRun& run, const Dims& shape, const std::vector<double>& values) {
  run.module_output("lm_head", run.value(DType::Float32, shape, values));
}

TEST(TokenChoices, FirstIsTheFirstStepWithAnotherLargestLogit) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  add_step(golden, 1, {1, 5, 2});
  TestRun mine;
  add_step(mine, 0, {1, 4, 2});
  add_step(mine, 1, {1, 3, 4});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.first.step, 1);
  EXPECT_EQ(found.first.position, 1);
  EXPECT_EQ(found.first.golden_token, 1);
  EXPECT_EQ(found.first.mine_token, 2);
  EXPECT_DOUBLE_EQ(found.first.margin, 3);                  // 5 - 2
  EXPECT_DOUBLE_EQ(found.first.difference, 2);              // |3 - 5|, |4 - 2|
  EXPECT_NEAR(found.first.noise, std::sqrt(8. / 3), 1e-6);  // sqrt((0 + 4 + 4) / 3)
  EXPECT_EQ(found.first.kind, ChoiceKind::NearTie);         // 3 <= 4 * 1.633
  EXPECT_EQ(found.positions, 4);
  EXPECT_EQ(found.near_ties, 1);
  EXPECT_NEAR(found.largest_near_tie, 3 / std::sqrt(8. / 3), 1e-6);
}

/// Golden has no bytes, and the largest logits of its last position only.
void leave_choices(TestRun& golden, int64_t vocabulary, std::vector<run::Choice> row) {
  run::TensorRecord& record = golden.run().records.back();
  record.bytes.reset();
  record.set_choices(
      std::make_shared<const run::TopChoices>(run::TopChoices{vocabulary, {std::move(row)}}));
}

TEST(TokenChoices, OfGoldensLargestLogitsAreThoseOfItsLastPosition) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  leave_choices(golden, 3, {{1, 5}, {2, 2}, {0, 1}});
  TestRun mine;
  add_step(mine, 0, {1, 3, 4});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.positions, 1);
  EXPECT_EQ(found.near_ties, 1);
  EXPECT_EQ(found.first.golden_token, 1);
  EXPECT_EQ(found.first.mine_token, 2);
  EXPECT_EQ(found.first.position, 1);
  EXPECT_DOUBLE_EQ(found.first.margin, 3);
  EXPECT_DOUBLE_EQ(found.first.difference, 2);
  EXPECT_NEAR(found.first.noise, std::sqrt(8. / 3), 1e-6);  // as with all values, above
  EXPECT_TRUE(std::isnan(found.kl_mean));
}

TEST(TokenChoices, ATokenBeyondGoldensLargestIsAsFarBehindAsTheSmallestOfThese) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  leave_choices(golden, 3, {{1, 5}, {2, 2}});
  TestRun mine;
  add_step(mine, 0, {9, 5, 2});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.first.mine_token, 0);
  EXPECT_DOUBLE_EQ(found.first.gap, 3);         // 5 - 2: golden's is 2 at most
  EXPECT_DOUBLE_EQ(found.first.difference, 7);  // 9 - 2
}

TEST(TokenChoices, OfAnotherVocabularyAreNotCompared) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  leave_choices(golden, 4, {{1, 5}, {3, 2}});
  TestRun mine;
  add_step(mine, 0, {9, 5, 2});
  EXPECT_EQ(choices_of(golden, mine).positions, 0);
}

TEST(TokenChoices, KlIsThatOfBothDistributionsWithAndWithoutTies) {
  const auto softmax = [](const std::vector<double>& x) {
    double sum = 0;
    for (const double v : x) sum += std::exp(v);
    std::vector<double> p;
    for (const double v : x) p.push_back(std::exp(v) / sum);
    return p;
  };
  const auto kl = [&](const std::vector<double>& golden, const std::vector<double>& mine) {
    const auto p = softmax(golden), q = softmax(mine);
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) sum += p[i] * std::log(p[i] / q[i]);
    return sum;
  };
  // Given three positions: equal rows, a row that differs, a near tie
  TestRun golden;
  add_logits(golden, {1, 3, 3}, {1, 2, 3, 1, 5, 2, 1, 5, 2});
  TestRun mine;
  add_logits(mine, {1, 3, 3}, {1, 2, 3, 1, 4, 2, 1, 3, 4});
  const double differs = kl({1, 5, 2}, {1, 4, 2});
  const double tie = kl({1, 5, 2}, {1, 3, 4});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.positions, 3);
  EXPECT_NEAR(found.kl_mean, (differs + tie) / 3, 1e-12);
  EXPECT_NEAR(found.kl_max, tie, 1e-12);
  EXPECT_NEAR(found.kl_mean_without_ties, differs / 2, 1e-12);
  EXPECT_NEAR(found.kl_max_without_ties, differs, 1e-12);
}

TEST(TokenChoices, OneLogitFarOffIsNoNearTie) {
  // Given 64 tokens, of which golden chooses the first by 5, and mine another whose logit alone is
  // 6 off
  std::vector<double> logits(64, 0);
  logits[0] = 5;
  TestRun golden;
  add_logits(golden, {1, 64}, logits);
  logits[7] = 6;
  TestRun mine;
  add_logits(mine, {1, 64}, logits);
  // Then the logits differ by sqrt(36 / 64 (1 - 1 / 64)) = 0.744 as a rule: 5 is 6.7 times that,
  // beyond the 4 of a near tie and below 2 sqrt(ln(1e5 * 64)) = 7.9
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.first.mine_token, 7);
  EXPECT_DOUBLE_EQ(found.first.margin, 5);
  EXPECT_NEAR(found.first.noise, 0.7441, 1e-4);
  EXPECT_NEAR(found.limit, 7.917, 1e-3);
  EXPECT_EQ(found.first.kind, ChoiceKind::Chance);
  EXPECT_EQ(found.chances, 1);
}

TEST(TokenChoices, WhatNoNoiseOfThisSizeDecidesIsUnexplained) {
  // Given 1024 tokens, of which one alone is 13 off: noise 13 / 32 = 0.41, gap 12 is 29 times that,
  // and 2 sqrt(ln(1e5 * 1024)) = 8.6
  std::vector<double> logits(1024, 0);
  logits[0] = 12;
  TestRun golden;
  add_logits(golden, {1, 1024}, logits);
  logits[7] = 13;
  TestRun mine;
  add_logits(mine, {1, 1024}, logits);
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.first.kind, ChoiceKind::Unexplained);
  EXPECT_EQ(found.unexplained, 1);
  EXPECT_EQ(found.choices.front().kind, ChoiceKind::Unexplained);
}

TEST(TokenChoices, ATokenFarBelowIsNoTieHoweverNearTheSecondIs) {
  // Given golden's best two 0.1 apart, and a mine that takes one that is 40 below
  std::vector<double> logits(1024, 0);
  logits[0] = 40;
  logits[1] = 39.9;
  TestRun golden;
  add_logits(golden, {1, 1024}, logits);
  logits[7] = 41;
  TestRun mine;
  add_logits(mine, {1, 1024}, logits);
  EXPECT_EQ(choices_of(golden, mine).first.kind, ChoiceKind::Unexplained);
}

TEST(TokenChoices, HiddenTokensCountInNothing) {
  // Given a mask in golden's type on one side, in mine's on the other
  TestRun golden;
  add_logits(golden, {1, 4}, {1, 5, 2, -3.4e38});
  TestRun mine;
  add_logits(mine, {1, 4}, {1, 3, 4, -std::numeric_limits<double>::infinity()});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.positions, 1);
  EXPECT_NEAR(found.first.noise, std::sqrt(8. / 3), 1e-6);  // of the three others
  EXPECT_TRUE(std::isfinite(found.kl_max));
}

TEST(TokenChoices, PositionsWithNanAreCountedApart) {
  TestRun golden;
  add_logits(golden, {1, 3}, {1, 5, 2});
  TestRun mine;
  add_logits(mine, {1, 3}, {1, NAN, 4});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.positions, 0);
  EXPECT_EQ(found.not_finite, 1);
  EXPECT_TRUE(std::isnan(found.kl_mean));
}

// bfloat16 has steps of 0.5 at 65 (8 bits: 2^6 / 2^7): two tokens 0.25 apart may change places.
TEST(TokenChoices, TheTypeOfTheLargestLogitIsPartOfTheNoise) {
  std::vector<double> logits(4096, 0);
  logits[0] = 65.75;
  logits[1] = 65.5;
  TestRun golden;
  add_logits(golden, {1, 4096}, logits);
  std::swap(logits[0], logits[1]);
  TestRun mine;
  mine.module_output("lm_head", mine.value(DType::BFloat16, {1, 4096}, logits));
  // Then mine holds 65.5 and 66: sqrt((0.25^2 + 0.5^2) / 4096 + 0.5^2 / 12) = 0.1446, where the
  // differences alone would give 0.0087, and no tie
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.first.mine_token, 1);
  EXPECT_NEAR(found.first.noise, 0.1446, 1e-4);
  EXPECT_EQ(found.first.kind, ChoiceKind::NearTie);  // 0.25 <= 4 * 0.1446
}

TEST(TokenChoices, PaddingIsLeftOutWhereTheMaskTells) {
  // Given two sequences of three tokens, the first padded by one on the left, and mine otherwise
  // at the padding only
  TestRun golden;
  TestRun mine;
  for (TestRun* run : {&golden, &mine}) {
    run->module_input("", "kwargs.attention_mask",
                      run->value(DType::Int64, {2, 3}, {0, 1, 1, 1, 1, 1}));
    const double first = run == &mine ? 9 : 0;
    run->module_output(
        "", run->value(DType::Float32, {2, 3, 2}, {first, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
    run->run().records.back().slot = "logits";
  }
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.padding, 1);
  EXPECT_EQ(found.positions, 5);
  EXPECT_EQ(found.other_choices(), 0);
  EXPECT_EQ(found.kl_max, 0);
}

TEST(TokenChoices, PaddingBehindTheTextIsNotTheLastChoice) {
  TestRun golden;
  TestRun mine;
  for (TestRun* run : {&golden, &mine}) {
    run->module_input("", "kwargs.attention_mask", run->value(DType::Int64, {1, 2}, {1, 0}));
    const double last = run == &mine ? 9 : 0;
    run->module_output("", run->value(DType::Float32, {1, 2, 2}, {0, 1, last, 1}));
    run->run().records.back().slot = "logits";
  }
  EXPECT_EQ(choices_of(golden, mine).first.step, -1);
}

TEST(TokenChoices, FromOtherInputsOnNothingIsComparedButTheFirst) {
  TestRun golden;
  TestRun mine;
  for (const int64_t step : {0, 1, 2}) {
    add_step(golden, step, {1, 5, 2});
    add_step(mine, step, step == 0 ? std::vector<double>{1, 5, 2} : std::vector<double>{1, 3, 4});
  }
  const TokenChoices found = choices_of(golden, mine, InputDifference{.step = 2, .text = "x"});
  EXPECT_EQ(found.first.step, 1);
  EXPECT_EQ(found.positions, 4);
  EXPECT_EQ(found.near_ties, 1);
  EXPECT_EQ(found.other_inputs_from, 2);
}

TEST(TokenChoices, FewerPositionsAreTheLastOnes) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  TestRun mine;
  add_logits(mine, {1, 1, 3}, {1, 4, 2});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.positions, 1);
  EXPECT_EQ(found.other_choices(), 0);
}

/// A step that looks up tokens at these positions, whose logits choose these tokens of 3.
void add_guesses(TestRun& run, int64_t step, std::vector<double> positions,
                 const std::vector<size_t>& chosen) {
  run.step = step;
  const auto count = static_cast<int64_t>(positions.size());
  const auto ids = run.value(DType::Int64, {1, count}, std::vector<double>(positions.size(), 1));
  run.module_input("", "kwargs.position_ids",
                   run.value(DType::Int64, {1, count}, std::move(positions)));
  run.module_input("model.embed_tokens", "0", ids);
  std::vector<double> logits;
  for (const size_t token : chosen) {
    for (size_t i = 0; i < 3; ++i) logits.push_back(i == token ? 9 : 0);
  }
  run.module_output("lm_head", run.value(DType::Float32, {1, count, 3}, logits));
}

TEST(TokenChoices, BehindARefusedGuessNothingIsChosen) {
  TestRun golden;
  TestRun mine;
  for (const auto& [run, behind] : {std::pair(&golden, 1), std::pair(&mine, 2)}) {
    add_guesses(*run, 0, {0, 1}, {0, 1});
    // Of two guesses at 3 and 4 the first is right; what would follow the second nobody asks.
    add_guesses(*run, 1, {2, 3, 4}, {0, 2, static_cast<size_t>(behind)});
    add_guesses(*run, 2, {4}, {0});
  }
  EXPECT_EQ(choices_of(golden, mine).first.step, -1);

  TestRun other;
  add_guesses(other, 0, {0, 1}, {0, 1});
  add_guesses(other, 1, {2, 3, 4}, {0, 1, 1});
  add_guesses(other, 2, {4}, {0});
  const TokenChoices found = choices_of(golden, other);
  EXPECT_EQ(found.first.step, 1);
  EXPECT_EQ(found.first.position, 1);
  EXPECT_EQ(found.first.golden_token, 2);
}

TEST(TokenChoices, AreOfTheFirstRankThatTheUserDidNotLeaveOut) {
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
  EXPECT_EQ(choices_of(golden, mine).first.step, 0);
}

TEST(TokenChoices, EqualChoicesAreNone) {
  TestRun golden;
  add_step(golden, 0, {1, 5, 2});
  TestRun mine;
  add_step(mine, 0, {4, 4.5, 2});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.first.step, -1);
  EXPECT_EQ(found.other_choices(), 0);
}

TEST(TokenChoices, OtherShapesAndStepsAreLeftOut) {
  TestRun golden;
  add_logits(golden, {1, 2}, {1, 2});
  TestRun mine;
  add_step(mine, 0, {1, 5, 2});
  add_step(mine, 1, {1, 5, 2});
  const TokenChoices found = choices_of(golden, mine);
  EXPECT_EQ(found.first.step, -1);
  EXPECT_EQ(found.positions, 0);
}

TEST(TokenChoices, TheModelsOwnLogitsCountMoreThanThoseOfItsHead) {
  // Given a model that changes what its head gives, as a soft cap does
  TestRun golden;
  TestRun mine;
  for (TestRun* run : {&golden, &mine}) {
    add_step(*run, 0, run == &mine ? std::vector<double>{1, 2, 3} : std::vector<double>{3, 2, 1});
    run->module_output("", run->value(DType::Float32, {1, 3}, {0, 1, 0}));
    run->run().records.back().slot = "logits";
  }
  EXPECT_EQ(choices_of(golden, mine).first.step, -1);
}

}  // namespace
}  // namespace assay::locate
