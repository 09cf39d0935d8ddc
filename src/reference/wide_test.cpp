// SPDX-License-Identifier: Apache-2.0
#include "reference/wide.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "tensor/convert.hpp"
#include "tensor/half.hpp"

namespace assay::reference {
namespace {

double nearest_by_search(double value, const std::vector<double>& sorted) {
  // The oracle: of all values of the format, the nearest; of two equally near, the one at an even
  // place.
  size_t best = 0;
  for (size_t i = 1; i < sorted.size(); ++i) {
    const double distance = std::fabs(sorted[i] - value);
    const double least = std::fabs(sorted[best] - value);
    if (distance < least || (distance == least && i % 2 == 0)) best = i;
  }
  return sorted[best];
}

TEST(RoundTo, Float8IsTheNearestValueOfTheFormat) {
  std::vector<double> values;  // magnitudes ascend with the bit pattern
  for (int bits = 0; bits < 0x7F; ++bits)
    values.push_back(float8_e4m3fn_to_float(static_cast<uint8_t>(bits)));
  for (double x = 1e-4; x < 440; x *= 1.0173) {
    EXPECT_EQ(round_to(x, DType::Float8E4M3FN), nearest_by_search(x, values)) << x;
    EXPECT_EQ(round_to(-x, DType::Float8E4M3FN), -nearest_by_search(x, values)) << x;
  }
}

TEST(RoundTo, EveryHalfPrecisionValueIsItselfAndMidpointsGoToEven) {
  for (uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const double value = float16_to_float(static_cast<uint16_t>(bits));
    const double next =
        bits + 1 == 0x7C00 ? 65536.0 : float16_to_float(static_cast<uint16_t>(bits + 1));
    ASSERT_EQ(round_to(value, DType::Float16), value);
    const double middle = (value + next) / 2;
    const double even = bits % 2 == 0 ? value : bits + 1 == 0x7C00 ? INFINITY : next;
    ASSERT_EQ(round_to(middle, DType::Float16), even) << bits;
    ASSERT_EQ(round_to(std::nextafter(middle, 0), DType::Float16), value) << bits;
  }
  EXPECT_TRUE(std::isnan(round_to(NAN, DType::BFloat16)));
  EXPECT_EQ(round_to(INFINITY, DType::BFloat16), INFINITY);
}

TEST(Narrow, SixteenBitFloatsAreThoseOfRoundToOneByOne) {
  // Given  every value of the type, what lies in the middle to the next, and the doubles beside
  //        both, of both signs
  for (const DType dtype : {DType::Float16, DType::BFloat16}) {
    const bool half = dtype == DType::Float16;
    const auto decode = [&](uint32_t bits) {
      const auto code = static_cast<uint16_t>(bits);
      return static_cast<double>(half ? float16_to_float(code) : bfloat16_to_float(code));
    };
    const uint32_t infinity = half ? 0x7C00 : 0x7F80;
    std::vector<double> values = {INFINITY, 1e308, 5e-324, 0x1p-133, 0x1p-134, 65520, 3.39e38};
    for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      const double value = decode(bits);
      const double middle = (value + decode(bits + 1)) / 2;
      for (const double one : {value, middle}) {
        values.insert(values.end(), {one, std::nextafter(one, 0), std::nextafter(one, INFINITY)});
      }
    }
    const size_t count = values.size();
    for (size_t i = 0; i < count; ++i) values.push_back(-values[i]);
    values.push_back(NAN);  // 3 beyond a multiple of 8: the end of a block, too
    while (values.size() % 8 != 3) values.push_back(1.0);
    Wide wide(Dims{static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), wide.values.begin());
    // When
    const Tensor narrowed = narrow(to_tensor(std::move(wide)).view, dtype).value();
    // Then
    std::vector<double> found(values.size());
    read_values(narrowed.view, 0, narrowed.view.element_count(), found);
    for (size_t i = 0; i < values.size(); ++i) {
      const double expected = round_to(values[i], dtype);
      ASSERT_EQ(std::isnan(found[i]), std::isnan(expected)) << values[i];
      if (std::isnan(expected)) continue;
      ASSERT_EQ(found[i], expected) << values[i];
      ASSERT_EQ(std::signbit(found[i]), std::signbit(expected)) << values[i];
    }
  }
}

TEST(Narrow, IntegersAreRoundedAndClamped) {
  Wide wide(Dims{6});
  wide.values = {0.5, 1.5, -2.5, 1e9, -1e9, NAN};
  const Result<Tensor> narrowed = narrow(to_tensor(wide).view, DType::Int8);
  ASSERT_TRUE(narrowed);
  const auto* values = reinterpret_cast<const int8_t*>(narrowed->view.contiguous_bytes().data());
  EXPECT_EQ(std::vector<int>(values, values + 6), (std::vector<int>{0, 2, -2, 127, -128, 0}));
}

TEST(Whole, LargeIntegersStayExact) {
  const int64_t large[2] = {(int64_t{1} << 53) + 1, INT64_MIN};
  const auto view =
      make_view(DType::Int64, Dims{2}, ByteSpan(reinterpret_cast<const std::byte*>(large), 16));
  const Result<Whole> result = whole(*view);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->values[0], large[0]);
  EXPECT_EQ(result->values[1], large[1]);
  EXPECT_FALSE(whole(to_tensor(Wide(Dims{1}, 0.5)).view));
}

TEST(CheckedCount, HostileShapesAreRefused) {
  EXPECT_EQ(checked_count(Dims{2, 3}).value(), 6);
  EXPECT_EQ(checked_count(Dims{-1, 3}).error().code, Errc::Invalid);
  EXPECT_EQ(checked_count(Dims{int64_t{1} << 40, int64_t{1} << 40}).error().code, Errc::TooLarge);
}

}  // namespace
}  // namespace assay::reference
