// SPDX-License-Identifier: Apache-2.0
#include "formats/atb_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "stats/tensor_stats.hpp"

namespace assay::formats {
namespace {

template <typename Value>
AtbStatisticsTexts texts_of(int64_t atb_dtype, const std::vector<Value>& values,
                            AtbStatisticsForm form = AtbStatisticsForm::Exact) {
  return atb_statistics(
      atb_dtype, {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(Value)},
      form);
}

constexpr auto kDecimals = AtbStatisticsForm::Decimals;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(AtbStatistics, HalvesOfTheFormatDocument) {
  // 1, -2, 0.5, 0, 3.25, 65504 as fp16: the sum is 65506.75, the squares add up to 4290774031.8125.
  const std::vector<uint16_t> halves = {0x3c00, 0xc000, 0x3800, 0x0000, 0x4280, 0x7bff};
  const AtbStatisticsTexts decimals = texts_of(1, halves, kDecimals);
  EXPECT_EQ(decimals.max, "65504.000000");
  EXPECT_EQ(decimals.min, "-2.000000");
  EXPECT_EQ(decimals.mean, "10917.791667");
  EXPECT_EQ(decimals.l2norm, "65504.000121");
  EXPECT_FALSE(decimals.nan_count.has_value());
  const AtbStatisticsTexts exact = texts_of(1, halves);
  EXPECT_EQ(exact.max, "65504");
  EXPECT_EQ(exact.min, "-2");
  EXPECT_EQ(exact.mean, "10917.791666666666");
  EXPECT_EQ(exact.nan_count, "0");
  EXPECT_EQ(exact.inf_count, "0");
}

TEST(AtbStatistics, NineDigitsReadAFloatBack) {
  const AtbStatisticsTexts texts = texts_of<float>(0, {0.1f, 1.0f / 3.0f});
  EXPECT_EQ(texts.max, "0.333333343");
  EXPECT_EQ(texts.min, "0.100000001");
  EXPECT_EQ(std::strtof(texts.max.c_str(), nullptr), 1.0f / 3.0f);
  EXPECT_EQ(texts_of<double>(11, {0.1}).max, "0.10000000000000001");
}

TEST(AtbStatistics, NanIsLeftOutOfTheExtremesAndMakesTheSumsNan) {
  const std::vector<float> values = {kNan, 2.0f, -1.0f};
  for (const auto form : {AtbStatisticsForm::Exact, kDecimals}) {
    const AtbStatisticsTexts texts = texts_of(0, values, form);
    EXPECT_EQ(std::stod(texts.max), 2.0);
    EXPECT_EQ(std::stod(texts.min), -1.0);
    EXPECT_EQ(texts.mean, "nan");
    EXPECT_EQ(texts.l2norm, "nan");
  }
  EXPECT_EQ(texts_of(0, values).nan_count, "1");
}

TEST(AtbStatistics, AllNan) {
  const std::vector<float> values = {kNan, kNan};
  EXPECT_EQ(texts_of(0, values).max, "nan");
  EXPECT_EQ(texts_of(0, values).min, "nan");
  // The original's extremes stay where they began.
  EXPECT_EQ(texts_of(0, values, kDecimals).max, "-340282346638528859811704183484516925440.000000");
  EXPECT_EQ(texts_of(0, values, kDecimals).min, "340282346638528859811704183484516925440.000000");
}

TEST(AtbStatistics, Infinities) {
  const std::vector<float> both = {kInf, -kInf, 1.0f};
  EXPECT_EQ(texts_of(0, both).max, "inf");
  EXPECT_EQ(texts_of(0, both).min, "-inf");
  EXPECT_EQ(texts_of(0, both).inf_count, "2");
  EXPECT_EQ(texts_of(0, both, kDecimals).max, "inf");
  EXPECT_EQ(texts_of(0, both, kDecimals).mean, "-nan");  // inf - inf, as the processor gives it
  EXPECT_EQ(texts_of(0, both, kDecimals).l2norm, "inf");
  EXPECT_EQ(texts_of<float>(0, {kInf, kInf}).min, "inf");
  EXPECT_EQ(texts_of<float>(0, {-kInf, 3.0f}).mean, "-inf");
}

TEST(AtbStatistics, IntegersAreExactToTheirEnds) {
  const std::vector<int64_t> ends = {INT64_MIN, INT64_MAX, 9007199254740993};
  EXPECT_EQ(texts_of(9, ends).max, "9223372036854775807");
  EXPECT_EQ(texts_of(9, ends).min, "-9223372036854775808");
  EXPECT_EQ(texts_of(9, ends, kDecimals).max, "9223372036854775807");
  EXPECT_EQ(texts_of<int64_t>(9, {9007199254740993}).max, "9007199254740993");  // 2^53 + 1
  EXPECT_EQ(texts_of<uint64_t>(10, {UINT64_MAX, 1}).max, "18446744073709551615");
  const AtbStatisticsTexts bytes = texts_of<int8_t>(2, {-128, 127, 65}, kDecimals);
  EXPECT_EQ(bytes.max, "127");  // a number and no letter
  EXPECT_EQ(bytes.min, "-128");
  EXPECT_EQ(bytes.mean, "21.333333");
}

TEST(AtbStatistics, ComplexByMagnitude) {
  // |3+4i| = 5, |1| = 1, |-6i| = 6
  const std::vector<float> values = {3, 4, 1, 0, 0, -6};
  const AtbStatisticsTexts texts = texts_of(16, values);
  EXPECT_EQ(texts.max, "(0,-6)");
  EXPECT_EQ(texts.min, "(1,0)");
  EXPECT_EQ(texts.mean, "(1.3333333333333333,-0.66666666666666663)");
  EXPECT_EQ(std::stod(texts.l2norm), std::sqrt(25.0 + 1.0 + 36.0));
  EXPECT_EQ(texts_of(16, values, kDecimals).max, "(0.000000,-6.000000)");
  EXPECT_EQ(texts_of<float>(16, {kNan, 0, 1, 1}).max, "(1,1)");
  EXPECT_EQ(texts_of<float>(16, {kNan, 0}).nan_count, "1");
}

TEST(AtbStatistics, TypesWithoutValues) {
  for (const int64_t dtype : {-1, 12, 13, 17, 29, 30, 33, 34, 35, 36, 37, 40, 99, 1000000}) {
    const AtbStatisticsTexts texts = texts_of<uint8_t>(dtype, {1, 2, 3, 4});
    EXPECT_EQ(texts.max + texts.min + texts.mean + texts.l2norm, "N/AN/AN/AN/A") << dtype;
    EXPECT_FALSE(texts.nan_count.has_value());
  }
  EXPECT_EQ(texts_of<float>(0, {}).max, "N/A");
}

TEST(AtbStatistics, BytesBehindTheLastElementDoNotCount) {
  EXPECT_EQ(texts_of<uint8_t>(1, {0x00, 0x3c, 0xff}).max, "1");  // one fp16 and a half
}

// What a capture has computed gives the texts that the values themselves give.
template <typename Value>
void expect_texts_of_sums(int64_t atb_dtype, DType dtype, const std::vector<Value>& values) {
  const ByteSpan bytes{reinterpret_cast<const std::byte*>(values.data()),
                       values.size() * sizeof(Value)};
  const auto view = make_view(dtype, Dims{static_cast<int64_t>(values.size())}, bytes);
  ASSERT_TRUE(view);
  const AtbStatisticsTexts sums = atb_statistics(atb_dtype, stats::compute_stats(*view));
  const AtbStatisticsTexts whole = texts_of(atb_dtype, values);
  EXPECT_EQ(sums.max, whole.max);
  EXPECT_EQ(sums.min, whole.min);
  EXPECT_EQ(sums.mean, whole.mean);
  EXPECT_EQ(sums.l2norm, whole.l2norm);
  EXPECT_EQ(sums.nan_count, whole.nan_count);
  EXPECT_EQ(sums.inf_count, whole.inf_count);
}

TEST(AtbStatistics, OfSumsAreThoseOfTheValues) {
  expect_texts_of_sums<float>(0, DType::Float32, {0.1f, -3.5f, 1e30f});
  expect_texts_of_sums<float>(0, DType::Float32, {kNan, 2.0f, kInf});
  expect_texts_of_sums<float>(0, DType::Float32, {-kInf, kInf, 2.0f});
  expect_texts_of_sums<float>(0, DType::Float32, {kNan});
  expect_texts_of_sums<double>(11, DType::Float64, {0.1, -7.25});
  expect_texts_of_sums<int8_t>(2, DType::Int8, {-128, 0, 127});
  expect_texts_of_sums<uint32_t>(8, DType::UInt32, {0, 4294967295u});
  expect_texts_of_sums<int64_t>(9, DType::Int64, {0, -(int64_t{1} << 52)});
  expect_texts_of_sums<uint8_t>(12, DType::Bool, {0, 1, 1});
  EXPECT_EQ(atb_statistics(0, stats::TensorStats()).max, "N/A") << "no values";
}

}  // namespace
}  // namespace assay::formats
