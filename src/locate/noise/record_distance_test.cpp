// SPDX-License-Identifier: Apache-2.0
#include "locate/noise/record_distance.hpp"

#include <cmath>
#include <random>

#include "base/numbers.hpp"
#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;

stats::TensorStats statistics_of_values(const std::vector<double>& values) {
  stats::TensorStats result;
  result.count = static_cast<int64_t>(values.size());
  result.min = result.max = values[0];
  double sum = 0;
  double squares = 0;
  for (const double value : values) {
    result.min = std::min(result.min, value);
    result.max = std::max(result.max, value);
    sum += value;
    squares += value * value;
  }
  result.mean = sum / static_cast<double>(values.size());
  result.l2_norm = std::sqrt(squares);
  return result;
}

/// To 8 bits of precision, as bfloat16 has: to the nearest, or towards zero.
double rounded(double value, bool nearest) {
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent) * 256;
  return std::ldexp(nearest ? std::nearbyint(fraction) : std::trunc(fraction), exponent - 8);
}

std::vector<double> weights_of(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0.0, 0.02);
  std::vector<double> values(count);
  for (double& value : values) value = normal(random);
  return values;
}

double ratio_of(const std::vector<double>& golden, const std::vector<double>& mine) {
  return weight_statistics_ratio(statistics_of_values(golden), statistics_of_values(mine),
                                 DType::Float32, DType::BFloat16);
}

TEST(WeightStatistics, RoundedAndTruncatedWeightsAreGoldens) {
  for (const size_t count : {2, 16, 128, 16384}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      const std::vector<double> golden = weights_of(count, seed);
      std::vector<double> nearest;
      std::vector<double> truncated;
      for (const double value : golden) {
        nearest.push_back(rounded(value, true));
        truncated.push_back(rounded(value, false));
      }
      EXPECT_LE(ratio_of(golden, nearest), 1) << count << " " << seed;
      if (count > 1000) {
        EXPECT_LE(ratio_of(golden, truncated), 1) << count << " " << seed;
      }
    }
  }
  // Few large elements make most of the norm, and most of its error
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::vector<double> golden = weights_of(512, seed);
    for (size_t i = 0; i < 4; ++i) golden[i] *= 40;
    std::vector<double> nearest;
    for (const double value : golden) nearest.push_back(rounded(value, true));
    EXPECT_LE(ratio_of(golden, nearest), 1) << seed;
  }
  // Codes of four bits times a scale for each 32: few values, rounded alike
  double largest = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::vector<double> golden = weights_of(16384, seed);
    std::vector<double> nearest;
    for (size_t group = 0; group < golden.size(); group += 32) {
      double top = 0;
      for (size_t i = group; i < group + 32; ++i) top = std::max(top, std::abs(golden[i]));
      for (size_t i = group; i < group + 32; ++i)
        golden[i] = std::nearbyint(golden[i] / (top / 7)) * (top / 7);
    }
    for (const double value : golden) nearest.push_back(rounded(value, true));
    largest = std::max(largest, ratio_of(golden, nearest));
  }
  EXPECT_LE(largest, 0.8);
  // One error for all elements: independence would not allow it
  EXPECT_LE(ratio_of(std::vector<double>(4096, 1.0039), std::vector<double>(4096, 1.0)), 1);
}

TEST(WeightStatistics, OneWrongElementOrRowOfManyIsSeen) {
  const std::vector<double> golden = weights_of(16384, 3);
  std::vector<double> mine;
  for (const double value : golden) mine.push_back(rounded(value, true));
  std::vector<double> element = mine;
  element[5000] += 0.12;  // six standard deviations
  EXPECT_GT(ratio_of(golden, element), 1);
  std::vector<double> row = mine;
  std::fill(row.begin() + 1280, row.begin() + 1408, 0);  // 1 of 128
  EXPECT_GT(ratio_of(golden, row), 1);
  for (double& value : mine) value *= 1.002;
  EXPECT_GT(ratio_of(golden, mine), 1);
}

TEST(WeightStatistics, SketchesNameWeightsWhoseOtherStatisticsAreGoldens) {
  const auto ratio = [](const std::vector<double>& golden, const std::vector<double>& mine) {
    const auto whole = [](const std::vector<double>& values) {
      return stats::compute_stats(*make_view(DType::Float64, {static_cast<int64_t>(values.size())},
                                             std::as_bytes(std::span(values))));
    };
    return weight_statistics_ratio(whole(golden), whole(mine), DType::Float32, DType::BFloat16);
  };
  for (const size_t count : {128, 16384}) {
    for (unsigned seed = 0; seed < 100; ++seed) {
      const std::vector<double> golden = weights_of(count, seed);
      std::vector<double> mine;
      for (const double value : golden) mine.push_back(rounded(value, true));
      EXPECT_LE(ratio(golden, mine), 1) << count << " " << seed;
      std::swap_ranges(mine.begin(), mine.begin() + 32, mine.begin() + 32);  // heads
      EXPECT_GT(ratio(golden, mine), 1) << count << " " << seed;
    }
  }
  std::vector<double> truncated;
  const std::vector<double> golden = weights_of(16384, 4);
  for (const double value : golden) truncated.push_back(rounded(value, false));
  EXPECT_LE(ratio(golden, truncated), 1);
}

TEST(WeightStatistics, WeightsOfTheSameTypeAreEqual) {
  const std::vector<double> golden = weights_of(64, 1);
  std::vector<double> mine = golden;
  mine[3] *= 1.01;
  const auto same_type = [&](const std::vector<double>& other) {
    return weight_statistics_ratio(statistics_of_values(golden), statistics_of_values(other),
                                   DType::Float32, DType::Float32);
  };
  EXPECT_LE(same_type(golden), 1);
  EXPECT_GT(same_type(mine), 1);
  stats::TensorStats nan = statistics_of_values(golden);
  nan.nan_count = 1;
  EXPECT_EQ(
      weight_statistics_ratio(statistics_of_values(golden), nan, DType::Float32, DType::Float32),
      kInfinity);
}

TEST(WeightStatistics, ShortRowsMayRepeat) {
  // Given  128 rows log 1 ... log 16, which rounding moves all alike, and the same with one rate in
  //        all rows 2 % too large
  std::vector<double> golden, mine, wrong;
  for (int i = 0; i < 128 * 16; ++i) {
    golden.push_back(std::log(1 + i % 16));
    mine.push_back(rounded(golden.back(), true));
    wrong.push_back(mine.back() * (i % 16 == 15 ? 1.02 : 1));
  }
  const auto of_rows = [&](const std::vector<double>& other) {
    return weight_statistics_ratio(statistics_of_values(golden), statistics_of_values(other),
                                   DType::Float32, DType::BFloat16, 16);
  };
  EXPECT_LE(of_rows(mine), 1);
  EXPECT_GT(of_rows(wrong), 1);
}

// ----- routers

/// Layers of a router and what comes behind it: 4 tokens, 2 of 8 experts each, 3 channels.
struct Choices {
  std::vector<double> experts;
  double behind = 1;  // value of all elements behind the router
};
std::unique_ptr<TestRun> run_of(const Choices& choices) {
  auto run = std::make_unique<TestRun>();
  const std::vector<double> before(12, 1.0);
  const std::vector<double> behind(12, choices.behind);
  run->module_output("m.norm", run->value(DType::Float32, {1, 4, 3}, before));
  run->module_output("m.mlp.gate", run->value(DType::Int64, {4, 2}, choices.experts));
  run->module_output("m.mlp.act", run->value(DType::Float32, {8, 3}, std::vector<double>(24, 1)));
  run->module_output("m.mlp", run->value(DType::Float32, {1, 4, 3}, behind));
  return run;
}
Measured measured_at(const Choices& golden, const Choices& mine, std::string_view node) {
  const auto a = run_of(golden);
  const auto b = run_of(mine);
  const auto measured = measure_records(a->run(), b->run(), false, 1, nullptr).value();
  for (const Measured& one : measured)
    if (b->run().records[one.mine_record].node == node) return one;
  return {};
}

const std::vector<double> kExperts = {0, 1, 2, 3, 4, 5, 6, 7};

TEST(MeasureRecords, BehindARouterOnlyTokensBeforeItsFirstOtherChoiceCount) {
  // Given a run whose third token goes to another expert, and all values behind it are others
  const Choices golden{kExperts};
  const Choices mine{{0, 1, 2, 3, 4, 7, 6, 7}, 1.5};
  // Then before it everything is compared, behind it two of the four tokens
  EXPECT_FALSE(measured_at(golden, mine, "m.norm").partial);
  const Measured behind = measured_at(golden, mine, "m.mlp");
  EXPECT_TRUE(behind.partial);
  EXPECT_EQ(behind.elements, 6);
  EXPECT_DOUBLE_EQ(behind.components.at(0), 0.5);
  // What has no axis of tokens (rows by expert) is not comparable
  EXPECT_FALSE(measured_at(golden, mine, "m.mlp.act").reason.empty());
}

TEST(MeasureRecords, TheSameExpertsInAnotherOrderComputeTheSame) {
  const Measured behind = measured_at({kExperts}, {{0, 1, 2, 3, 5, 4, 6, 7}}, "m.mlp");
  EXPECT_FALSE(behind.partial);
  EXPECT_FALSE(measured_at({kExperts}, {{0, 1, 2, 3, 5, 4, 6, 7}}, "m.mlp.act").reason.empty());
}

}  // namespace
}  // namespace assay::locate
