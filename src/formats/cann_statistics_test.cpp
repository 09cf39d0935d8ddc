// SPDX-License-Identifier: Apache-2.0
#include "formats/cann_statistics.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include "formats/cann_types.hpp"
#include "formats/test_support.hpp"

namespace assay::formats {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// The example of docs/formats/cann-statistics.md.
constexpr std::string_view kAdd =
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n"
    "Input,0,8,DT_FLOAT,ND,2,1,-2,-0.5,2,0,0,0\n"
    "Input,1,4,DT_FLOAT,ND,-,0.5,0.5,0.5,1,0,0,0\n"
    "Output,0,8,DT_FLOAT,ND,2,1.5,-1.5,0,2,0,0,0\n";

template <typename T>
CannStatisticsRow row_of(DType dtype, const Dims& shape, std::vector<T> values) {
  const auto bytes = std::as_bytes(std::span(values));
  const TensorView view = make_view(dtype, shape, bytes).value();
  return cann_statistics_row(false, 0, dtype, shape, stats::compute_stats(view));
}
CannStatisticsRow row_of_floats(std::vector<float> values) {
  const auto count = static_cast<int64_t>(values.size());
  return row_of(DType::Float32, {count}, std::move(values));
}

CannStatistics read(std::string_view text) {
  const auto statistics = read_cann_statistics(text);
  EXPECT_TRUE(statistics.has_value()) << statistics.error().describe();
  return statistics ? *statistics : CannStatistics{};
}

TEST(WriteCannStatistics, GivesTheClassicTable) {
  std::vector<CannStatisticsRow> rows = {
      row_of_floats({1, -2}), row_of<float>(DType::Float32, {}, {0.5}), row_of_floats({1.5, -1.5})};
  rows[0].is_input = rows[1].is_input = true;
  rows[1].index = 1;
  EXPECT_EQ(write_cann_statistics(rows), kAdd);
}

TEST(WriteCannStatistics, GivesTheClassicTableForItsSixStatistics) {
  using enum CannStatistic;
  EXPECT_EQ(write_cann_statistics({}, {PositiveInf, Nan, Max, Min, Average, NegativeInf}),
            write_cann_statistics({}));
}

TEST(WriteCannStatistics, PutsTheCountBeforeAChoice) {
  const std::string text =
      write_cann_statistics({row_of_floats({3, -4})}, {CannStatistic::L2Norm, CannStatistic::Max});
  EXPECT_EQ(text,
            "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value,l2norm\n"
            "Output,0,8,DT_FLOAT,ND,2,2,3,5\n");
}

TEST(WriteCannStatistics, KeepsEveryDigitOfAFloat) {
  const std::string text = write_cann_statistics({row_of_floats({0.1f, 16777216})});
  // 0.1f is 0.100000001490116...; the mean of the two is 8388608.05, whose nearest float32 is
  // 8388608.
  EXPECT_NE(text.find(",2,16777216,0.1,8388608,2,0,0,0"), std::string::npos) << text;
}

TEST(WriteCannStatistics, WritesWholeNumbersOfIntegerTypes) {
  const std::string text =
      write_cann_statistics({row_of<int32_t>(DType::Int32, {2}, {INT32_MAX, -1000000})});
  EXPECT_NE(text.find(",2147483647,-1000000,1073241823.5,2,"), std::string::npos) << text;
}

TEST(WriteCannStatistics, SaysNotAvailableForAnEmptyTensor) {
  const std::string text = write_cann_statistics({row_of<float>(DType::Float32, {0, 3}, {})});
  EXPECT_NE(text.find("0x3,NA,NA,NA,0,0,0,0\n"), std::string::npos) << text;
}

TEST(CannStatisticsRow, LeavesNanOutAndLetsInfinitiesWin) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();

  const CannStatisticsRow with_nan = row_of_floats({nan, 1, 3});
  EXPECT_EQ(with_nan.max, 3);
  EXPECT_EQ(with_nan.min, 1);
  EXPECT_EQ(with_nan.average, 2);
  EXPECT_EQ(with_nan.nan, 1u);

  const CannStatisticsRow up = row_of_floats({inf, 1});
  EXPECT_EQ(up.max, kInf);
  EXPECT_EQ(up.min, 1);
  EXPECT_EQ(up.average, kInf);
  EXPECT_EQ(up.l2_norm, kInf);
  EXPECT_EQ(up.positive_inf, 1u);

  const CannStatisticsRow only_down = row_of_floats({-inf, nan});
  EXPECT_EQ(only_down.max, -kInf);
  EXPECT_EQ(only_down.min, -kInf);
  EXPECT_EQ(only_down.average, -kInf);

  const CannStatisticsRow both = row_of_floats({-inf, inf});
  EXPECT_EQ(both.max, kInf);
  EXPECT_EQ(both.min, -kInf);
  EXPECT_TRUE(std::isnan(both.average.value()));

  EXPECT_EQ(row_of_floats({nan}).max, std::nullopt);
}

TEST(CannStatisticsRow, CountsValuesOfPackedTypes) {
  // Two values a byte: 0x21 is 0.5 and 1.
  const CannStatisticsRow row = row_of<uint8_t>(DType::Float4E2M1FNx2, {2}, {0x21, 0x21});
  EXPECT_EQ(row.data_type, "DT_FLOAT4_E2M1");
  EXPECT_EQ(row.shape, Dims{4});
  EXPECT_EQ(row.count, 4u);
  EXPECT_EQ(row.max, 1);
}

TEST(ReadCannStatistics, ReadsTheClassicTable) {
  const CannStatistics statistics = read(kAdd);
  ASSERT_EQ(statistics.rows.size(), 3u);
  EXPECT_TRUE(statistics.warnings.empty());
  const CannStatisticsRow& row = statistics.rows[0];
  EXPECT_TRUE(row.is_input);
  EXPECT_EQ(row.size_bytes, 8u);
  EXPECT_EQ(row.data_type, "DT_FLOAT");
  EXPECT_EQ(row.shape, Dims{2});
  EXPECT_EQ(row.max, 1);
  EXPECT_EQ(row.min, -2);
  EXPECT_EQ(row.average, -0.5);
  EXPECT_EQ(row.count, 2u);
  EXPECT_EQ(row.nan, 0u);
  EXPECT_EQ(row.l2_norm, std::nullopt);
  EXPECT_EQ(statistics.rows[1].shape, Dims{});
  EXPECT_FALSE(statistics.rows[2].is_input);
}

TEST(ReadCannStatistics, ReadsTheOtherDialectWithItsGaps) {
  const CannStatistics statistics = read(
      "Input/Output,Index,Data Size,Data Type,Format,Shape,Count,Max Value,Nan Count,l2norm\r\n"
      "Input,0,16,DT_FLOAT16,FRACTAL_NZ,1x1x2x4,8,inf,NA,1.5e-05\r\n"
      "Output,0,0,UNKNOW,-,0x2,,,,\r\n"
      "Output,1,4,-,-,4\r\n");
  ASSERT_EQ(statistics.rows.size(), 3u);
  EXPECT_TRUE(statistics.warnings.empty());
  EXPECT_EQ(statistics.rows[0].shape, (Dims{1, 1, 2, 4}));
  EXPECT_EQ(statistics.rows[0].count, 8u);
  EXPECT_EQ(statistics.rows[0].max, kInf);
  EXPECT_EQ(statistics.rows[0].nan, std::nullopt);
  EXPECT_EQ(statistics.rows[0].l2_norm, 1.5e-05);
  EXPECT_EQ(statistics.rows[1].count, std::nullopt);
  EXPECT_EQ(statistics.rows[1].shape, (Dims{0, 2}));
  EXPECT_EQ(statistics.rows[2].max, std::nullopt);
}

TEST(ReadCannStatistics, NamesTheRowsThatItCannotRead) {
  const CannStatistics statistics = read(
      "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value\n"
      "Weight,0,8,DT_FLOAT,ND,2,1\n"
      "Input,-1,8,DT_FLOAT,ND,2,1\n"
      "Input,0,8\n"
      "Input,0,8,DT_FLOAT,ND,2xx,many\n"
      "Output,0,8,DT_FLOAT,ND,2,7\n");
  ASSERT_EQ(statistics.rows.size(), 2u);
  EXPECT_EQ(statistics.rows[0].shape, std::nullopt);
  EXPECT_EQ(statistics.rows[0].max, std::nullopt);
  EXPECT_EQ(statistics.rows[1].max, 7);
  ASSERT_EQ(statistics.warnings.size(), 4u);
  EXPECT_NE(statistics.warnings[0].find("row 1 is left out"), std::string::npos);
  EXPECT_NE(statistics.warnings[3].find("\"many\" is no number"), std::string::npos);
}

TEST(ReadCannStatistics, RefusesOtherTables) {
  for (const std::string_view text :
       {"", "\n", "a,b\n1,2\n", "Input/Output,Index,Data Size\n", "Op Type,Op Name,Task ID\n"}) {
    EXPECT_FALSE(looks_like_cann_statistics(text)) << text;
    EXPECT_EQ(read_cann_statistics(text).error().code, Errc::Invalid) << text;
  }
}

TEST(ReadCannStatistics, RefusesMoreRowsThanAnyOperatorHas) {
  std::string text = write_cann_statistics({});
  text.append(1'000'002, '\n');
  EXPECT_EQ(read_cann_statistics(text).error().code, Errc::TooLarge);
}

TEST(CannStatistic, KnowsTheNamesOfTheConfigurationExactly) {
  EXPECT_EQ(cann_statistic("Negative Inf"), CannStatistic::NegativeInf);
  EXPECT_EQ(cann_statistic("L2norm"), CannStatistic::L2Norm);
  EXPECT_EQ(cann_statistic("max"), std::nullopt);
  EXPECT_EQ(cann_statistic("Max "), std::nullopt);
}

/// Equal, or both NaN: a table's numbers as float32.
bool same(const std::optional<double>& wrote, const std::optional<double>& read) {
  if (!wrote || !read) return wrote.has_value() == read.has_value();
  return (std::isnan(*wrote) && std::isnan(*read)) ||
         static_cast<float>(*wrote) == static_cast<float>(*read);
}

RC_GTEST_PROP(CannStatistics, ReadBackAsTheyWereWritten, ()) {
  const auto tensor = random_tensor([](DType dtype) { return cann_from_dtype(dtype).has_value(); });
  const CannStatisticsRow row = cann_statistics_row(
      *rc::gen::arbitrary<bool>(), *rc::gen::arbitrary<uint32_t>(), tensor->view.dtype,
      tensor->view.shape, stats::compute_stats(tensor->view));
  std::vector<CannStatistic> all;
  for (int i = 0; i < 7; ++i) all.push_back(static_cast<CannStatistic>(i));
  const auto statistics = read_cann_statistics(write_cann_statistics({row}, all));
  RC_ASSERT(statistics.has_value());
  RC_ASSERT(statistics->warnings.empty());
  RC_ASSERT(statistics->rows.size() == 1u);
  const CannStatisticsRow& back = statistics->rows[0];
  RC_ASSERT(back.is_input == row.is_input);
  RC_ASSERT(back.index == row.index);
  RC_ASSERT(back.size_bytes == row.size_bytes);
  RC_ASSERT(back.data_type == row.data_type);
  RC_ASSERT(back.shape == row.shape);
  RC_ASSERT(back.count == row.count);
  RC_ASSERT(back.nan == row.nan);
  RC_ASSERT(same(row.max, back.max));
  RC_ASSERT(same(row.min, back.min));
  RC_ASSERT(same(row.average, back.average));
  RC_ASSERT(same(row.l2_norm, back.l2_norm));
}

}  // namespace
}  // namespace assay::formats
