// SPDX-License-Identifier: Apache-2.0
#include "repeat/repetition.hpp"

#include <gtest/gtest.h>

#include "locate/program/test_program.hpp"
#include "repeat/outcome.hpp"
#include "run/load.hpp"

namespace assay::repeat {
namespace {

using locate::test::TestRun;
using locate::test::Value;

/// The run with a digest in every record.
std::shared_ptr<const run::Run> digested(TestRun& test) {
  run::Run run = test.run();
  for (run::TensorRecord& record : run.records)
    record.digest = stats::digest(run::load_tensor(record)->view);
  return std::make_shared<const run::Run>(std::move(run));
}

/// y = x w in two layers of one element each, then a sum of both. What a run computes otherwise is
/// given: the weight, and what the multiplication of layer 1 adds.
std::shared_ptr<const run::Run> small_run(TestRun& test, double added = 0, double weight = 2,
                                          const char* operation = "aten.mul.Tensor",
                                          const char* arguments = "{}") {
  const Value x = test.value(DType::Float32, {1}, {3});
  const Value w = test.leaf("w", DType::Float32, {1}, {weight});
  const Value first = test.op("layers.0", operation, {{"self", x}, {"other", w}}, arguments,
                              test.value(DType::Float32, {1}, {3 * weight}));
  const double second = 3 * weight * weight + added;
  const Value last = test.op("layers.1", operation, {{"self", first}, {"other", w}}, arguments,
                             test.value(DType::Float32, {1}, {second}));
  test.op("", "aten.neg.default", {{"self", last}}, "{}",
          test.value(DType::Float32, {1}, {-second}));
  return digested(test);
}

TEST(Repetition, EqualRunsRepeat) {
  TestRun a;
  TestRun b;
  Repetition runs(small_run(a));
  EXPECT_TRUE(runs.add(small_run(b), 1));
  EXPECT_EQ(runs.findings().size(), 0);
  EXPECT_EQ(runs.operator_count(), 3);
  EXPECT_EQ(runs.unseen_count(), 0);
}

TEST(Repetition, NamesTheOperatorWhoseInputsAreEqualAndNotThoseBehindIt) {
  TestRun a, b, c, d;
  Repetition runs(small_run(a));
  EXPECT_FALSE(runs.add(small_run(b, 0.5), 1));
  EXPECT_TRUE(runs.add(small_run(c), 2));
  EXPECT_FALSE(runs.add(small_run(d, 0.25), 3));
  const std::vector<Finding> found = runs.findings();
  ASSERT_EQ(found.size(), 1);
  EXPECT_EQ(found[0].difference.cause, Cause::Operator);
  EXPECT_EQ(found[0].difference.place.node, "layers.1::aten.mul.Tensor.0");
  EXPECT_EQ(found[0].runs, (std::vector<size_t>{1, 3}));
  EXPECT_EQ(found[0].results, 2);
}

TEST(Repetition, TheGridSaysOfEveryOperatorWhatBecameOfItInEachRun) {
  TestRun a, b, c;
  Repetition runs(small_run(a));
  const std::shared_ptr<const run::Run> different = small_run(b, 0.5);
  runs.add(different, 1);
  runs.add(small_run(c), 2);
  ASSERT_EQ(runs.grid().size(), 2);
  using enum State;
  EXPECT_EQ(runs.grid()[0].number, 1);
  EXPECT_EQ(*runs.grid()[0].states, (std::vector<State>{Same, Origin, Inherited}));
  EXPECT_EQ(*runs.grid()[1].states, (std::vector<State>{Same, Same, Same}));
  EXPECT_EQ(runs.left_out(), 0);
  EXPECT_EQ(runs.different_run(), different);
}

TEST(Repetition, TheGridEndsAtItsNumberOfDifferentRuns) {
  std::vector<TestRun> tests(kGridRuns + 3);
  Repetition runs(small_run(tests[0]));
  for (size_t i = 1; i < tests.size(); ++i) runs.add(small_run(tests[i], 0.5), i);
  EXPECT_EQ(runs.grid().size(), kGridRuns);
  EXPECT_EQ(runs.left_out(), 2);
  EXPECT_EQ(runs.findings().front().runs.size(), kGridRuns + 2);
}

TEST(Repetition, AWeightThatIsAnotherOneIsNamedOnceAndNoOperatorIs) {
  TestRun a;
  TestRun b;
  Repetition runs(small_run(a));
  EXPECT_FALSE(runs.add(small_run(b, 0, 5), 1));
  const std::vector<Finding> found = runs.findings();
  ASSERT_FALSE(found.empty());
  for (const Finding& one : found) EXPECT_EQ(one.difference.cause, Cause::Weight);
  EXPECT_EQ(found[0].difference.leaf, "w");
}

TEST(Repetition, OtherArgumentsAreOtherInputs) {
  TestRun a;
  TestRun b;
  Repetition runs(small_run(a, 0, 2, "aten.mul.Tensor", R"({"alpha":1})"));
  EXPECT_FALSE(runs.add(small_run(b, 0.5, 2, "aten.mul.Tensor", R"({"alpha":2})"), 1));
  for (const Finding& one : runs.findings()) EXPECT_NE(one.difference.cause, Cause::Operator);
}

TEST(Repetition, RandomOperatorsAreToldApart) {
  TestRun a;
  TestRun b;
  Repetition runs(small_run(a, 0, 2, "aten.native_dropout.default"));
  runs.add(small_run(b, 0.5, 2, "aten.native_dropout.default"), 1);
  ASSERT_EQ(runs.findings().size(), 1);
  EXPECT_EQ(runs.findings()[0].difference.cause, Cause::Random);
}

TEST(Repetition, AttentionThatDropsIsRandomAndOneThatDoesNotIsNot) {
  constexpr const char* kAttention = "aten._scaled_dot_product_flash_attention_for_cpu.default";
  for (const bool drops : {false, true}) {
    TestRun a;
    TestRun b;
    const char* arguments = drops ? R"({"dropout_p":0.1})" : R"({"dropout_p":0.0})";
    Repetition runs(small_run(a, 0, 2, kAttention, arguments));
    runs.add(small_run(b, 0.5, 2, kAttention, arguments), 1);
    ASSERT_EQ(runs.findings().size(), 1);
    EXPECT_EQ(runs.findings()[0].difference.cause, drops ? Cause::Random : Cause::Operator);
  }
}

/// `filled` is written over what empty() left, or read as it is.
std::shared_ptr<const run::Run> uninitialised(TestRun& test, double rubbish, bool is_filled) {
  const Value memory =
      test.op("", "aten.empty.memory_format", {}, "{}", test.value(DType::Float32, {1}, {rubbish}));
  if (is_filled) {
    test.op("", "aten.fill_.Scalar", {{"self", memory}}, R"({"value":1})",
            test.value(DType::Float32, {1}, {1}));
    run::Run& run = test.run();
    run.operations.back().writes = {"self"};
  } else {
    test.op("", "aten.neg.default", {{"self", memory}}, "{}",
            test.value(DType::Float32, {1}, {-rubbish}));
  }
  return digested(test);
}

TEST(Repetition, MemoryThatNobodyWroteIsNamedWhenItIsReadAndNotWhenItIsFilled) {
  TestRun a, b, c, d;
  Repetition filled(uninitialised(a, 3, true));
  EXPECT_TRUE(filled.add(uninitialised(b, 4, true), 1));
  Repetition read(uninitialised(c, 3, false));
  EXPECT_FALSE(read.add(uninitialised(d, 4, false), 1));
  ASSERT_EQ(read.findings().size(), 1);
  EXPECT_EQ(read.findings()[0].difference.cause, Cause::Uninitialised);
  EXPECT_EQ(read.findings()[0].difference.place.node, "::aten.neg.default.0");
}

TEST(Repetition, ARunWithOtherOperatorsIsNoEqualOne) {
  TestRun a;
  TestRun b;
  Repetition runs(small_run(a));
  const Value x = b.value(DType::Float32, {1}, {3});
  b.op("", "aten.abs.default", {{"self", x}}, "{}", b.value(DType::Float32, {1}, {3}));
  EXPECT_FALSE(runs.add(digested(b), 1));
  EXPECT_EQ(runs.findings()[0].difference.cause, Cause::OtherOperators);
}

TEST(Repetition, LikePlacesOfAllLayersAreOneLine) {
  std::vector<Finding> findings(3);
  const char* const modules[] = {"model.layers.0.mlp", "model.layers.7.mlp", "model.norm"};
  for (size_t i = 0; i < 3; ++i) {
    findings[i].difference.place.module = modules[i];
    findings[i].difference.place.operation = "aten.mm.default";
    findings[i].runs = {i};
  }
  const std::vector<Alike> groups = alike(findings);
  ASSERT_EQ(groups.size(), 2);
  EXPECT_EQ(groups[0].pattern, "model.layers.*.mlp");
  EXPECT_EQ(groups[0].places, 2);
  EXPECT_EQ(groups[0].runs, (std::vector<size_t>{0, 1}));
  EXPECT_EQ(groups[1].pattern, "model.norm");
}

/// The sum of `values`, of which `result` is what a run made.
std::shared_ptr<const run::Run> sum_run(TestRun& test, const std::vector<double>& values,
                                        double result, const char* name = "aten.sum.default") {
  const Value x = test.value(DType::Float32, {static_cast<int64_t>(values.size())}, values);
  test.op("m", name, {{"self", x}}, "{}", test.value(DType::Float32, {}, {result}));
  return digested(test);
}

std::optional<Elements> elements_of(double first, double other, const char* name) {
  // The exact sum is 8.5; one ULP of float32 there is 2^-20.
  const std::vector<double> values = {1, 2, 5.5};
  TestRun a;
  TestRun b;
  const auto golden = sum_run(a, values, first, name);
  const auto mine = sum_run(b, values, other, name);
  Repetition runs(golden);
  runs.add(mine, 1);
  const Place place = runs.first().place_of(0);
  return compare_elements(*golden, *mine, place, {}).value();
}

TEST(CompareElements, TwoResultsWithinRoundingAreAReordering) {
  const auto found = elements_of(8.5, 8.5 + 0x1p-20, "aten.sum.default");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Kind::Reordering);
  EXPECT_EQ(found->different, 1);
  EXPECT_EQ(found->largest_ulp, 1);
}

TEST(CompareElements, AResultBeyondRoundingIsWrongAndItsRunIsSaid) {
  const auto found = elements_of(8.5, 8.75, "aten.sum.default");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->kind, Kind::WrongElement);
  EXPECT_EQ(found->wrong_side, 1);
  EXPECT_EQ(found->largest_ulp, 0.25 * 0x1p20);
  EXPECT_EQ(elements_of(8.75, 8.5, "aten.sum.default")->wrong_side, 0);
}

TEST(CompareElements, WithoutAReferenceTheSizeOfTheDifferenceDecides) {
  EXPECT_EQ(elements_of(8.5, 8.5 + 0x1p-20, "my.sum.default")->kind, Kind::LooksReordered);
  EXPECT_EQ(elements_of(8.5, 8.75, "my.sum.default")->kind, Kind::LooksWrong);
}

TEST(CompareElements, EqualResultsAreNoAnswer) {
  EXPECT_FALSE(elements_of(8.5, 8.5, "aten.sum.default"));
}

}  // namespace
}  // namespace assay::repeat
