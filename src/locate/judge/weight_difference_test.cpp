// SPDX-License-Identifier: Apache-2.0
// How far two copies of a parameter are apart, in half ULP.   docs/localisation.md, "Pair tests"
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cmath>

#include "base/numbers.hpp"
#include "locate/judge/pair_tests.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

Tensor wide(const std::vector<double>& values) {
  reference::Wide array(Dims{static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), array.values.begin());
  return reference::to_tensor(std::move(array));
}
Tensor rounded(const std::vector<double>& values, DType dtype) {
  return reference::narrow(wide(values).view, dtype).value();
}
WeightDifference difference(const Tensor& golden, const Tensor& mine) {
  const Result<WeightDifference> result = weight_difference(golden.view, mine.view);
  EXPECT_TRUE(result) << result.error().describe();
  return result.value_or(WeightDifference{});
}

/// Toward zero to bfloat16: the lower half of a float32 is dropped.
double truncated(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  return std::bit_cast<float>(bits & 0xFFFF0000U);
}

RC_GTEST_PROP(WeightDifference, IsAtMostOneAfterRoundingAndTwoAfterTruncation, ()) {
  const auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<double>>(rc::gen::map(
      rc::gen::pair(rc::gen::inRange(-8388608, 8388608), rc::gen::inRange(-130, 100)),
      [](const std::pair<int, int>& parts) { return std::ldexp(parts.first, parts.second); })));
  const Tensor golden = rounded(values, DType::Float32);
  std::vector<double> cut;
  for (const double value : values) cut.push_back(truncated(value));

  RC_ASSERT(difference(golden, rounded(values, DType::BFloat16)).half_ulp <= 1);
  RC_ASSERT(difference(golden, rounded(cut, DType::BFloat16)).half_ulp < 2);
  // The side that was rounded may be golden.
  RC_ASSERT(difference(rounded(values, DType::BFloat16), golden).half_ulp <= 1);
}

TEST(WeightDifference, CountsHalfUlpsOfMine) {
  // bf16 has 7 fraction bits: beside 1 an ULP is 2^-7, so 2 ULP are 4 half ULP; below 1 it is half
  // of that
  const double ulp = 0x1p-7;
  const Tensor golden = wide({0.25, 1, 8});
  const WeightDifference two = difference(golden, rounded({0.25, 1 + 2 * ulp, 8}, DType::BFloat16));
  EXPECT_EQ(two.half_ulp, 4);
  EXPECT_EQ(two.worst, 1);
  EXPECT_EQ(two.golden_value, 1);
  EXPECT_EQ(two.mine_value, 1 + 2 * ulp);
  EXPECT_GT(two.half_ulp, kWeightLimit);
  // 1.9999 cut to 1.9921875 = 2 - 2^-7: 0.0077125 / 2^-8 = 1.9744
  EXPECT_NEAR(difference(wide({1.9999}), rounded({truncated(1.9999)}, DType::BFloat16)).half_ulp,
              1.9744, 1e-9);
  EXPECT_EQ(difference(golden, rounded({0.25, 1, 8}, DType::BFloat16)).half_ulp, 0);
}

TEST(WeightDifference, FrequenciesMayBeComputedInAnotherWay) {
  std::vector<double> right, through_logarithms, of_another_base;
  for (int i = 0; i < 64; ++i) {
    right.push_back(std::pow(1e6, -i / 64.0));
    const float exponent = static_cast<float>(i) * static_cast<float>(-std::log(1e6) / 64);
    through_logarithms.push_back(std::exp(exponent));
    of_another_base.push_back(std::pow(1e6 * (1 + 2e-5), -i / 64.0));
  }
  const Tensor golden = rounded(right, DType::Float32);
  const Tensor mine = rounded(through_logarithms, DType::Float32);
  EXPECT_GT(difference(golden, mine).half_ulp, kWeightLimit);
  EXPECT_TRUE(is_same_table(golden.view, mine.view));
  EXPECT_FALSE(is_same_table(golden.view, rounded(of_another_base, DType::Float32).view));
  EXPECT_FALSE(is_same_table(golden.view, rounded(right, DType::BFloat16).view));
}

/// sin(p * w) of positions and frequencies, with angles in a type.
template <typename Real>
Tensor waves(double base) {
  std::vector<double> values;
  for (int p = 0; p < 300; ++p) {
    for (int i = 0; i < 16; ++i)
      values.push_back(std::sin(static_cast<Real>(p) *
                                std::pow(static_cast<Real>(base), -static_cast<Real>(i) / 16)));
  }
  reference::Wide table(Dims{300, 16});
  std::copy(values.begin(), values.end(), table.values.begin());
  return reference::narrow(reference::to_tensor(std::move(table)).view, DType::Float32).value();
}

TEST(WeightDifference, WavesMayBeComputedInAnotherWay) {
  const Tensor golden = waves<float>(1e4), mine = waves<double>(1e4);
  EXPECT_GT(difference(golden, mine).half_ulp, kWeightLimit);
  EXPECT_TRUE(is_same_table(golden.view, mine.view));
  EXPECT_FALSE(is_same_table(golden.view, waves<double>(1e4 * (1 + 1e-4)).view));
}

TEST(WeightDifference, AcceptsAFrequencyTableInSixteenBits) {
  std::vector<double> frequencies;
  for (int i = 0; i < 64; ++i) frequencies.push_back(std::pow(10000.0, -i / 64.0));
  const Tensor golden = rounded(frequencies, DType::Float32);
  for (const DType dtype : {DType::BFloat16, DType::Float16})
    EXPECT_LE(difference(golden, rounded(frequencies, dtype)).half_ulp, 1.0) << name(dtype);
}

TEST(WeightDifference, ForgivesOverflowAndFlushingToZero) {
  // 70000 is beyond float16; 1e-41 is below the normal numbers of bfloat16
  EXPECT_EQ(
      difference(wide({70000, -70000}), rounded({kInfinity, -kInfinity}, DType::Float16)).half_ulp,
      0);
  EXPECT_EQ(difference(wide({1e-41}), rounded({0}, DType::BFloat16)).half_ulp, 0);
  EXPECT_EQ(difference(wide({NAN, 1}), rounded({NAN, 1}, DType::BFloat16)).half_ulp, 0);
  EXPECT_EQ(difference(wide({NAN}), rounded({0}, DType::BFloat16)).half_ulp, kInfinity);
  EXPECT_GT(difference(wide({1}), rounded({kInfinity}, DType::BFloat16)).half_ulp, kWeightLimit);
}

TEST(WeightDifference, TakesWholeNumbersAsEqualOrNot) {
  const auto whole = [](const std::vector<int64_t>& values) {
    reference::Whole array(Dims{static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), array.values.begin());
    return reference::to_tensor(std::move(array));
  };
  // Two integers that are the same double
  const int64_t big = (int64_t{1} << 60) + 1;
  EXPECT_EQ(difference(whole({3, big}), whole({3, big})).half_ulp, 0);
  const WeightDifference differs = difference(whole({3, big}), whole({3, big - 1}));
  EXPECT_EQ(differs.half_ulp, kInfinity);
  EXPECT_EQ(differs.worst, 1);
  EXPECT_FALSE(weight_difference(wide({3}).view, whole({3}).view));
}

TEST(WeightDifference, SaysThatShapesDiffer) {
  const WeightDifference differs = difference(wide({1, 2}), wide({1, 2, 3}));
  EXPECT_TRUE(differs.shape_differs);
  EXPECT_GT(differs.half_ulp, kWeightLimit);
}

TEST(WeightDifference, NamesTheFirstOfTheWorstInAnyBlock) {
  std::vector<double> golden(100'000, 1.0);
  std::vector<double> mine = golden;
  mine[40'000] = mine[99'999] = 2;
  mine[70'000] = 1.5;
  const WeightDifference differs = difference(wide(golden), wide(mine));
  EXPECT_EQ(differs.worst, 40'000);
  EXPECT_TRUE(difference(wide(golden), wide(golden)).identical);
}

TEST(ConstantDifference, TakesAllMaskValuesForEqual) {
  // The lowest float32 in golden, the lowest bfloat16 or infinity in mine
  const Tensor golden = wide({0, -3.4028234663852886e38, 1});
  for (const double low : {-3.3895313892515355e38, -65504.0, -kInfinity}) {
    const Tensor mine = rounded({0, low, 1}, DType::BFloat16);
    EXPECT_EQ(constant_difference(golden.view, mine.view)->half_ulp, 0) << low;
  }
  const Tensor positive = rounded({0, 65504, 1}, DType::BFloat16);
  EXPECT_GT(constant_difference(golden.view, positive.view)->half_ulp, kWeightLimit);
  const Tensor open = rounded({0, 0, 1}, DType::BFloat16);
  EXPECT_GT(constant_difference(golden.view, open.view)->half_ulp, kWeightLimit);
}

TEST(ConstantFactor, IsFoundBehindTwoRoundings) {
  std::vector<double> golden;
  for (int i = 1; i < 300; ++i) golden.push_back(std::sin(i) * 0.05);
  for (const double factor : {1.03, 0.97, -1.0, 2.0}) {
    std::vector<double> scaled;
    for (const double value : golden)
      scaled.push_back(reference::round_to(value, DType::BFloat16) * factor);
    const std::optional<double> found = constant_factor(rounded(golden, DType::Float32).view,
                                                        rounded(scaled, DType::BFloat16).view);
    ASSERT_TRUE(found) << factor;
    EXPECT_NEAR(*found, factor, 5e-4);
  }
}

TEST(ConstantFactor, DoesNotExplainOneWrongElement) {
  std::vector<double> golden;
  for (int i = 1; i < 300; ++i) golden.push_back(std::sin(i));
  std::vector<double> mine = golden;
  EXPECT_FALSE(constant_factor(wide(golden).view, rounded(mine, DType::BFloat16).view));
  mine[7] *= 1.03;
  EXPECT_FALSE(constant_factor(wide(golden).view, rounded(mine, DType::BFloat16).view));
  EXPECT_FALSE(constant_factor(wide({0, 0}).view, wide({0, 1}).view));
  EXPECT_FALSE(constant_factor(wide({1, 2}).view, wide({0, 0}).view));  // zeros: no multiple
}

}  // namespace
}  // namespace assay::locate
