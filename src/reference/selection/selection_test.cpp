// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "reference/selection/experts.hpp"
#include "reference/selection/glibc_random.hpp"
#include "reference/selection/indexing.hpp"
#include "reference/selection/reduce.hpp"
#include "reference/selection/sampling.hpp"
#include "tensor/convert.hpp"

namespace assay::reference {
namespace {

Tensor wide(const Dims& shape, std::initializer_list<double> values) {
  Wide array(shape);
  std::copy(values.begin(), values.end(), array.values.begin());
  return to_tensor(std::move(array));
}
Tensor integers(const Dims& shape, std::initializer_list<int64_t> values) {
  Whole array(shape);
  std::copy(values.begin(), values.end(), array.values.begin());
  return to_tensor(std::move(array));
}
template <typename T>
std::vector<T> list(const Array<T>& array) {
  return {array.values.begin(), array.values.end()};
}
std::vector<double> list(const Tensor& tensor) { return list(*widen(tensor.view)); }

TEST(GlibcRandom, GivesTheNumbersOfTheCLibrary) {
  // The library's own generator is the oracle where it is glibc; the published numbers are
  // everywhere.
  GlibcRandom one(1);
  EXPECT_EQ(one.next(), 1804289383u);
  EXPECT_EQ(one.next(), 846930886u);
  EXPECT_EQ(one.next(), 1681692777u);
#ifdef __GLIBC__
  for (const uint32_t seed : {0u, 1u, 42u, 2147483647u, 2147483648u, 4294967295u, 3000000001u}) {
    GlibcRandom ours(seed);
    std::srand(seed);
    for (int i = 0; i < 200; ++i)
      ASSERT_EQ(ours.next(), static_cast<uint32_t>(std::rand())) << seed << " at " << i;
  }
#endif
}

TEST(Cumsum, ExclusiveAndReverse) {
  const Tensor x = wide({2, 3}, {1, 2, 3, 10, 20, 30});
  EXPECT_EQ(list(*cumsum(x.view, 1)), (std::vector<double>{1, 3, 6, 10, 30, 60}));
  EXPECT_EQ(list(*cumsum(x.view, 0)), (std::vector<double>{1, 2, 3, 11, 22, 33}));
  EXPECT_EQ(list(*cumsum(x.view, -1, true)), (std::vector<double>{0, 1, 3, 0, 10, 30}));
  EXPECT_EQ(list(*cumsum(x.view, 1, false, true)), (std::vector<double>{6, 5, 3, 60, 50, 30}));
  EXPECT_EQ(list(*cumsum(x.view, 1, true, true)), (std::vector<double>{5, 3, 0, 50, 30, 0}));
  EXPECT_EQ(cumsum(x.view, 2).error().code, Errc::Invalid);
}

TEST(Reduce, AnyDimensionsAreRemoved) {
  const Tensor x = wide({2, 2, 2}, {1, 2, 3, 4, 50, 60, 70, 80});
  const auto reduced = [&](std::vector<int64_t> axes, Reduction how) {
    return list(*reduce(x.view, how, axes));
  };
  EXPECT_EQ(reduced({0}, Reduction::Sum), (std::vector<double>{51, 62, 73, 84}));
  EXPECT_EQ(reduced({1}, Reduction::Max), (std::vector<double>{3, 4, 70, 80}));
  EXPECT_EQ(reduced({2, 0}, Reduction::Min), (std::vector<double>{1, 3}));
  EXPECT_EQ(reduced({-1}, Reduction::Sum), (std::vector<double>{3, 7, 110, 150}));
  EXPECT_EQ(reduced({}, Reduction::Sum), (std::vector<double>{270}));
}

TEST(Reduce, BlocksOfTheStreamDoNotShow) {
  // Rows longer than the buffer, and rows that end in its middle.
  Wide x(Dims{3, 9001});
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = static_cast<double>(i % 977);
  const Wide copy = x;
  const Tensor tensor = to_tensor(std::move(x));
  const auto rows = list(*reduce(tensor.view, Reduction::Sum, std::vector<int64_t>{1}));
  const auto columns = list(*reduce(tensor.view, Reduction::Sum, std::vector<int64_t>{0}));
  for (size_t row = 0; row < 3; ++row) {
    double sum = 0;
    for (size_t i = 0; i < 9001; ++i) sum += copy.values[row * 9001 + i];
    EXPECT_EQ(rows[row], sum);
  }
  for (size_t i = 0; i < 9001; ++i)
    ASSERT_EQ(columns[i], copy.values[i] + copy.values[9001 + i] + copy.values[18002 + i]);
}

TEST(Reduce, NaNAndNothing) {
  const Tensor x = wide({2, 2}, {NAN, 1, 2, 3});
  EXPECT_TRUE(std::isnan(list(*reduce(x.view, Reduction::Max, std::vector<int64_t>{1}))[0]));
  EXPECT_TRUE(std::isnan(list(*reduce(x.view, Reduction::Min, std::vector<int64_t>{0}))[0]));
  const Tensor none = wide({2, 0}, {});
  EXPECT_EQ(list(*reduce(none.view, Reduction::Sum, std::vector<int64_t>{1})),
            (std::vector<double>{0, 0}));
  EXPECT_EQ(reduce(none.view, Reduction::Max, std::vector<int64_t>{1}).error().code, Errc::Invalid);
  EXPECT_EQ(reduce(x.view, Reduction::Sum, std::vector<int64_t>{1, -1}).error().message,
            "axis -1 is listed twice");
}

TEST(Softmax, RowsAndColumnsGiveTheSame) {
  Wide x(Dims{4, 5});
  Wide transposed(Dims{5, 4});
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 5; ++j)
      x.values[i * 5 + j] = transposed.values[j * 4 + i] =
          std::sin(static_cast<double>(3 * i + j)) * 200;
  }
  const auto rows = softmax(to_tensor(std::move(x)).view, std::vector<int64_t>{1});
  const auto columns = softmax(to_tensor(std::move(transposed)).view, std::vector<int64_t>{0});
  ASSERT_TRUE(rows && columns);
  for (size_t i = 0; i < 4; ++i) {
    double sum = 0;
    for (size_t j = 0; j < 5; ++j) {
      EXPECT_NEAR(rows->values[i * 5 + j], columns->values[j * 4 + i], 1e-15);
      sum += rows->values[i * 5 + j];
    }
    EXPECT_NEAR(sum, 1, 1e-15);
  }
}

TEST(Softmax, SeveralAxesCountAsOne) {
  const auto y = softmax(wide({2, 2}, {0, 0, 0, 0}).view, std::vector<int64_t>{1, 0});
  ASSERT_TRUE(y);
  EXPECT_EQ(list(*y), (std::vector<double>{0.25, 0.25, 0.25, 0.25}));
  EXPECT_EQ(softmax(wide({1, 1, 1}, {0}).view, std::vector<int64_t>{0, 2}).error().message,
            "axes [0, 2] do not follow each other");
}

TEST(TopK, EqualValuesKeepTheirOrderAndNaNComesFirst) {
  const auto top = top_k(wide({2, 4}, {1, 3, 3, 2, -1, NAN, 5, -1}).view, 3);
  ASSERT_TRUE(top);
  EXPECT_EQ(list(top->indices), (std::vector<int64_t>{1, 2, 3, 1, 2, 0}));
  EXPECT_EQ(top->values.values[0], 3);
  EXPECT_TRUE(std::isnan(top->values.values[3]));
  EXPECT_EQ(top_k(wide({2}, {1, 2}).view, 3).error().message, "the 3 largest of 2 values");
}

TEST(TopK, AFewOfManyEqualTheHeadOfAll) {
  Wide x(Dims{1, 1000});
  for (size_t i = 0; i < 1000; ++i) x.values[i] = static_cast<double>((i * 7919) % 250);
  const Tensor tensor = to_tensor(std::move(x));
  const auto few = top_k(tensor.view, 20);
  const auto all = top_k(tensor.view, 1000);
  ASSERT_TRUE(few && all);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(few->indices.values[i], all->indices.values[i]);
}

TEST(Nonzero, CoordinatesThenZeros) {
  const auto found = nonzero(integers({2, 2}, {0, 5, 0, -1}).view);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->count, 2);
  EXPECT_EQ(list(found->indices), (std::vector<int64_t>{0, 1, 0, 0, 1, 1, 0, 0}));
}

TEST(OneHot, TheNewAxisMayStandAnywhere) {
  const Tensor x = integers({2}, {2, 9});
  EXPECT_EQ(list(*one_hot(x.view, 3, 7, 1)), (std::vector<int64_t>{1, 1, 7, 1, 1, 1}));
  const auto front = one_hot(x.view, 3, 1, 0, 0);
  ASSERT_TRUE(front);
  EXPECT_EQ(front->shape, (Dims{3, 2}));
  EXPECT_EQ(list(*front), (std::vector<int64_t>{0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(one_hot(x.view, -1).error().code, Errc::Invalid);
}

TEST(IndexAdd, InOrderWithRepeatedIndices) {
  const Tensor var = wide({3, 2}, {1, 1, 1, 1, 1, 1});
  const Tensor updates = wide({2, 2}, {1, 2, 3, 4});
  const Tensor indices = integers({2}, {2, 2});
  EXPECT_EQ(list(*index_add(var.view, 0, indices.view, updates.view, 0.5)),
            (std::vector<double>{1, 1, 1, 1, 3, 4}));
  EXPECT_EQ(list(*index_add(var.view, 0, indices.view, updates.view, 1, 1)),
            (std::vector<double>{1, 1, 1, 1, 2, 3}));
  EXPECT_EQ(index_add(var.view, 0, integers({2}, {0, 3}).view, updates.view).error().message,
            "index 3 of 3");
  EXPECT_EQ(index_add(var.view, 1, indices.view, updates.view).error().message,
            "updates have shape [2, 2], [3, 2] expected");
}

TEST(Gating, SortsEntriesByExpert) {
  // Two experts a token: entries 0 and 1 belong to token 0.
  const Tensor experts = integers({4}, {2, 0, 1, 2});
  const Tensor numbers = integers({4}, {0, 1, 2, 3});
  const auto all = gating(experts.view, numbers.view, {.topk_expert_num = 2, .expert_count = 3});
  ASSERT_TRUE(all);
  EXPECT_EQ(list(all->original_index), (std::vector<int64_t>{1, 2, 0, 3}));
  EXPECT_EQ(list(all->token_index), (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(list(all->cumulative), (std::vector<int64_t>{1, 2, 4}));
  const auto some = gating(experts.view, numbers.view,
                           {.topk_expert_num = 2, .expert_count = 3, .device_experts = {2, 0}});
  ASSERT_TRUE(some);
  EXPECT_EQ(list(some->original_index), (std::vector<int64_t>{1, 0, 3, 0}));
  EXPECT_EQ(list(some->cumulative), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(some->valid, 3);
  EXPECT_EQ(
      gating(experts.view, numbers.view, {.topk_expert_num = 1, .expert_count = 2}).error().message,
      "expert 2 of 2");
}

TEST(Multinomial, FirstSumAboveTheNumber) {
  // Sums 0.125, 0.375, 1.
  const Tensor probs = wide({1, 3}, {0.125, 0.25, 0.625});
  const auto choices = multinomial(probs.view, std::vector<double>{0.0, 0.125, 0.2, 0.9, 1.0});
  ASSERT_TRUE(choices);
  std::vector<int64_t> places;
  for (const Choice& choice : *choices) places.push_back(choice.place);
  EXPECT_EQ(places, (std::vector<int64_t>{0, 1, 1, 2, 0}));
  EXPECT_EQ((*choices)[1].ties, (std::vector<int64_t>{0}));  // 0.125 is not above 0.125, only just
  EXPECT_TRUE((*choices)[2].ties.empty());
}

TEST(SampleNucleus, KeepsTheHeadBelowTopP) {
  // Sorted 0.5 0.25 0.15 0.1; sums 0.5 0.75 0.9 1.0; top p 0.8 keeps places 0 and 1.
  NucleusInput input;
  input.sorted = *top_k(wide({1, 4}, {0.1, 0.5, 0.15, 0.25}).view, 4);
  input.top_p = {0.8};
  const auto low = sample_nucleus(input, std::vector<double>{0.5}, true);   // v = 0.375
  const auto high = sample_nucleus(input, std::vector<double>{0.9}, true);  // v = 0.675
  ASSERT_TRUE(low && high);
  EXPECT_EQ(low->choices[0].place, 0);
  EXPECT_EQ(high->choices[0].place, 1);
  EXPECT_EQ(low->last[0].place, 1);
  EXPECT_TRUE(high->choices[0].ties.empty());
  const int64_t last = 1;
  const auto logs = nucleus_log_probs(input, low->cumulative, std::span(&last, 1), 3);
  ASSERT_TRUE(logs);
  EXPECT_NEAR(logs->values[0], std::log(0.5 / 0.75), 1e-15);
  EXPECT_EQ(logs->values[2], -9999);
}

TEST(SampleNucleus, TopKIsAPlaceThatStays) {
  NucleusInput input;
  input.sorted = *top_k(wide({1, 4}, {0.4, 0.3, 0.2, 0.1}).view, 4);
  input.top_p = {1.0};
  input.top_k = {1};
  const auto sample = sample_nucleus(input, std::vector<double>{0.99}, false);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->cumulative.values[3], sample->cumulative.values[1]);
  EXPECT_EQ(sample->choices[0].place, 1);
  input.top_k = {4};
  EXPECT_EQ(sample_nucleus(input, std::vector<double>{0.5}, false).error().message,
            "top k 4 of 4 values");
}

TEST(SampleNucleus, SumsCloseToTheTargetAreTies) {
  NucleusInput input;
  input.sorted = *top_k(wide({1, 3}, {0.5, 0.3, 0.2}).view, 3);
  input.top_p = {2.0};  // keeps everything: v = r
  const auto sample = sample_nucleus(input, std::vector<double>{0.5 - 0x1p-12}, false);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->choices[0].place, 0);
  EXPECT_EQ(sample->choices[0].ties, std::vector<int64_t>{1});
}

TEST(SampleNucleusExponential, LargestQuotientOfTheKept) {
  NucleusInput input;
  input.sorted = *top_k(wide({1, 3}, {0.5, 0.3, 0.2}).view, 3);
  input.top_p = {0.9};
  const auto sample = sample_nucleus_exponential(input, wide({1, 3}, {1, 0.1, 0.001}).view);
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->choices[0].place, 1);  // 200 would win, but 1.0 > 0.9 drops it
  EXPECT_EQ(sample->last[0].place, 1);
  input.top_p = {0.1};
  EXPECT_EQ(sample_nucleus_exponential(input, wide({1, 3}, {1, 0.1, 0.1}).view)->choices[0].place,
            0);
}

TEST(GroupTopK, LosersAreZero) {
  const Tensor x = wide({1, 6}, {5, 1, 4, 4, 3, 3});
  EXPECT_EQ(list(*group_top_k(x, 3, 1)), (std::vector<double>{5, 1, 0, 0, 0, 0}));
  EXPECT_EQ(list(*group_top_k(x, 3, 1, 2)), (std::vector<double>{0, 0, 4, 4, 0, 0}));
  EXPECT_EQ(group_top_k(x, 4, 1).error().message, "4 groups of 6 experts");
  EXPECT_EQ(group_top_k(wide({1, 2}, {NAN, 1}), 1, 1).error().message, "scores hold NaN");
}

TEST(RouteToExperts, WeightsAreGatesOfTheChosen) {
  const Tensor x = wide({1, 4}, {0, 2, -1, 1});
  const Tensor bias = wide({4}, {1, 0, 0, 0});
  const auto routing = route_to_experts(x.view, bias.view,
                                        {.groups = 2, .group_top_k = 1, .top_k = 2, .scale = 2.5});
  ASSERT_TRUE(routing);
  EXPECT_EQ(list(routing->experts), (std::vector<int64_t>{0, 1}));  // 1.5 and 0.88; group 1 lost
  const double a = 0.5;
  const double b = 1 / (1 + std::exp(-2.0));
  EXPECT_NEAR(routing->weights.values[0], 2.5 * a / (a + b), 1e-15);
  EXPECT_NEAR(routing->weights.values[1], 2.5 * b / (a + b), 1e-15);
}

}  // namespace
}  // namespace assay::reference
