// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/nan_origin.hpp"

#include "base/numbers.hpp"
#include "locate/program/test_program.hpp"
#include "run/load.hpp"

namespace assay::locate {
namespace {

using test::TestRun;

/// Two modules behind each other.
void fill(TestRun& run, double a, double b_input, double b, DType dtype = DType::Float32) {
  run.module_input("a", "0", run.value(dtype, {2}, {1, 2}));
  run.module_output("a", run.value(dtype, {2}, {1, a}));
  run.module_input("b", "0", run.value(dtype, {2}, {1, b_input}));
  run.module_output("b", run.value(dtype, {2}, {1, b}));
}

NanOrigins search(TestRun& golden, TestRun& mine) {
  return find_nan_origins(golden.run(), mine.run(), 1, nullptr).value();
}

TEST(NanOrigin, IsTheFirstWithFiniteInputsAndTheRestInherits) {
  TestRun golden;
  fill(golden, 1, 1, 1);
  TestRun mine;
  fill(mine, NAN, NAN, NAN);
  const NanOrigins found = search(golden, mine);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].kind, FindingKind::NanOrigin);
  EXPECT_EQ(found.findings[0].module, "a");
  EXPECT_TRUE(found.findings[0].hard);
  EXPECT_EQ(found.findings[0].detail, "1 NaN out of finite inputs where golden has none");
  EXPECT_EQ(found.inherited, std::vector<size_t>({3}));  // the output of b
}

TEST(NanOrigin, AnOverflowIsOne) {
  TestRun golden;
  fill(golden, 70000, 1, 1);
  TestRun mine;
  fill(mine, kInfinity, 1, 1, DType::Float16);
  const NanOrigins found = search(golden, mine);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].detail, "1 infinity out of finite inputs where golden has none");
}

TEST(NanOrigin, WhatGoldenHasTooIsNone) {
  TestRun golden;
  fill(golden, NAN, NAN, -kInfinity);
  TestRun mine;
  fill(mine, NAN, NAN, -kInfinity);
  EXPECT_TRUE(search(golden, mine).findings.empty());
}

TEST(NanOrigin, MemoryThatNobodyWroteYetIsNone) {
  TestRun golden;
  TestRun mine;
  for (TestRun* run : {&golden, &mine})
    run->op("attn", "aten.new_empty.default", {}, R"({"size":[2]})",
            run->value(DType::Float32, {2}, {run == &mine ? NAN : 0.0, 1}));
  EXPECT_TRUE(search(golden, mine).findings.empty());
}

TEST(NanOrigin, TheLowestValueOfAWiderTypeIsAMask) {
  TestRun golden;
  fill(golden, -3.4e38, 1, 1);
  TestRun mine;
  fill(mine, -kInfinity, 1, 1);
  EXPECT_TRUE(search(golden, mine).findings.empty());
}

TEST(NanOrigin, NanOutOfInfinitiesThatBelongThereCounts) {
  // Given a row that is masked altogether: golden's kernel gives zeros, the other's divides zero by
  // zero
  TestRun golden;
  fill(golden, -kInfinity, -kInfinity, 0);
  TestRun mine;
  fill(mine, -kInfinity, -kInfinity, NAN);
  const NanOrigins found = search(golden, mine);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "b");
  EXPECT_EQ(found.findings[0].detail,
            "1 NaN out of inputs whose infinities belong there where golden has none");
}

/// Scores of two slots of a static cache, the second one empty and hidden, which golden's cache has
/// no slot for.
NanOrigins search_behind_a_mask(bool with_nan) {
  TestRun golden;
  TestRun mine;
  for (TestRun* run : {&golden, &mine}) {
    const test::Value shown = run->value(DType::Bool, {2}, {1, run == &mine ? 0.0 : 1.0});
    const test::Value scores = run->value(DType::Float32, {2}, {3, 4});
    const test::Value hidden = run->value(DType::Float32, {1}, {-kInfinity});
    const double second = run == &mine ? -kInfinity : 4;
    const test::Value masked = run->op("attn", "aten.where.self",
                                       {{"condition", shown}, {"self", scores}, {"other", hidden}},
                                       "{}", run->value(DType::Float32, {2}, {3, second}));
    run->op("attn", "aten.mul.Tensor", {{"self", masked}}, R"({"other":2})",
            run->value(DType::Float32, {2}, {6, 2 * second}));
    if (with_nan)
      run->op("attn", "aten.mul.Tensor", {{"self", masked}}, R"({"other":0})",
              run->value(DType::Float32, {2}, {0, 0 * second}));
  }
  return search(golden, mine);
}

TEST(NanOrigin, AMoveMakesNoInfinity) {
  // The infinity that was moved there is none of its own, and twice of it inherits it.
  const NanOrigins found = search_behind_a_mask(/*with_nan=*/false);
  EXPECT_TRUE(found.findings.empty());
  EXPECT_EQ(found.inherited.size(), 1u);
}

TEST(NanOrigin, ASumWithAMaskPassesItsInfinityOn) {
  // Given  scores and a mask in a module whose only sum in golden adds a number
  const auto search_for = [](double score, double sum) {
    TestRun golden;
    golden.op("attn", "aten.add.Tensor", {{"self", golden.value(DType::Float32, {2}, {3, 4})}},
              R"({"other":5})", golden.value(DType::Float32, {2}, {8, 9}));
    TestRun mine;
    mine.op("attn", "aten.add.Tensor",
            {{"self", mine.value(DType::Float32, {2}, {3, score})},
             {"other", mine.value(DType::Float32, {2}, {0, -kInfinity})}},
            "{}", mine.value(DType::Float32, {2}, {3, sum}));
    return search(golden, mine);
  };
  // Then  the infinity of the mask has no origin there
  EXPECT_TRUE(search_for(4, -kInfinity).findings.empty());
  // and a NaN out of two infinities is made there
  EXPECT_EQ(search_for(kInfinity, NAN).findings.size(), 1u);
}

TEST(NanOrigin, NanOutOfAMovedInfinityIsOne) {
  const NanOrigins found = search_behind_a_mask(/*with_nan=*/true);  // 0 times infinity
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].op_type, "aten.mul.Tensor");
}

TEST(NanOrigin, WithoutGoldenOnlyNanCount) {
  TestRun golden;
  golden.module_output("elsewhere", golden.value(DType::Float32, {1}, {1}));
  TestRun mine;
  fill(mine, kInfinity, kInfinity, NAN);
  const NanOrigins found = search(golden, mine);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "b");
}

TEST(NanOrigin, AModuleAroundTheOriginInherits) {
  const auto fill_nested = [](TestRun& run, double value) {
    run.module_input("m", "0", run.value(DType::Float32, {1}, {1}));
    run.module_input("m.a", "0", run.value(DType::Float32, {1}, {1}));
    run.module_output("m.a", run.value(DType::Float32, {1}, {value}));
    run.module_output("m", run.value(DType::Float32, {1}, {value}));
  };
  TestRun golden;
  fill_nested(golden, 1);
  TestRun mine;
  fill_nested(mine, NAN);
  const NanOrigins found = search(golden, mine);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "m.a");
  EXPECT_EQ(found.inherited.size(), 1u);
}

TEST(NanOrigin, StatisticsAreEnough) {
  TestRun golden;
  fill(golden, 1, 1, 1);
  TestRun mine;
  fill(mine, 1, 1, NAN);
  for (TestRun* run : {&golden, &mine}) {
    for (run::TensorRecord& record : run->run().records) {
      record.stats = stats::compute_stats(run::load_tensor(record)->view);
      record.bytes.reset();
    }
  }
  const NanOrigins found = search(golden, mine);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "b");
}

TEST(NanOrigin, AnOperatorIsNamedWithItsModule) {
  TestRun golden;
  TestRun mine;
  for (TestRun* run : {&golden, &mine}) {
    const test::Value x = run->value(DType::Float32, {1}, {-1});
    run->op("m", "aten.sqrt.default", {{"self", x}}, "{}",
            run->value(DType::Float32, {1}, {run == &mine ? NAN : 1.0}));
  }
  const NanOrigins found = search(golden, mine);
  ASSERT_EQ(found.findings.size(), 1u);
  EXPECT_EQ(found.findings[0].module, "m");
  EXPECT_EQ(found.findings[0].op_type, "aten.sqrt.default");
}

}  // namespace
}  // namespace assay::locate
