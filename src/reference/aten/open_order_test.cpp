// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>

#include "reference/aten/selection.hpp"

namespace assay::reference::aten {
namespace {

Tensor reals(const Dims& shape, std::initializer_list<double> values) {
  Wide wide(shape);
  std::copy(values.begin(), values.end(), wide.values.begin());
  return to_tensor(std::move(wide));
}
Tensor places(const Dims& shape, std::initializer_list<int64_t> values) {
  Whole wholes(shape);
  std::copy(values.begin(), values.end(), wholes.values.begin());
  return to_tensor(std::move(wholes));
}

/// Output `output` of the call, captured as `mine`.
bool accepts(const Call& call, size_t output, const Tensor& mine) {
  return indices_select_same_values(call, evaluate(call).value(), output, mine.view).value();
}

TEST(OpenOrder, PlacesOfEqualValuesMayBeAny) {
  const Tensor x = reals({1, 4}, {2, 5, 5, 1});
  const Call topk{"aten.topk.default", {{"self", {x}}, {"k", {int64_t{2}}}}};
  EXPECT_TRUE(accepts(topk, 1, places({1, 2}, {1, 2})));
  EXPECT_TRUE(accepts(topk, 1, places({1, 2}, {2, 1})));
  EXPECT_FALSE(accepts(topk, 1, places({1, 2}, {1, 1}))) << "a place twice";
  EXPECT_FALSE(accepts(topk, 1, places({1, 2}, {1, 0}))) << "another value";
  EXPECT_FALSE(accepts(topk, 1, places({1, 2}, {1, 4}))) << "a place that is not there";
  EXPECT_FALSE(accepts(topk, 1, places({1, 2}, {-3, 2}))) << "no place from behind";
  EXPECT_FALSE(accepts(topk, 1, places({2}, {1, 2}))) << "another shape";
  EXPECT_TRUE(accepts(topk, 0, reals({1, 2}, {5, 5})));
  EXPECT_FALSE(accepts(topk, 0, reals({1, 2}, {5, 2})));

  const Call argmax{"aten.argmax.default", {{"self", {x}}}};
  EXPECT_TRUE(accepts(argmax, 0, places({}, {2})));
  EXPECT_FALSE(accepts(argmax, 0, places({}, {0})));
}

TEST(OpenOrder, ResultsThatAreNotSortedMayComeInAnyOrder) {
  const Tensor x = reals({2, 3}, {3, 1, 2, 7, 9, 8});
  const Call call{"aten.topk.default", {{"self", {x}}, {"k", {int64_t{2}}}, {"sorted", {false}}}};
  EXPECT_TRUE(accepts(call, 0, reals({2, 2}, {2, 3, 9, 8})));
  EXPECT_TRUE(accepts(call, 1, places({2, 2}, {2, 0, 2, 1})));
  EXPECT_FALSE(accepts(call, 1, places({2, 2}, {2, 0, 0, 1})));
  const Call sorted{"aten.topk.default", {{"self", {x}}, {"k", {int64_t{2}}}}};
  EXPECT_FALSE(accepts(sorted, 1, places({2, 2}, {2, 0, 2, 1})));
}

TEST(OpenOrder, HoldsAlongAnyDimension) {
  // Columns (1, 1), (2, 0), (NaN, NaN): each sorted downwards.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = reals({2, 3}, {1, 2, nan, 1, 0, nan});
  const Call sort{"aten.sort.default", {{"self", {x}}, {"dim", {int64_t{0}}}}};
  EXPECT_TRUE(accepts(sort, 1, places({2, 3}, {1, 1, 1, 0, 0, 0})));
  EXPECT_FALSE(accepts(sort, 1, places({2, 3}, {1, 0, 1, 0, 1, 0})));
  const Call max{"aten.max.dim", {{"self", {x}}, {"dim", {int64_t{0}}}}};
  EXPECT_TRUE(accepts(max, 1, places({3}, {1, 0, 1})));
  EXPECT_FALSE(accepts(max, 1, places({3}, {1, 1, 1})));
  const Call kept{"aten.argmax.default",
                  {{"self", {x}}, {"dim", {int64_t{0}}}, {"keepdim", {true}}}};
  EXPECT_TRUE(accepts(kept, 0, places({1, 3}, {1, 0, 1})));
  EXPECT_FALSE(accepts(kept, 0, places({1, 3}, {1, 1, 0})));
}

TEST(OpenOrder, IsNotThatOfOtherOverloads) {
  EXPECT_TRUE(has_open_order("aten.topk.values"));
  EXPECT_TRUE(has_open_order("aten.max.dim_max"));
  EXPECT_FALSE(has_open_order("aten.max.default"));
  EXPECT_FALSE(has_open_order("aten.max.other"));
  EXPECT_FALSE(has_open_order("aten.mm.default"));
  EXPECT_FALSE(has_open_order("topk"));
}

}  // namespace
}  // namespace assay::reference::aten
