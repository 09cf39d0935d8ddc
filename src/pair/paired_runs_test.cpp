// SPDX-License-Identifier: Apache-2.0
#include "pair/paired_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::pair {
namespace {

using run::TensorRecord;
using testing::ElementsAre;

TensorRecord record(std::string node, int64_t step, int rank = 0) {
  TensorRecord one;
  one.node = std::move(node);
  one.step = step;
  one.step_name = std::to_string(step);
  one.rank = rank;
  return one;
}

run::Run run_of(std::vector<TensorRecord> records) {
  run::Run run;
  run.layout = run::Layout::Native;
  run.records = std::move(records);
  return run;
}

std::vector<std::string> operands(const run::Run& run) {
  std::vector<std::string> names;
  for (const TensorRecord& one : run.records) {
    if (one.kind == run::RecordKind::Operand)
      names.push_back(std::to_string(one.step) + " " + one.node);
  }
  return names;
}

TEST(PairedRuns, MineHasGoldensStepsAndTheOthersAreLeftOut) {
  const run::Run golden = run_of({record("w", -1), record("a", 0), record("a", 1)});
  const run::Run mine = run_of({record("w", -1), record("a", 4), record("a", 5)});

  const auto runs = PairedRuns::make(golden, mine, {.step_pairs = {{1, 5}}}).value();

  EXPECT_THAT(operands(runs.golden()), ElementsAre("-1 w", "1 a"));
  EXPECT_THAT(operands(runs.mine()), ElementsAre("-1 w", "1 a"));
  EXPECT_EQ(runs.mine().records[2].step_name, "1");
  EXPECT_EQ(runs.step_of_mine(1), 5);
}

TEST(PairedRuns, KeepsTheRanksOfTheUser) {
  const run::Run golden = run_of({record("a", 0, 0), record("a", 0, 1)});

  const auto runs =
      PairedRuns::make(golden, golden, *correspond(golden, golden, {.ranks = {1}})).value();

  EXPECT_EQ(runs.mine().records[0].kind, run::RecordKind::WatchedAgain);
  EXPECT_EQ(runs.mine().records[1].kind, run::RecordKind::Operand);
}

TEST(PairedRuns, MineHasGoldensNamesAndGetsItsOwnBack) {
  run::Run mine = run_of(
      {record("h.0.w2", 0), record("h.0.w2.act::aten.relu.default.0", 0), record("h.0.w20", 0)});
  mine.records[0].leaf = "h.0.w2.weight";

  const auto runs =
      PairedRuns::make(run_of({}), mine, {.modules = {{"layers.0.down", "h.0.w2"}}}).value();

  EXPECT_THAT(
      operands(runs.mine()),
      ElementsAre("0 layers.0.down", "0 layers.0.down.act::aten.relu.default.0", "0 h.0.w20"));
  EXPECT_EQ(runs.mine().records[0].leaf, "layers.0.down.weight");
  EXPECT_EQ(runs.name_of_mine("layers.0.down.act::aten.relu.default.0"),
            "h.0.w2.act::aten.relu.default.0");
  EXPECT_EQ(runs.name_of_mine("layers.0.downwards"), "layers.0.downwards");
}

TEST(PairedRuns, ExchangesTwoNames) {
  const run::Run mine = run_of({record("a", 0), record("b", 0)});

  const auto runs =
      PairedRuns::make(run_of({}), mine, {.modules = {{"a", "b"}, {"b", "a"}}}).value();

  EXPECT_THAT(operands(runs.mine()), ElementsAre("0 b", "0 a"));
}

TEST(PairedRuns, AModuleWhoseNameTheUserGaveAwayIsNotPaired) {
  const run::Run mine = run_of({record("a", 0), record("b", 0)});

  const auto runs = PairedRuns::make(run_of({}), mine, {.modules = {{"a", "b"}}}).value();

  EXPECT_THAT(operands(runs.mine()), ElementsAre("0 a (not paired)", "0 a"));
  EXPECT_EQ(runs.name_of_mine("a"), "b");
  EXPECT_EQ(runs.name_of_mine("a (not paired)"), "a");
}

TEST(PairedRuns, SingleProcessesAreTheSameWhateverTheirNumber) {
  const run::Run golden = run_of({record("a", 0, 3)});
  const run::Run mine = run_of({record("a", 0, 1)});

  const Correspondence pairs = *correspond(golden, mine, {});
  const auto runs = PairedRuns::make(golden, mine, pairs).value();

  EXPECT_TRUE(PairedRuns::are_needed(pairs));
  EXPECT_EQ(runs.mine().records[0].rank, 3);
  EXPECT_EQ(runs.rank_of_mine(3), 1);
  EXPECT_FALSE(PairedRuns::are_needed(*correspond(golden, golden, {})));
}

TEST(Correspond, PairsTheOnlyStepsOfTwoFolders) {
  run::Run golden = run_of({record("a", 0)});
  run::Run mine = run_of({record("a", 5)});
  EXPECT_TRUE(correspond(golden, mine, {})->step_pairs.empty());

  golden.path = "golden/cpu_1/0";
  mine.path = "mine/cpu_2/5";
  EXPECT_THAT(correspond(golden, mine, {})->step_pairs, ElementsAre(std::pair(0, 5)));
}

TEST(PairedRuns, SaysWhatIsInNoRun) {
  const run::Run one = run_of({record("a", 0)});

  EXPECT_EQ(PairedRuns::make(one, one, *correspond(one, one, {.ranks = {7}})).error().message,
            "rank 7 is not present on both sides");
  EXPECT_EQ(PairedRuns::make(one, one, {.step_pairs = {{0, 3}}}).error().message,
            "step 3 of --token-map is not in mine");
}

TEST(NamedModule, IsOneOrNone) {
  const run::Run one = run_of({record("a", 0), record("a", 1), record("b", 0)});

  EXPECT_EQ(named_module(one, "a"), "a");
  EXPECT_EQ(named_module(one, "c"), "");
}

}  // namespace
}  // namespace assay::pair
