// SPDX-License-Identifier: Apache-2.0
#include "pair/permutation.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "pair/nearest_points.hpp"

namespace assay::pair {
namespace {

using Floats = std::vector<float>;
using Order = std::vector<int64_t>;

Floats random_floats(size_t count, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

TensorView view_of(const Floats& values, const Dims& shape) {
  return *make_view(DType::Float32, shape, std::as_bytes(std::span(values)));
}

Order random_order(int64_t count, std::mt19937& random) {
  Order order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::shuffle(order.begin(), order.end(), random);
  return order;
}

// mine[r, order[i]] = golden[r, i], with relative noise.
Floats scattered(const Floats& golden, const Order& order, float noise, std::mt19937& random) {
  std::normal_distribution<float> normal(0, noise);
  const size_t columns = order.size();
  Floats mine(golden.size());
  for (size_t row = 0; row < golden.size() / columns; ++row) {
    for (size_t i = 0; i < columns; ++i) {
      const float value = golden[row * columns + i];
      mine[row * columns + static_cast<size_t>(order[i])] = value * (1 + normal(random));
    }
  }
  return mine;
}

TEST(FindPermutation, FindsTheOrderOfColumns) {
  // 5 rows are matched as they are, 300 by their projections; noise of half precision.
  std::mt19937 random(1);
  for (const int64_t rows : {5, 300}) {
    const Order order = random_order(256, random);
    const Floats golden = random_floats(static_cast<size_t>(rows) * 256, random);
    const Floats mine = scattered(golden, order, 2e-3F, random);
    const auto found =
        find_permutation(view_of(golden, {1, rows, 256}), view_of(mine, {1, rows, 256}));
    ASSERT_TRUE(found) << rows;
    EXPECT_EQ(*found, order);
  }
}

TEST(FindPermutation, FindsTheOrderAlongAnotherAxis) {
  // Heads of [batch, heads, tokens, width] in another order.
  std::mt19937 random(2);
  const Floats golden = random_floats(4 * 3 * 5, random);
  const Order order = {2, 0, 3, 1};
  Floats mine(golden.size());
  for (size_t head = 0; head < 4; ++head) {
    std::copy_n(golden.begin() + static_cast<std::ptrdiff_t>(head * 15), 15,
                mine.begin() + static_cast<std::ptrdiff_t>(order[head] * 15));
  }
  const Dims shape{1, 4, 3, 5};
  EXPECT_EQ(find_permutation(view_of(golden, shape), view_of(mine, shape), 1), order);
  EXPECT_EQ(find_permutation(view_of(golden, shape), view_of(mine, shape), -1), std::nullopt);
}

TEST(FindPermutation, ExchangesEqualColumnsFreely) {
  // Half the units are dead: their columns are all 0.
  std::mt19937 random(3);
  constexpr size_t columns = 64;
  Floats golden = random_floats(20 * columns, random);
  for (size_t i = 0; i < golden.size(); ++i) {
    if (i % columns % 2 == 0) golden[i] = 0;
  }
  const Order order = random_order(columns, random);
  const Floats mine = scattered(golden, order, 1e-3F, random);
  const auto found = find_permutation(view_of(golden, {20, columns}), view_of(mine, {20, columns}));
  ASSERT_TRUE(found);
  Order sorted = *found;
  std::sort(sorted.begin(), sorted.end());
  for (size_t i = 0; i < columns; ++i) {
    EXPECT_EQ(sorted[i], static_cast<int64_t>(i));  // a bijection
    if (i % 2 == 1) {
      EXPECT_EQ((*found)[i], order[i]);
    }
  }
}

TEST(FindPermutation, RefusesWhatIsNotPermuted) {
  std::mt19937 random(4);
  const Floats golden = random_floats(8 * 128, random);
  const Dims shape{8, 128};
  const auto found = [&](const Floats& mine) {
    return find_permutation(view_of(golden, shape), view_of(mine, shape)).has_value();
  };
  EXPECT_FALSE(found(golden));                                // equal as it is
  EXPECT_FALSE(found(random_floats(golden.size(), random)));  // another tensor
  Floats damaged = scattered(golden, random_order(128, random), 0, random);
  for (size_t i = 0; i < damaged.size(); i += 3) damaged[i] = 0;
  EXPECT_FALSE(found(damaged));
  EXPECT_FALSE(found(Floats(golden.size(), 0)));
}

TEST(FindPermutation, RefusesOrdersThatChanceExplains) {
  // One row of 4096 values: sorting both sides makes any two such rows nearly equal.
  std::mt19937 random(5);
  const Floats golden = random_floats(4096, random);
  const Floats other = random_floats(4096, random);
  EXPECT_FALSE(find_permutation(view_of(golden, {1, 4096}), view_of(other, {1, 4096})));
  const Floats noisy = scattered(golden, random_order(4096, random), 5e-3F, random);
  EXPECT_FALSE(find_permutation(view_of(golden, {1, 4096}), view_of(noisy, {1, 4096})));
}

TEST(FindPermutation, RefusesOtherShapesAndTypes) {
  const Floats values(12, 1);
  EXPECT_FALSE(find_permutation(view_of(values, {3, 4}), view_of(values, {4, 3})));
  EXPECT_FALSE(find_permutation(view_of(values, {12}), view_of(values, {12}), 1));
  EXPECT_FALSE(find_permutation(view_of({}, {0, 4}), view_of({}, {0, 4})));
}

TEST(FindPermutation, TakesTheWidthOfRealMlps) {
  std::mt19937 random(6);
  const Order order = random_order(11008, random);
  const Floats golden = random_floats(size_t{24} * 11008, random);
  const Floats mine = scattered(golden, order, 4e-3F, random);
  EXPECT_EQ(find_permutation(view_of(golden, {24, 11008}), view_of(mine, {24, 11008})), order);
}

// The tree finds what looking at every point finds, also after points were taken out.
RC_GTEST_PROP(NearestPoints, FindsWhatLookingAtEveryPointFinds, ()) {
  const auto count = *rc::gen::inRange<size_t>(1, 200);
  const auto dimensions = *rc::gen::inRange<size_t>(1, 5);
  // Few different coordinates, so that there are ties.
  const auto numbers =
      *rc::gen::container<std::vector<int>>(count * dimensions, rc::gen::inRange(0, 8));
  const std::vector<double> points(numbers.begin(), numbers.end());
  NearestPoints tree(points, dimensions);
  const auto at = [&](size_t i) { return std::span(points).subspan(i * dimensions, dimensions); };
  const auto gone = *rc::gen::inRange<size_t>(0, count);
  tree.remove(gone);
  tree.remove(gone);
  const auto query = *rc::gen::inRange<size_t>(0, count);
  const auto excluded = *rc::gen::inRange<size_t>(0, count);
  double best = INFINITY;
  std::vector<size_t> inside;
  for (size_t i = 0; i < count; ++i) {
    if (i == gone) continue;
    double squared = 0;
    for (size_t k = 0; k < dimensions; ++k) {
      squared += (at(i)[k] - at(query)[k]) * (at(i)[k] - at(query)[k]);
    }
    if (squared <= 9) inside.push_back(i);
    if (i != excluded) best = std::min(best, squared);
  }
  const auto hit = tree.nearest(at(query), 100, excluded);
  RC_ASSERT(hit.has_value() == std::isfinite(best));
  if (hit) RC_ASSERT(std::fabs(hit->distance * hit->distance - best) < 1e-9);
  std::vector<size_t> found;
  for (const auto& near : tree.within(at(query), 3)) found.push_back(near.index);
  RC_ASSERT(found == inside);
}

}  // namespace
}  // namespace assay::pair
