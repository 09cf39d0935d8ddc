// SPDX-License-Identifier: Apache-2.0
#include "locate/replay/close_choices.hpp"

#include <gtest/gtest.h>

namespace assay::locate {
namespace {

using Row = Choice::Row;
using Values = std::vector<double>;
using Places = std::vector<int64_t>;

Tensor reals(const Dims& shape, const Values& values) {
  reference::Wide wide(shape);
  std::copy(values.begin(), values.end(), wide.values.begin());
  return reference::to_tensor(std::move(wide));
}
Tensor integers(const Dims& shape, const Places& values) {
  reference::Whole whole(shape);
  std::copy(values.begin(), values.end(), whole.values.begin());
  return reference::to_tensor(std::move(whole));
}

/// The two largest of four scores in each of three rows, whose noise is 0.01 (scores may be 0.02
/// apart and change places).
std::optional<Choice> two_of_four(const Values& scores, const Places& taken) {
  Values noisy = scores;
  for (double& value : noisy) value += 0.01;
  reference::aten::Call call;
  call.name = "aten.topk.default";
  call.arguments["k"] = {int64_t{2}};
  return close_choice(call, reals({3, 4}, scores).view, reals({3, 4}, noisy).view,
                      integers({3, 2}, taken).view)
      .value();
}

const Values kScores = {0.9, 0.5, 0.1,  0.2,     // far apart
                        0.9, 0.5, 0.49, 0.1,     // the second and the third are not
                        0.9, 0.5, 0.49, 0.495};  // nor the fourth
const Places kTaken = {0, 1, 0, 1, 0, 1};

TEST(CloseChoice, TellsWhichRowsAreOpen) {
  const std::optional<Choice> choice = two_of_four(kScores, kTaken);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->rows, (std::vector{Row::Settled, Row::Swap, Row::Open}));
  // Two that are taken and are as close may come in either order, which shows where each has a
  // place of its own.
  const Choice order =
      *two_of_four({0.5, 0.5, 0.1, 0.2, 0.9, 0.5, 0.1, 0, 0.5, 0.5, 0.49, 0}, kTaken);
  EXPECT_EQ(order.rows, (std::vector{Row::Settled, Row::Settled, Row::Open}));
  EXPECT_EQ(order.order_open, (std::vector{true, false, true}));
  EXPECT_EQ(tokens_of({order}, {3, 16}), order.rows);
  EXPECT_EQ(tokens_of({order}, {3, 2, 16}), (std::vector{Row::Open, Row::Settled, Row::Open}));
  EXPECT_TRUE(two_of_four({0.5, 0.5, 0, 0.2, 0.9, 0.5, 0.1, 0, 0.9, 0.5, 0.1, 0}, kTaken))
      << "an open order is enough";
  EXPECT_FALSE(two_of_four({4, 3, 2, 1, 4, 3, 2, 1, 4, 3, 2, 1}, kTaken));
}

TEST(CloseChoice, TakesTheRunnerUpWhereOnlyThatIsOpen) {
  const Tensor places = with_runners_up(*two_of_four(kScores, kTaken));
  const reference::Whole whole = reference::whole(places.view).value();
  EXPECT_EQ(Places(whole.values.begin(), whole.values.end()), (Places{0, 1, 0, 2, 0, 1}));
  const Tensor scores = scores_at(reals({3, 4}, kScores).view, places.view).value();
  const reference::Wide wide = reference::widen(scores.view).value();
  EXPECT_EQ(Values(wide.values.begin(), wide.values.end()),
            (Values{0.9, 0.5, 0.9, 0.49, 0.9, 0.5}));
}

TEST(CloseChoice, ExcusesPlacesByTheirScores) {
  const Choice choice = *two_of_four(kScores, kTaken);
  const auto could = [&](const Places& mine) {
    return could_be_taken(choice, integers({3, 2}, mine).view);
  };
  EXPECT_TRUE(could({0, 1, 0, 2, 0, 3}));
  EXPECT_FALSE(could({0, 1, 0, 3, 0, 1})) << "0.1 is not 0.5";
  EXPECT_FALSE(could({1, 0, 0, 1, 0, 1})) << "the order counts";
  EXPECT_FALSE(could({0, 1, 0, 1, 1, 1})) << "no place twice";
  EXPECT_FALSE(could({0, 1, 0, 1, 0, 4})) << "no place outside";
}

TEST(CloseChoice, TheNoiseOfALargeScoreExcusesNoSmallOne) {
  // given probabilities, each off by a 500th of itself: the largest by as much as the others differ
  const Values scores = {0.97, 0.018, 0.0175, 0.01, 0.97, 0.018, 0.01795, 0.01};
  Values noisy = scores;
  for (double& value : noisy) value *= 1.002;
  reference::aten::Call call{"aten.topk.default", {{"k", {int64_t{2}}}}};
  const std::optional<Choice> choice =
      close_choice(call, reals({2, 4}, scores).view, reals({2, 4}, noisy).view,
                   integers({2, 2}, {0, 1, 0, 1}).view)
          .value();
  // then 0.018 and 0.0175 are three percent apart, 0.01795 is a third of one
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->rows, (std::vector{Row::Settled, Row::Swap}));
  EXPECT_TRUE(could_be_taken(*choice, integers({2, 2}, {0, 1, 0, 2}).view));
  EXPECT_FALSE(could_be_taken(*choice, integers({2, 2}, {0, 2, 0, 1}).view));
  // and of no rows nothing is chosen
  EXPECT_FALSE(
      close_choice(call, reals({0, 4}, {}).view, reals({0, 4}, {}).view, integers({0, 2}, {}).view)
          .value());
}

TEST(CloseChoice, TakesTheOrderOfASetInRowsThatHoldTheSame) {
  const Tensor places = integers({2, 3}, {4, 2, 7, 4, 2, 7});
  const auto [ordered, all] =
      in_order_of(places.view, integers({2, 3}, {7, 4, 2, 7, 7, 2}).view).value();
  const auto values = reference::whole(ordered.view)->values;
  EXPECT_EQ(Places(values.begin(), values.end()), (Places{7, 4, 2, 4, 2, 7}));
  EXPECT_FALSE(all);
  EXPECT_TRUE(in_order_of(places.view, integers({2, 3}, {7, 4, 2, 4, 2, 7}).view)->second);
}

TEST(CloseChoice, FindsItsRowsInOtherTensors) {
  const std::vector<Choice> choices{*two_of_four(kScores, kTaken)};
  const std::vector rows{Row::Settled, Row::Swap, Row::Open};
  EXPECT_EQ(tokens_of(choices, {3, 16}), rows);
  EXPECT_EQ(tokens_of(choices, {1, 3, 16}), rows);
  EXPECT_EQ(tokens_of(choices, {3, 2, 16}), rows);
  EXPECT_FALSE(tokens_of(choices, {5, 16}));
  EXPECT_FALSE(tokens_of(choices, {3}));
}

TEST(CloseChoice, ComparesEachTokenWithTheNearerReplica) {
  const auto pair = [](const Values& values) {
    return Replica{reals({3, 1}, values), reals({3, 1}, values)};
  };
  const Tensor mine = reals({3, 1}, {1, 20, 3});
  const std::vector rows{Row::Settled, Row::Swap, Row::Open};
  const auto rows_of = [&](bool with_open) {
    const Compared some =
        compared_tokens(mine, pair({1, 2, 3}), pair({10, 20, 30}), rows, with_open).value();
    const reference::Wide wide = reference::widen(some.golden.reference.view).value();
    return Values(wide.values.begin(), wide.values.end());
  };
  EXPECT_EQ(rows_of(true), (Values{1, 20, 3}));
  EXPECT_EQ(rows_of(false), (Values{1, 20}));
}

}  // namespace
}  // namespace assay::locate
