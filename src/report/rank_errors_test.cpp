// SPDX-License-Identifier: Apache-2.0
#include "report/rank_errors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Row;
using compare::Sheet;
using testing::HasSubstr;
using testing::IsEmpty;

/// `error(rank, layer)` of each rank in four layers, of one step.
Comparison comparison_of(int ranks, const std::function<double(int, int)>& error) {
  Comparison comparison;
  Sheet& sheet = comparison.sheets.emplace_back();
  for (int rank = 0; rank < ranks; ++rank) {
    for (int layer = 0; layer < 4; ++layer) {
      Row row;
      row.rank = rank;
      row.order = static_cast<uint64_t>(4 * rank + layer);
      row.label = "layers." + std::to_string(layer) + " output";
      row.comparable = true;
      row.metrics.emplace().relative_euclidean_distance = error(rank, layer);
      row.identical = error(rank, layer) == 0;
      sheet.rows.push_back(row);
    }
  }
  return comparison;
}

/// Eight ranks: tp counts fastest.
std::map<int, native::ParallelPlaces> two_by_four() {
  std::map<int, native::ParallelPlaces> parallel;
  for (int rank = 0; rank < 8; ++rank) {
    parallel[rank]["tp"] = {.rank = rank % 2, .size = 2};
    parallel[rank]["dp"] = {.rank = rank / 2, .size = 4};
  }
  return parallel;
}

TEST(SummariseRanks, NamesTheOneThatDiffers) {
  const Comparison comparison = comparison_of(
      1024, [](int rank, int layer) { return rank == 517 && layer >= 2 ? 0.2 : 0.0; });
  const auto summary = summarise_ranks(comparison, {});
  ASSERT_TRUE(summary);
  ASSERT_EQ(summary->beside.size(), 1u);
  EXPECT_EQ(summary->beside[0].rank, 517);
  EXPECT_EQ(summary->beside[0].different, 2u);
  EXPECT_EQ(summary->all_peers.pairs, 4u * 1023);
  EXPECT_EQ(summary->sentence,
            "rank 517 differs from its 1023 peers, from layers.2 output of step 0 on: 0.2 there, "
            "they are equal to golden");
}

TEST(SummariseRanks, SeesARankInTheNoiseOfAPort) {
  std::mt19937 random(3);
  std::lognormal_distribution<double> noise(-7, 0.3);
  const Comparison comparison = comparison_of(
      64, [&](int rank, int layer) { return noise(random) * (rank == 9 && layer == 3 ? 30 : 1); });
  const auto summary = summarise_ranks(comparison, {});
  ASSERT_EQ(summary->beside.size(), 1u);
  EXPECT_EQ(summary->beside[0].rank, 9);
  EXPECT_THAT(summary->sentence, HasSubstr("theirs is "));
}

TEST(SummariseRanks, NamesNoRankOfHealthyPorts) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::lognormal_distribution<double> noise(-7, 0.3);
    const Comparison comparison = comparison_of(16, [&](int, int) { return noise(random); });
    const auto summary = summarise_ranks(comparison, {});
    EXPECT_THAT(summary->beside, IsEmpty()) << seed;
    EXPECT_EQ(summary->sentence, "the 16 ranks differ alike");
  }
}

TEST(SummariseRanks, SaysWhatTheyHaveInCommon) {
  const auto of_tp_1 = comparison_of(8, [](int rank, int) { return rank % 2 == 1 ? 0.1 : 0.0; });
  // Half of the ranks: the median of eight is still that of the healthy ones.
  EXPECT_THAT(summarise_ranks(of_tp_1, two_by_four())->sentence,
              HasSubstr("the 4 ranks of tp 1 differ from their 4 peers, from layers.0 output"));
  const auto of_dp_2 = comparison_of(8, [](int rank, int) { return rank / 2 == 2 ? 0.1 : 0.0; });
  EXPECT_THAT(summarise_ranks(of_dp_2, two_by_four())->sentence,
              HasSubstr("the 2 ranks of dp 2 differ from their 6 peers"));
  EXPECT_THAT(summarise_ranks(of_dp_2, {})->sentence, HasSubstr("ranks 4-5 differ from their 6"));
  EXPECT_EQ(places_text(two_by_four(), 5), "dp 2, tp 1");
}

TEST(SummariseRanks, HasNothingToSayOfTwoRanksOrEqualOnes) {
  EXPECT_FALSE(summarise_ranks(comparison_of(2, [](int, int) { return 0.1; }), {}));
  EXPECT_THAT(summarise_ranks(comparison_of(4, [](int, int) { return 0.0; }), {})->sentence,
              IsEmpty());
}

}  // namespace
}  // namespace assay::report
