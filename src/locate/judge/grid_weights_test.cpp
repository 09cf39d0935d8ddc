// SPDX-License-Identifier: Apache-2.0
#include "locate/judge/grid_weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "compare/dequantise.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

constexpr int64_t kOut = 16, kIn = 64;

reference::Wide drawn() {
  std::mt19937 generator(1);
  std::normal_distribution<double> normal;
  reference::Wide values(Dims{kOut, kIn});
  for (double& value : values.values) value = normal(generator);
  return values;
}

Tensor stored(const reference::Wide& values, DType dtype) {
  const Tensor wide = reference::to_tensor(values);
  return reference::narrow(wide.view, dtype).value();
}

/// Each row in codes of `largest` on either side, and back.
reference::Wide in_codes(reference::Wide values, double largest, double factor = 1) {
  for (int64_t row = 0; row < kOut; ++row) {
    double* const first = values.data() + row * kIn;
    const auto [low, high] = std::minmax_element(first, first + kIn);
    const double step = std::max(-*low, *high) / largest;
    for (int64_t i = 0; i < kIn; ++i) first[i] = std::nearbyint(first[i] / step) * step * factor;
  }
  return values;
}

TEST(GridDifference, FindsTheStepOfRowsInTheirOwnValues) {
  const Tensor golden = stored(drawn(), DType::Float32);
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float16}) {
    const auto eight = grid_difference(golden.view, stored(in_codes(drawn(), 127), dtype).view);
    ASSERT_TRUE(eight) << name(dtype);
    EXPECT_EQ(eight->scheme, "int8 per channel, in place");
    EXPECT_LE(eight->half_steps, 1.01);  // rounding to the nearest code is half a step

    const auto four = grid_difference(golden.view, stored(in_codes(drawn(), 7), dtype).view);
    ASSERT_TRUE(four) << name(dtype);
    EXPECT_EQ(four->scheme, "int4 per channel, in place");
    EXPECT_LE(four->half_steps, 1.01);
    // Steps are 127 / 7 = 18 times as wide, and so is what they cost.
    EXPECT_NEAR(std::sqrt(four->error / eight->error), 18, 3);
  }
}

TEST(GridDifference, HoldsAWrongScaleAgainstGolden) {
  const Tensor golden = stored(drawn(), DType::Float32);
  const Tensor mine = stored(in_codes(drawn(), 127, /*factor=*/4), DType::BFloat16);
  const auto found = grid_difference(golden.view, mine.view);
  ASSERT_TRUE(found);
  // The largest value of a row is 127 steps of golden; four times of it is 3 * 127 steps too far,
  // which are 0.75 * 127 of mine: 190 halves, of which the rounding of the product takes a part.
  EXPECT_GT(found->half_steps, 50);
}

TEST(GridDifference, KnowsTheLevelsOfNf4) {
  reference::Wide values = drawn();
  constexpr int64_t kBlock = 64;
  for (int64_t first = 0; first < kOut * kIn; first += kBlock) {
    double largest = 0;
    for (int64_t i = 0; i < kBlock; ++i)
      largest = std::max(largest, std::abs(values.data()[first + i]));
    for (int64_t i = 0; i < kBlock; ++i) {
      double& value = values.data()[first + i];
      value = largest * *std::ranges::min_element(compare::kNormalFloat4, {}, [&](double level) {
                return std::abs(level - value / largest);
              });
    }
  }
  const Tensor golden = stored(drawn(), DType::Float32);
  const auto found = grid_difference(golden.view, stored(values, DType::BFloat16).view);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->scheme, "nf4 per channel, in place");  // a row is a block
  EXPECT_LE(found->half_steps, 1.01);
}

TEST(GridDifference, NothingLiesOnAGridByChance) {
  const Tensor golden = stored(drawn(), DType::Float32);
  reference::Wide noisy = drawn();
  std::mt19937 generator(2);
  std::normal_distribution<double> normal(0, 0.02);
  for (double& value : noisy.values) value += normal(generator);
  for (const DType dtype : {DType::Float32, DType::BFloat16})
    EXPECT_FALSE(grid_difference(golden.view, stored(noisy, dtype).view)) << name(dtype);
  // One value that was changed lies on none.
  reference::Wide changed = in_codes(drawn(), 127);
  changed.values[5] += 0.0317;
  EXPECT_FALSE(grid_difference(golden.view, stored(changed, DType::Float32).view));
}

}  // namespace
}  // namespace assay::locate
