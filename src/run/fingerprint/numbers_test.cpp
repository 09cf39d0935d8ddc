// SPDX-License-Identifier: Apache-2.0
#include "run/fingerprint/numbers.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace assay::run::fingerprint {
namespace {

stats::TensorStats stats_of(double min, double max, double mean, double l2, int64_t count) {
  stats::TensorStats stats;
  stats.count = count;
  stats.min = min;
  stats.max = max;
  stats.mean = mean;
  stats.l2_norm = l2;
  return stats;
}

TEST(RoundedStatistics, KeepThreeBytesOfAFloat) {
  // 1 + 2^-15 has its last bit in the third byte of float32; 2^-16 more is a tie, which goes away
  // from zero; 2^-17 more goes down.
  const double kept = 1 + std::ldexp(1, -15);
  EXPECT_EQ(rounded(stats_of(-kept, kept, 0, 1, 4)).max, kept);
  EXPECT_EQ(rounded(stats_of(-kept, kept, 0, 1, 4)).min, -kept);
  EXPECT_EQ(rounded(stats_of(0, 1 + std::ldexp(1, -16), 0, 1, 4)).max, kept);
  EXPECT_EQ(rounded(stats_of(0, 1 + std::ldexp(1, -17), 0, 1, 4)).max, 1.0);
}

TEST(RoundedStatistics, KeepTheMeanInPartsOfTheRootMeanSquare) {
  // l2 8 of 16 values: root mean square 2. 2 * 16384 / 32767 = 1.00003...: the code of 1.0 is
  // round(16383.5) = 16384.
  const stats::TensorStats kept = rounded(stats_of(-3, 3, 1, 8, 16));
  EXPECT_EQ(kept.mean, 2.0 * 16384 / 32767);
  EXPECT_EQ(rounded(stats_of(2, 2, 2, 8, 16)).mean, 2.0);  // the largest mean that there can be
  EXPECT_EQ(rounded(stats_of(-2, -2, -2, 8, 16)).mean, -2.0);
  EXPECT_EQ(rounded(stats_of(0, 0, 0, 0, 16)).mean, 0.0);
}

TEST(RoundedStatistics, KeepSumsInPartsOfTheLargest) {
  stats::TensorStats stats = stats_of(-3, 3, 0, 8, 64);
  stats.sketch.emplace();
  (*stats.sketch)[0] = 4;  // 32 * 4 / 8 = 16: the scale is 4 itself
  (*stats.sketch)[1] = -4;
  (*stats.sketch)[2] = 1;  // 511.75 of 2047 steps
  const stats::Sketch kept = *rounded(stats).sketch;
  EXPECT_EQ(kept[0], 4);
  EXPECT_EQ(kept[1], -4);
  EXPECT_EQ(kept[2], static_cast<float>(512.0 / 2047 * 4));
  EXPECT_EQ(kept[15], 0);
}

TEST(RoundedStatistics, StayWithinTheirBounds) {
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 1000; ++i) {
    const double size = std::ldexp(1, static_cast<int>(random() % 200) - 100);
    stats::TensorStats stats = stats_of(normal(random) * size, normal(random) * size, 0,
                                        std::abs(normal(random)) * size * 10, 1 + random() % 999);
    const double rms = stats.l2_norm / std::sqrt(static_cast<double>(stats.count));
    stats.mean = (static_cast<double>(random() % 2001) / 1000 - 1) * rms;
    stats.sketch.emplace();
    double largest = 0;
    for (float& sum : *stats.sketch) {
      sum = static_cast<float>(normal(random) * stats.l2_norm / 4);
      largest = std::max(largest, std::abs(static_cast<double>(sum)));
    }
    ASSERT_TRUE(can_be_rounded(stats));
    const stats::TensorStats kept = rounded(stats);
    EXPECT_NEAR(kept.l2_norm, stats.l2_norm, kNumberError * stats.l2_norm);
    EXPECT_NEAR(kept.min, stats.min, kNumberError * std::abs(stats.min));
    EXPECT_NEAR(kept.max, stats.max, kNumberError * std::abs(stats.max));
    EXPECT_NEAR(kept.mean, stats.mean, 1.001 * (kMeanError + kNumberError) * rms);
    for (size_t k = 0; k < stats.sketch->size(); ++k)
      EXPECT_NEAR((*kept.sketch)[k], (*stats.sketch)[k],
                  1.001 * kSumError * (largest + stats.l2_norm / 32));
  }
}

TEST(RoundedStatistics, AreNotMadeOfWhatDoesNotFit) {
  EXPECT_FALSE(can_be_rounded(stats_of(0, 1, 0, 1e300, 4)));  // beyond float32
  EXPECT_FALSE(can_be_rounded(stats_of(0, 1e-40, 0, 1, 4)));  // a float32 of few bits
  stats::TensorStats large = stats_of(0, 1, 0, 1, 4);
  large.sketch.emplace();
  large.sketch->fill(9);  // no sketch of these numbers has such sums
  EXPECT_FALSE(can_be_rounded(large));
}

TEST(RoundedStatistics, OfNoFiniteValueStayUnknown) {
  stats::TensorStats empty;
  EXPECT_TRUE(can_be_rounded(empty));
  EXPECT_TRUE(std::isnan(rounded(empty).min));
  EXPECT_TRUE(std::isnan(rounded(empty).mean));
}

TEST(ExactStatistics, AreReadBackAsTheyWere) {
  std::vector<stats::TensorStats> all = {stats_of(-1e300, 1e-300, 0.1, 1e301, 7), {}};
  all[0].sketch.emplace();
  (*all[0].sketch)[3] = 0.1F;
  const Columns columns = pack_exact(all);
  std::vector<stats::TensorStats> read(2);
  read[0].count = 7;
  read[0].sketch.emplace();
  ASSERT_TRUE(unpack_exact(columns, &read));
  EXPECT_EQ(read[0], all[0]);
}

TEST(UnpackStatistics, RefusesColumnsOfAnotherLengthAndNumbersThatAreNone) {
  std::vector<stats::TensorStats> all = {stats_of(0, 1, 0, 1, 4)};
  Columns columns = pack_rounded(all);
  columns.min.pop_back();
  EXPECT_FALSE(unpack_rounded(columns, &all));
  columns = pack_rounded(all);
  columns.sketches = "more";
  EXPECT_FALSE(unpack_rounded(columns, &all));
  columns = pack_rounded(all);
  columns.l2 = "\x7f\xc0\x01";  // NaN
  EXPECT_FALSE(unpack_rounded(columns, &all));
  columns.l2 = "\xbf\x80\x01";  // a negative norm
  EXPECT_FALSE(unpack_rounded(columns, &all));
}

}  // namespace
}  // namespace assay::run::fingerprint
