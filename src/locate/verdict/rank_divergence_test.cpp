// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/rank_divergence.hpp"

#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;

/// Outputs of a part of a product (another in each rank), of the sum over ranks, and of a norm
/// behind it.
void fill(TestRun& run, const std::vector<double>& sums, double behind) {
  for (size_t rank = 0; rank < sums.size(); ++rank) {
    run.rank = static_cast<int>(rank);
    const auto part = static_cast<double>(rank + 1);
    run.module_input("model", "ids", run.value(DType::Int64, {2}, {4, 7}));
    run.module_output("proj", run.value(DType::Float32, {2}, {part, 2 * part}));
    run.module_output("sum", run.value(DType::Float32, {2}, {sums[rank], 6}));
    run.module_output("norm", run.value(DType::Float32, {2}, {behind, 1}));
  }
  for (run::TensorRecord& record : run.run().records)
    if (record.node == "sum") record.op_type = "AllReduceOperation";
}

std::vector<Finding> search(TestRun& golden, TestRun& mine) {
  return find_rank_divergence(golden.run(), mine.run(), nullptr).value();
}

TEST(RankDivergence, AReplicatedTensorThatDiffersIsNamedWithTheLastCommunication) {
  TestRun golden;
  fill(golden, {3, 3}, 1);
  TestRun mine;
  fill(mine, {3, 3.5}, 1);
  const std::vector<Finding> found = search(golden, mine);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, FindingKind::RankDivergence);
  EXPECT_EQ(found[0].module, "sum");
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_NE(found[0].detail.find("rank 1 holds other values than rank 0"), std::string::npos);
  EXPECT_NE(found[0].detail.find("AllReduceOperation"), std::string::npos);
}

TEST(RankDivergence, IsFoundAmongTheRanksThatTheUserDidNotLeaveOut) {
  TestRun golden;
  fill(golden, {3, 3, 3}, 1);
  TestRun mine;
  fill(mine, {3, 3, 3.5}, 1);
  for (TestRun* run : {&golden, &mine}) {
    for (run::TensorRecord& record : run->run().records)
      if (record.rank == 0) record.kind = run::RecordKind::WatchedAgain;
  }
  const std::vector<Finding> found = search(golden, mine);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].rank, 2);
}

TEST(RankDivergence, PartsOfASumMayDiffer) {
  TestRun golden;
  fill(golden, {3, 3}, 1);
  TestRun mine;
  fill(mine, {3, 3}, 1);
  EXPECT_TRUE(search(golden, mine).empty());
}

TEST(RankDivergence, AGoldenOfOneRankSaysWhatIsWhole) {
  // Given the whole product [3, 6] of one rank, of which the ranks of the run under test have parts
  TestRun golden;
  golden.module_output("proj", golden.value(DType::Float32, {2}, {3, 6}));
  golden.module_output("sum", golden.value(DType::Float32, {2}, {3, 6}));
  TestRun mine;
  fill(mine, {3, 3.5}, 1);
  const std::vector<Finding> found = search(golden, mine);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].module, "sum");
}

/// One rank of a job: what it is given, and what a module of it makes of that.
void add_rank(TestRun& run, int rank, const std::vector<double>& ids, double output) {
  run.rank = rank;
  run.module_input("model", "ids", run.value(DType::Int64, {2}, ids));
  run.module_input("model", "mask", run.value(DType::Float32, {2}, {1, 1}));
  run.module_output("layers.0", run.value(DType::Float32, {2}, {output, 1}));
}

TEST(RankDivergence, ReplicasWithOtherRequestsShareNothing) {
  TestRun golden;
  add_rank(golden, 0, {4, 7}, 3);
  TestRun mine;
  add_rank(mine, 0, {4, 7}, 3);
  add_rank(mine, 1, {5, 7}, 30);  // another prompt
  EXPECT_TRUE(search(golden, mine).empty());
  add_rank(mine, 2, {4, 7}, 30);  // the first one's
  ASSERT_EQ(search(golden, mine).size(), 1u);
  EXPECT_EQ(search(golden, mine)[0].rank, 2);
}

TEST(RankDivergence, StagesThatNumberTheirLayersAlikeShareNothing) {
  TestRun golden;
  add_rank(golden, 0, {4, 7}, 3);
  TestRun mine;
  add_rank(mine, 0, {4, 7}, 3);
  add_rank(mine, 1, {4, 7}, 30);
  EXPECT_EQ(search(golden, mine).size(), 1u);  // nobody says that these are stages
  for (const int rank : {0, 1}) mine.run().parallel[rank]["pp"] = {.rank = rank, .size = 2};
  EXPECT_TRUE(search(golden, mine).empty());
  // Ranks of one stage do share.
  for (const int rank : {0, 1}) mine.run().parallel[rank] = {{"tp", {.rank = rank, .size = 2}}};
  EXPECT_EQ(search(golden, mine).size(), 1u);
}

TEST(RankDivergence, AGoldenOfOneRankSaysNothingOfRanksWithoutInputs) {
  const auto without_inputs = [](TestRun& run, int rank, double output) {
    run.rank = rank;
    run.module_output("layers.0", run.value(DType::Float32, {2}, {output, 1}));
  };
  TestRun golden;
  without_inputs(golden, 0, 3);
  TestRun mine;
  without_inputs(mine, 0, 3);
  without_inputs(mine, 1, 30);  // another request, another stage, or wrong
  EXPECT_TRUE(search(golden, mine).empty());
  without_inputs(golden, 1, 3);  // golden's ranks hold it alike
  EXPECT_EQ(search(golden, mine).size(), 1u);
}

TEST(RankDivergence, OneRankHasNothingToDifferFrom) {
  TestRun golden;
  fill(golden, {3, 3}, 1);
  TestRun mine;
  fill(mine, {3.5}, 1);
  EXPECT_TRUE(search(golden, mine).empty());
}

}  // namespace
}  // namespace assay::locate
