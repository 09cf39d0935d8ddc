// SPDX-License-Identifier: Apache-2.0
#include "repeat/tokens.hpp"

#include <gtest/gtest.h>

#include "locate/program/test_program.hpp"
#include "repeat/steps.hpp"
#include "run/load.hpp"

namespace assay::repeat {
namespace {

using locate::test::TestRun;
using locate::test::Value;
using Values = std::vector<double>;

/// Forward calls on consecutive tokens of [1, tokens, 1]: x, x * 2, the sum of all tokens.
/// factor  of call `faulty`, in place of 2
void add_calls(TestRun& test, const std::vector<Values>& calls, size_t faulty = 99,
               double factor = 2) {
  test.step = 0;
  for (size_t i = 0; i < calls.size(); ++i) {
    const auto count = static_cast<int64_t>(calls[i].size());
    Values twice;
    double sum = 0;
    for (const double x : calls[i]) {
      twice.push_back(x * (i == faulty ? factor : 2));
      sum += twice.back();
    }
    const Value in = test.value(DType::Float32, {1, count, 1}, calls[i]);
    const Value out = test.op("m", "aten.mul.Scalar", {{"self", in}}, R"({"other":2})",
                              test.value(DType::Float32, {1, count, 1}, twice));
    test.op("m", "aten.sum.dim", {{"self", out}}, R"({"dim":[1]})",
            test.value(DType::Float32, {1, 1}, {sum}));
    ++test.step;
  }
}

Execution executed(TestRun& test) {
  run::Run run = test.run();
  for (run::TensorRecord& record : run.records)
    record.digest = stats::digest(run::load_tensor(record)->view);
  return Execution(std::make_shared<const run::Run>(std::move(run)));
}

/// Five tokens in one call; the last two of them in the second call.
constexpr CallPair kSecondChunk = {
    .first_step = 0, .other_step = 1, .tokens = {5, 3, 2, 0, 2}, .keys = {5, 0, 5, 0, 5}};

RowComparison chunks_against_whole(size_t faulty, double factor) {
  TestRun a;
  TestRun b;
  add_calls(a, {{1, 2, 3, 4, 5}});
  add_calls(b, {{1, 2, 3}, {4, 5}}, faulty, factor);
  const Execution whole = executed(a);
  const Execution chunks = executed(b);
  return compare_tokens(whole, {&chunks, 0, true}, {kSecondChunk}, nullptr).value();
}

TEST(CompareTokens, TheSamePositionsOfAChunkAreTheSame) {
  const RowComparison found = chunks_against_whole(99, 2);
  EXPECT_TRUE(found.findings.empty());
  // The first call was not asked for, and a sum of some tokens has no counterpart.
  using enum RowState;
  EXPECT_EQ(found.states, (std::vector<RowState>{NotJudged, NotJudged, Same, NotJudged}));
  EXPECT_EQ(found.judged, 1);
}

TEST(CompareTokens, AProductThatIsWrongInAChunkIsBeyondRounding) {
  const RowComparison found = chunks_against_whole(1, 3);
  ASSERT_EQ(found.findings.size(), 1);
  EXPECT_EQ(found.findings[0].place.step, 1);
  EXPECT_EQ(found.findings[0].place.operation, "aten.mul.Scalar");
  EXPECT_EQ(found.findings[0].different, 2);
  EXPECT_DOUBLE_EQ(found.findings[0].relative_error, 0.5);  // 3 x for 2 x
  EXPECT_TRUE(found.findings[0].is_beyond_rounding);
}

/// The largest of two channels and which one it is.
void choose(TestRun& test, const Values& largest) {
  const auto count = static_cast<int64_t>(largest.size());
  const Value in = test.value(DType::Float32, {1, count, 1}, Values(largest.size(), 1));
  test.begin_op("m", "aten.max.dim", {{"self", in}}, R"({"dim":2})");
  test.add_output("0", test.value(DType::Float32, {1, count}, largest));
  test.add_output("1", test.value(DType::Int64, {1, count}, Values(largest.size(), 0)));
}

TEST(CompareTokens, WholeNumbersBesideAWrongResultExcuseNothing) {
  TestRun a;
  TestRun b;
  choose(a, {1, 1, 1, 1, 1});
  b.step = 1;
  choose(b, {1, 3});
  const Execution whole = executed(a);
  const Execution chunk = executed(b);
  const RowComparison found =
      compare_tokens(whole, {&chunk, 0, true}, {kSecondChunk}, nullptr).value();
  ASSERT_EQ(found.findings.size(), 1);
  EXPECT_EQ(found.findings[0].slot, "0");
}

TEST(CompareTokens, ALastPlaceMoreIsNotInvariantAndWithinRounding) {
  const RowComparison found = chunks_against_whole(1, 2 * (1 + 0x1p-23));
  ASSERT_EQ(found.findings.size(), 1);
  EXPECT_FALSE(found.findings[0].is_beyond_rounding);
  EXPECT_LE(found.findings[0].largest_ulp, 2);
}

TEST(CompareTokens, AnAxisThatDiffersInSomethingElseIsNotJudged) {
  TestRun a;
  TestRun b;
  add_calls(a, {{1, 2, 3, 4, 5}});
  add_calls(b, {{1}, {4, 5, 7}});
  const Execution whole = executed(a);
  const Execution other = executed(b);
  const RowComparison found =
      compare_tokens(whole, {&other, 0, true}, {kSecondChunk}, nullptr).value();
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 0);
}

/// Rows of `length` tokens each; tokens of a row are its number and zeros of padding in front.
void padded_rows(TestRun& test, const std::vector<Values>& rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto length = static_cast<int64_t>(rows[0].size());
  Values all;
  Values twice;
  for (const Values& row : rows) {
    for (const double x : row) {
      all.push_back(x);
      twice.push_back(2 * x);
    }
  }
  const Value in = test.value(DType::Float32, {count * length, 1}, all);
  test.op("m", "aten.mul.Scalar", {{"self", in}}, R"({"other":2})",
          test.value(DType::Float32, {count * length, 1}, twice));
}

TEST(CompareTokens, RowsBehindPaddingAreFoundThoughTheirLengthIsFoldedWithTheBatch) {
  TestRun a, b, c, d;
  padded_rows(a, {{7, 8}});
  padded_rows(b, {{7, 8}, {7, 8}});
  padded_rows(c, {{7, 8}, {7, 8}, {7, 8}});
  padded_rows(d, {{1, 2, 3}, {0, 7, 8}});
  const Execution alone = executed(a);
  const Execution few = executed(b);
  const Execution more = executed(c);
  const Execution padded = executed(d);
  const CallPair call = {
      .first_step = 0, .other_step = 0, .tokens = {2, 0, 3, 1, 2}, .keys = {2, 0, 3, 1, 2}};
  const Splits splits(few, more, 2, {{2, 2, 3, 3}});
  const RowComparison found = compare_tokens(alone, {&padded, 1}, {call}, &splits).value();
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.judged, 1);
  // Without the lengths nobody knows where a row begins.
  const Splits plain(few, more, 2);
  EXPECT_EQ(compare_tokens(alone, {&padded, 1}, {call}, &plain).value().judged, 0);
}

TEST(StepsOf, SomeStepsAreARunOfTheirOwn) {
  TestRun test;
  add_calls(test, {{1}, {2, 3}, {4, 5, 6}});
  const run::Run run = test.run();
  EXPECT_EQ(step_count(run), 3);
  const run::Run part = steps_of(run, 1, 2);
  EXPECT_EQ(step_count(part), 2);
  EXPECT_EQ(part.operations.size(), 4);
  EXPECT_EQ(part.records.front().step, 0);
  EXPECT_EQ(*part.records.front().shape, (Dims{1, 2, 1}));
  EXPECT_EQ(step_count(run), 3);
}

}  // namespace
}  // namespace assay::repeat
