// SPDX-License-Identifier: Apache-2.0
#include "reference/elementwise/quantise.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tensor/half.hpp"

namespace assay::reference {
namespace {

Wide wide(Dims shape, std::initializer_list<double> values) {
  Wide result(shape);
  std::copy(values.begin(), values.end(), result.values.begin());
  return result;
}
std::vector<double> list(const Wide& array) { return {array.values.begin(), array.values.end()}; }

TEST(QuantisePerChannel, DividesByTheScaleOfTheColumnThenAddsTheOffset) {
  // Given rows of three channels, scales 2, 4, 8 and offset 1 for all.
  const Tensor scale = to_tensor(wide({3}, {2, 4, 8}));
  const Tensor offset = to_tensor(wide({1}, {1}));
  const auto values =
      quantise_per_channel(wide({2, 3}, {3, 4, -8, 1000, 0, 20}), scale.view, &offset.view);
  ASSERT_TRUE(values);
  EXPECT_EQ(list(*values), (std::vector<double>{2.5, 2, 0, 501, 1, 3.5}));
  // Halves go to even, and what is too large to 127.
  EXPECT_EQ(list(rounded_to_int8(*values)), (std::vector<double>{2, 2, 0, 127, 1, 4}));
}

TEST(RoundedToInt8, EqualsThePlainFunction) {
  std::vector<double> values = {NAN, INFINITY, -INFINITY, 1e300, -128.5, 127.5, 126.5, -0.5, 0.5};
  for (int i = -1100; i <= 1100; ++i) values.push_back(i * 0.125);
  Wide x(Dims{static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), x.values.begin());
  const Wide rounded = rounded_to_int8(std::move(x));
  for (size_t i = 0; i < values.size(); ++i) {
    const double plain = quantise_int8(values[i]);
    if (std::isnan(plain))
      EXPECT_TRUE(std::isnan(rounded.values[i]));
    else
      EXPECT_EQ(rounded.values[i], plain) << values[i];
  }
}

TEST(QuantisePerChannel, OffsetWithoutElementsIsZero) {
  const Tensor scale = to_tensor(wide({}, {0.5}));
  const Tensor none = to_tensor(Wide(Dims{0}));
  const auto values =
      quantise_per_channel(wide({2}, {1, -3}), scale.view, &none.view, ScaleUse::Multiply);
  ASSERT_TRUE(values);
  EXPECT_EQ(list(*values), (std::vector<double>{0.5, -1.5}));
}

TEST(QuantisePerChannel, ScaleOfAnotherLengthIsNamed) {
  const Tensor scale = to_tensor(Wide(Dims{2}, 1.0));
  const auto values = quantise_per_channel(wide({1, 3}, {1, 2, 3}), scale.view, nullptr);
  ASSERT_FALSE(values);
  EXPECT_EQ(values.error().code, Errc::Invalid);
  EXPECT_EQ(values.error().message, "[2] does not broadcast to [1, 3]");
}

TEST(DequantisePerChannel, SubtractsTheOffsetFirstAndStaysInFloat16) {
  const Tensor scale = to_tensor(wide({2}, {0.5, 4000}));
  const Tensor offset = to_tensor(wide({2}, {3, -1}));
  const auto values =
      dequantise_per_channel(wide({2, 2}, {5, 10, -4, -120}), scale.view, &offset.view);
  ASSERT_TRUE(values);
  EXPECT_EQ(list(*values), (std::vector<double>{1, 44000, -3.5, -65504}));
}

TEST(DynamicQuantise, SymmetricScaleIsTheLargestMagnitudeOver127) {
  const auto done = dynamic_quantise(wide({2, 2}, {1.27, -2.54, 0, 0}));
  ASSERT_TRUE(done);
  EXPECT_EQ(done->scales.shape, Dims{2});
  EXPECT_NEAR(done->scales.values[0], 0.02, 1e-15);
  EXPECT_NEAR(done->values.values[0], 63.5, 1e-12);
  EXPECT_EQ(done->values.values[1], -127);
  // A row of zeros has no scale; its values are zeros, and the caller learns of it.
  EXPECT_EQ(done->scales.values[1], 0);
  EXPECT_EQ(done->values.values[2], 0);
  EXPECT_EQ(done->rows_without_scale, 1);
}

TEST(DynamicQuantise, AsymmetricExtremesBecomeTheEndsOfInt8) {
  // s = (200 - (-55)) / 255 = 1; o = -(200 - 55) / 2 = -72.5
  const auto done = dynamic_quantise(wide({1, 3}, {-55, 200, 0}), true);
  ASSERT_TRUE(done);
  EXPECT_EQ(list(done->scales), std::vector<double>{1});
  EXPECT_EQ(list(done->offsets), std::vector<double>{-72.5});
  EXPECT_EQ(list(done->values), (std::vector<double>{-127.5, 127, -72.5}));
}

TEST(DynamicQuantise, ANaNSpoilsItsRowOnly) {
  const auto done = dynamic_quantise(wide({2, 2}, {NAN, 1, 1, 127}));
  ASSERT_TRUE(done);
  EXPECT_TRUE(std::isnan(done->scales.values[0]));
  EXPECT_TRUE(std::isnan(done->values.values[1]));
  EXPECT_EQ(done->values.values[2], 1);
}

TEST(DynamicQuantise, TargetsOtherThanInt8AndFloat8AreRefused) {
  EXPECT_EQ(dynamic_quantise(Wide(Dims{1, 1}, 1.0), false, DType::Int16).error().code,
            Errc::Unsupported);
  EXPECT_EQ(dynamic_quantise(Wide(Dims{1, 1}, 1.0), true, DType::Float8E5M2).error().code,
            Errc::Unsupported);
  EXPECT_EQ(dynamic_quantise(Wide(Dims{}, 1.0)).error().code, Errc::Invalid);
}

TEST(RoundedToFloat8, EveryHiFloat8ValueIsItselfAndBetweenTwoTheNearerCounts) {
  std::vector<double> magnitudes;
  for (int bits = 0; bits < 0x80; ++bits) {
    const auto value = static_cast<double>(hifloat8_to_float(static_cast<uint8_t>(bits)));
    if (std::isfinite(value)) magnitudes.push_back(value);
  }
  for (const double magnitude : magnitudes) {
    for (const double value : {magnitude, -magnitude, magnitude * 1.01}) {
      // The oracle: the smallest distance over all values.
      double best = INFINITY;
      for (const double other : magnitudes)
        best = std::fmin(best, std::fabs(std::fabs(value) - other));
      const auto rounded = rounded_to(wide({1}, {value}), DType::HiFloat8);
      ASSERT_TRUE(rounded);
      EXPECT_EQ(std::fabs(rounded->values[0] - value), best) << value;
    }
  }
  EXPECT_EQ(rounded_to(wide({1}, {1e9}), DType::HiFloat8)->values[0], 32768);
}

}  // namespace
}  // namespace assay::reference
