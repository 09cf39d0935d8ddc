// SPDX-License-Identifier: Apache-2.0
#include "pair/ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::pair {
namespace {

using run::TensorRecord;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// An input of integers whose sum is `prompt`, of which statistics are known.
TensorRecord prompt_of(int rank, double prompt, int64_t step = 0) {
  TensorRecord record;
  record.rank = rank;
  record.step = step;
  record.node = "model";
  record.role = Role::Input;
  record.dtype = DType::Int64;
  stats::TensorStats stats;
  stats.count = 3;
  stats.mean = stats.max = stats.min = stats.l2_norm = prompt;
  record.stats = stats;
  return record;
}

/// Stages of one rank each, in replicas.
run::Run job_of(std::vector<TensorRecord> records, int64_t stages, int64_t replicas) {
  run::Run run;
  run.records = std::move(records);
  for (const TensorRecord& record : run.records) {
    auto& places = run.parallel[record.rank];
    if (stages > 1) places["pp"] = {record.rank % stages, stages};
    if (replicas > 1) places["dp"] = {record.rank / stages, replicas};
  }
  return run;
}

std::vector<std::vector<int>> of_mine(const RankAlignment& ranks) {
  std::vector<std::vector<int>> groups;
  for (const RankGroup& group : ranks.groups) groups.push_back(group.mine);
  return groups;
}

TEST(AlignRanks, ComparesEveryReplicaWithGoldensInputs) {
  const run::Run golden = job_of({prompt_of(0, 1)}, 1, 1);
  const run::Run mine =
      job_of({prompt_of(0, 1), prompt_of(1, 2), prompt_of(2, 1), prompt_of(3, 1)}, 1, 4);
  const RankAlignment ranks = align_ranks(golden, mine, {});
  EXPECT_THAT(of_mine(ranks), ElementsAre(ElementsAre(0), ElementsAre(2), ElementsAre(3)));
  EXPECT_FALSE(ranks.groups[0].is_again);
  EXPECT_TRUE(ranks.groups[1].is_again);
  EXPECT_THAT(ranks.notes,
              ElementsAre(HasSubstr("golden has 1 replica, mine 4"),
                          "ranks 2-3 (dp 2-3) have golden's inputs: compared with it, too",
                          "rank 1 (dp 1) has other inputs than golden: not compared"));
}

TEST(AlignRanks, AReplicaHasGoldensInputsInEveryStep) {
  const run::Run golden = job_of({prompt_of(0, 1), prompt_of(0, 5, 1)}, 1, 1);
  const run::Run mine =
      job_of({prompt_of(0, 1), prompt_of(0, 5, 1), prompt_of(1, 1), prompt_of(1, 6, 1)}, 1, 2);
  EXPECT_THAT(of_mine(align_ranks(golden, mine, {})), ElementsAre(ElementsAre(0)));
}

TEST(AlignRanks, OnlyInputsOfTheFirstStageAreThoseOfTheModel) {
  const run::Run golden = job_of({prompt_of(0, 1)}, 1, 1);
  // The second stage is given what the first one computed, here of other numbers.
  const run::Run mine =
      job_of({prompt_of(0, 1), prompt_of(1, 8), prompt_of(2, 1), prompt_of(3, 9)}, 2, 2);
  const RankAlignment ranks = align_ranks(golden, mine, {});
  EXPECT_THAT(of_mine(ranks),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2), ElementsAre(3)));
  EXPECT_FALSE(ranks.groups[1].is_again);  // another stage of the first replica
  EXPECT_TRUE(ranks.groups[3].is_again);
}

TEST(AlignRanks, TheFirstReplicaStandsForGoldensWhereInputsDoNotTell) {
  const run::Run golden = job_of({prompt_of(0, 7)}, 1, 1);
  const run::Run mine = job_of({prompt_of(0, 1), prompt_of(1, 1), prompt_of(2, 2)}, 1, 3);
  const RankAlignment ranks = align_ranks(golden, mine, {});
  EXPECT_THAT(of_mine(ranks), ElementsAre(ElementsAre(0)));
  run::Run silent = golden;
  silent.records[0].role = Role::Output;
  EXPECT_THAT(of_mine(align_ranks(silent, mine, {})), ElementsAre(ElementsAre(0), ElementsAre(1)));
}

TEST(AlignRanks, RanksOfEqualShardsAreComparedOneByOne) {
  run::Run golden = job_of({prompt_of(0, 1), prompt_of(1, 1)}, 1, 1);
  run::Run mine =
      job_of({prompt_of(4, 1), prompt_of(5, 1), prompt_of(6, 1), prompt_of(7, 1)}, 1, 1);
  for (const int rank : {0, 1}) golden.parallel[rank]["tp"] = {rank, 2};
  for (const int rank : {4, 5, 6, 7})
    mine.parallel[rank] = {{"tp", {rank % 2, 2}}, {"dp", {rank / 2, 4}}};
  // The first two replicas were not captured.
  EXPECT_THAT(of_mine(align_ranks(golden, mine, {})),
              ElementsAre(ElementsAre(4), ElementsAre(5), ElementsAre(6), ElementsAre(7)));
}

TEST(AlignRanks, ReplicasOfEqualNumbersBelongTogetherWithoutLookingAtInputs) {
  const run::Run golden = job_of({prompt_of(0, 1), prompt_of(1, 2)}, 1, 2);
  const run::Run mine = job_of({prompt_of(0, 1), prompt_of(1, 9), prompt_of(2, 1)}, 1, 3);
  const RankAlignment ranks = align_ranks(golden, mine, {});
  EXPECT_THAT(of_mine(ranks), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_FALSE(ranks.has_replicas());
  EXPECT_THAT(ranks.problem, IsEmpty());
}

}  // namespace
}  // namespace assay::pair
