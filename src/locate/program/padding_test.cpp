// SPDX-License-Identifier: Apache-2.0
#include "locate/program/padding.hpp"

#include <gmock/gmock.h>

#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using ::testing::ElementsAre;

/// Two sequences of which two tokens are in the cache and three are the step's; the first one is
/// padded by three on the left.
class PaddingOfTwo : public ::testing::Test {
 protected:
  void SetUp() override {
    run_.module_input("", "kwargs.input_ids", run_.value(DType::Int64, {2, 3}, {1, 2, 3, 4, 5, 6}));
    run_.module_input("", "kwargs.attention_mask",
                      run_.value(DType::Int64, {2, 5}, {0, 0, 0, 1, 1, 1, 1, 1, 1, 1}));
    padding_ = Padding(make_program(run_.run(), {}), 0);
  }
  test::TestRun run_;
  Padding padding_;
};

TEST_F(PaddingOfTwo, HoldsTheTokensThatTheMaskHides) {
  EXPECT_FALSE(padding_.holds(0, 1));
  EXPECT_TRUE(padding_.holds(0, 3));
  EXPECT_FALSE(padding_.holds(1, 3));
  EXPECT_FALSE(padding_.holds(0, 6));  // there is none
}

TEST_F(PaddingOfTwo, RowsOfShownTokensInEveryOrderOfAxes) {
  // Of the step's tokens only the first one of the first sequence is hidden.
  const auto of_modules = padding_.shown_rows(Dims{2, 3, 4});
  ASSERT_TRUE(of_modules);
  EXPECT_THAT(of_modules->rows, ElementsAre(1, 2, 3, 4, 5));
  EXPECT_EQ(of_modules->width, 4);
  EXPECT_THAT(padding_.shown_rows(Dims{6, 7})->rows, ElementsAre(1, 2, 3, 4, 5));
  // [sequence, head, token, channel]: rows 0 and 3 are those of two heads.
  const auto of_heads = padding_.shown_rows(Dims{2, 2, 3, 4});
  ASSERT_TRUE(of_heads);
  EXPECT_THAT(of_heads->rows, ElementsAre(1, 2, 4, 5, 6, 7, 8, 9, 10, 11));
  EXPECT_EQ(of_heads->width, 4);
  EXPECT_EQ(padding_.shown_rows(Dims{2, 3, 4, 5})->width, 20);
}

TEST_F(PaddingOfTwo, OtherShapesHaveNoTokens) {
  for (const Dims& shape : {Dims{}, Dims{6}, Dims{5, 4}, Dims{3, 2, 4}})
    EXPECT_FALSE(padding_.shown_rows(shape));
}

TEST(Padding, NothingIsLeftOutWithoutPadding) {
  test::TestRun run;
  run.module_input("", "kwargs.input_ids", run.value(DType::Int64, {1, 2}, {1, 2}));
  EXPECT_FALSE(Padding(make_program(run.run(), {}), 0).shown_rows(Dims{1, 2, 4}));
  // Padding in the cache is no token of the step.
  run.module_input("", "kwargs.attention_mask", run.value(DType::Int64, {1, 4}, {0, 1, 1, 1}));
  EXPECT_FALSE(Padding(make_program(run.run(), {}), 0).shown_rows(Dims{1, 2, 4}));
}

TEST(Padding, AMaskThatHidesEverythingExcusesNothing) {
  test::TestRun run;
  run.module_input("", "kwargs.input_ids", run.value(DType::Int64, {1, 2}, {1, 2}));
  run.module_input("", "kwargs.attention_mask", run.value(DType::Int64, {1, 2}, {0, 0}));
  EXPECT_FALSE(Padding(make_program(run.run(), {}), 0).shown_rows(Dims{1, 2, 4}));
}

TEST(Padding, IsCertainOfOneFillerOrOfDecodedTokensThatAreShown) {
  const auto step = [](test::TestRun& run, const std::vector<double>& ids,
                       const std::vector<double>& mask) {
    const auto of = [](const std::vector<double>& values) {
      return Dims{1, static_cast<int64_t>(values.size())};
    };
    run.module_input("", "kwargs.input_ids", run.value(DType::Int64, of(ids), ids));
    run.module_input("", "kwargs.attention_mask", run.value(DType::Int64, of(mask), mask));
  };
  const auto is_certain = [](test::TestRun& run) {
    return Padding::of_steps(make_program(run.run(), {})).at(0).is_certain();
  };
  // One filler, then three tokens
  test::TestRun filled;
  step(filled, {9, 9, 4, 5, 6}, {0, 0, 1, 1, 1});
  EXPECT_TRUE(is_certain(filled));
  // A text at the zeros: 1 may say that a token is hidden
  test::TestRun text;
  step(text, {7, 8, 9, 9, 9}, {0, 0, 1, 1, 1});
  EXPECT_FALSE(is_certain(text));
  // and a token that was decoded at one tells that it does not, at zero that it does
  for (const double decoded : {0.0, 1.0}) {
    test::TestRun run;
    step(run, {7, 8, 9, 9, 9}, {0, 0, 1, 1, 1});
    run.step = 1;
    step(run, {5}, {0, 0, 1, 1, 1, decoded});
    EXPECT_EQ(is_certain(run), decoded == 1);
  }
}

TEST(Padding, OnlyTheMaskOfTheTokensCounts) {
  test::TestRun run;
  run.module_input("", "kwargs.input_ids", run.value(DType::Int64, {1, 2}, {1, 2}));
  run.module_input("", "kwargs.encoder_attention_mask", run.value(DType::Int64, {1, 2}, {0, 1}));
  EXPECT_FALSE(Padding(make_program(run.run(), {}), 0).shown_rows(Dims{1, 2, 4}));
}

}  // namespace
}  // namespace assay::locate
