// SPDX-License-Identifier: Apache-2.0
#include "report/rank_errors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <tuple>

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Row;
using compare::Sheet;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

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

/// What a job of `ranks` with `places` each errs, by rank and place.
using Errors = std::vector<std::vector<double>>;
using Random = std::mt19937;

Comparison job_of(const Errors& errors) {
  Comparison comparison;
  Sheet& sheet = comparison.sheets.emplace_back();
  for (size_t rank = 0; rank < errors.size(); ++rank) {
    for (size_t place = 0; place < errors[rank].size(); ++place) {
      const double error = errors[rank][place];
      if (std::isnan(error)) continue;
      Row row;
      row.rank = static_cast<int>(rank);
      row.order = place;
      row.label = "layers." + std::to_string(place) + " output";
      row.comparable = true;
      row.metrics.emplace().relative_euclidean_distance = error;
      sheet.rows.push_back(row);
    }
  }
  return comparison;
}

Errors noise_of(size_t ranks, size_t places, double sigma, Random& random) {
  std::lognormal_distribution<double> noise(-7, sigma);
  Errors errors(ranks, std::vector<double>(places));
  for (auto& of_rank : errors) std::ranges::generate(of_rank, [&] { return noise(random); });
  return errors;
}

struct World {
  const char* name;
  std::function<Errors(Random&)> errors;
  int jobs;
  double least_fault = 0;  // what is planted is at least that large
};

/// What healthy jobs look like, other than with independent noise of one size.
std::vector<World> healthy_worlds() {
  std::vector<World> worlds;
  for (const double sigma : {0.3, 0.5, 0.7}) {
    for (const auto& [ranks, places, jobs] : {std::tuple(4, 40, 60), std::tuple(16, 4, 60),
                                              std::tuple(64, 40, 30), std::tuple(1024, 40, 1)}) {
      worlds.push_back({"noise",
                        [=](Random& random) {
                          return noise_of(static_cast<size_t>(ranks), static_cast<size_t>(places),
                                          sigma, random);
                        },
                        jobs});
    }
  }
  for (const double factor : {2.0, 3.0, 5.0}) {
    worlds.push_back({"a quarter of the hosts is other hardware",
                      [=](Random& random) {
                        Errors errors = noise_of(64, 40, 0.3, random);
                        for (size_t rank = 0; rank < 64; rank += 4)
                          for (double& error : errors[rank]) error *= factor;
                        return errors;
                      },
                      30});
  }
  worlds.push_back({"each rank has a size of its own",
                    [](Random& random) {
                      std::lognormal_distribution<double> size(0, 0.5);
                      Errors errors = noise_of(64, 40, 0.3, random);
                      for (auto& of_rank : errors) {
                        const double factor = size(random);
                        for (double& error : of_rank) error *= factor;
                      }
                      return errors;
                    },
                    30});
  for (const double sigma : {1.0, 1.5, 2.0}) {
    for (const size_t ranks : {3U, 4U, 5U, 8U, 16U}) {
      worlds.push_back({"few ranks with sizes far apart",
                        [=](Random& random) {
                          std::lognormal_distribution<double> size(0, sigma);
                          Errors errors = noise_of(ranks, 40, 0.4, random);
                          for (auto& of_rank : errors) {
                            // More than a tenth is no noise.
                            const double factor = std::min(size(random), 30.0) / 100;
                            for (double& error : of_rank) error *= factor;
                          }
                          return errors;
                        },
                        20, 0.5});
    }
  }
  worlds.push_back({"experts with one to sixty tokens",
                    [](Random& random) {
                      Errors errors = noise_of(64, 40, 0.3, random);
                      for (auto& of_rank : errors) {
                        for (double& error : of_rank) {
                          const int tokens = std::uniform_int_distribution(1, 60)(random);
                          std::chi_squared_distribution<double> squares(tokens);
                          error *= std::sqrt(squares(random) / tokens);
                        }
                      }
                      return errors;
                    },
                    30});
  worlds.push_back({"a rank has a fifth of the places",
                    [](Random& random) {
                      Errors errors = noise_of(64, 40, 0.5, random);
                      for (auto& of_rank : errors) {
                        for (double& error : of_rank)
                          if (std::uniform_int_distribution(0, 4)(random) > 0) error = NAN;
                      }
                      return errors;
                    },
                    30});
  return worlds;
}

TEST(SummariseRanks, NamesNoRankInWorldsOfOtherNoise) {
  for (const World& world : healthy_worlds()) {
    size_t named = 0;
    for (int job = 0; job < world.jobs; ++job) {
      Random random(static_cast<unsigned>(job));
      named += summarise_ranks(job_of(world.errors(random)), {})->beside.empty() ? 0 : 1;
    }
    EXPECT_EQ(named, 0u) << world.name << ", of " << world.jobs << " jobs";
  }
}

TEST(SummariseRanks, FindsARankInThoseWorlds) {
  for (const World& world : healthy_worlds()) {
    Random random(99);
    Errors errors = world.errors(random);
    std::vector<double>& of_rank = errors[2];
    for (size_t place = of_rank.size() / 2; place < of_rank.size(); ++place)
      of_rank[place] = std::max(world.least_fault, 200 * of_rank[place]);
    const auto summary = summarise_ranks(job_of(errors), {});
    ASSERT_EQ(summary->beside.size(), 1u) << world.name;
    EXPECT_EQ(summary->beside[0].rank, 2) << world.name;
  }
}

TEST(SummariseRanks, OfThreeRanksOnlyALargeErrorIsNoNoise) {
  const auto named = [](double error) {
    const auto comparison = comparison_of(3, [=](int rank, int layer) {
      return rank == 2 ? error : 1e-6 * (1 + 0.1 * rank + 0.01 * layer);
    });
    return summarise_ranks(comparison, {})->beside.size();
  };
  // Two that are alike do not tell how far a third may be.
  EXPECT_EQ(named(5e-4), 0u);
  EXPECT_EQ(named(0.3), 1u);
}

TEST(SummariseRanks, SaysWhereRoundingAloneMayDoThat) {
  const auto of_size = [](double error) {
    Comparison comparison =
        comparison_of(8, [=](int rank, int) { return rank == 3 ? error : 0.0; });
    for (Row& row : comparison.sheets[0].rows)
      row.golden.dtype = row.mine.dtype = "torch.bfloat16";  // rounds by 2^-9 at most
    return summarise_ranks(comparison, {})->sentence;
  };
  EXPECT_THAT(of_size(2e-3), HasSubstr("rank 3 differs from its 7 peers"));
  EXPECT_THAT(of_size(2e-3), HasSubstr("they are equal to golden; rounding alone may do that"));
  EXPECT_THAT(of_size(2e-2), Not(HasSubstr("rounding")));
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
