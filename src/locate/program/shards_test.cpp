// SPDX-License-Identifier: Apache-2.0
// What two ranks hold of a value of one process, by programs of a few numbers.
#include "locate/program/shards.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "locate/program/test_program.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using test::TestRun;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;
using Values = std::vector<double>;

/// Golden in one process and mine in two ranks, of which modules returned vectors.
class Sides {
 public:
  /// Modules in the order in which they return: inner ones first.
  void returns(const std::string& module, const Values& golden, const Values& rank0,
               const Values& rank1) {
    add(&golden_, 0, module, golden);
    add(&mine_, 0, module, rank0);
    later_.emplace_back(module, rank1);
  }

  void join() {
    for (const auto& [module, values] : later_) add(&mine_, 1, module, values);
    const Program golden = golden_.program();
    mine = mine_.program();
    join_shards(golden, pair_programs(golden, mine), &mine);
  }

  /// What golden's tensor is held against; empty: rank 0's own.
  [[nodiscard]] Values joined(const std::string& module) const {
    for (const auto& [record, recipe] : mine.joined) {
      if (mine.run->records[record].node != module) continue;
      const Result<Tensor> tensor = pair::load_operand(*mine.run, recipe);
      EXPECT_TRUE(tensor) << module;
      if (!tensor) return {};
      Values values(static_cast<size_t>(tensor->view.element_count()));
      read_values(tensor->view, 0, tensor->view.element_count(), values);
      return values;
    }
    return {};
  }

  /// Modules of rank 1 whose tensors rank 0's stand for.
  [[nodiscard]] std::vector<std::string> parts() const {
    std::vector<std::string> modules;
    for (const size_t record : mine.joined_parts) {
      EXPECT_EQ(mine.run->records[record].rank, 1);
      modules.push_back(mine.run->records[record].node);
    }
    return modules;
  }

  Program mine;

 private:
  static void add(TestRun* run, int rank, const std::string& module, const Values& values) {
    run->rank = rank;
    const auto count = static_cast<int64_t>(values.size());
    run->module_output(module, run->value(DType::Float32, {count}, values));
  }

  TestRun golden_, mine_;
  std::vector<std::pair<std::string, Values>> later_;  // of rank 1
};

TEST(JoinShards, ReplicasAreGoldensTensorOnEachRank) {
  Sides sides;
  sides.returns("norm", {1, 2, 3}, {1, 2, 3}, {1, 2, 3});
  sides.returns("head", {4, 5, 6}, {7, 8, 9}, {7, 8, 9});  // alike, and wrong: for others to judge
  sides.join();
  EXPECT_TRUE(sides.mine.is_shared);
  EXPECT_THAT(sides.mine.joined, IsEmpty());
  EXPECT_THAT(sides.parts(), ElementsAre("norm", "head"));
}

TEST(JoinShards, PartsStandOneBehindTheOther) {
  Sides sides;
  sides.returns("up", {1, 2, 3, 4}, {1, 2}, {3, 4});
  // Two matrices in one: rank 0 has the first half of each, 1 of (1, 2) and 3 of (3, 4).
  sides.returns("gate_up", {1, 2, 3, 4}, {1, 3}, {2, 4});
  sides.join();
  EXPECT_THAT(sides.joined("up"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(sides.joined("gate_up"), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(sides.parts(), ElementsAre("up", "gate_up"));
}

TEST(JoinShards, PartialSumsAreAddedUpAsTheModuleAroundThemDoes) {
  Sides sides;
  // 1 + 3 = 4, 2 + 5 = 7, -3 + 1 = -2, 5 - 4 = 1
  sides.returns("mlp.down", {4, 7, -2, 1}, {1, 2, -3, 5}, {3, 5, 1, -4});
  sides.returns("mlp", {4, 7, -2, 1}, {4, 7, -2, 1}, {4, 7, -2, 1});
  sides.join();
  EXPECT_THAT(sides.joined("mlp.down"), ElementsAre(4, 7, -2, 1));
  EXPECT_THAT(sides.joined("mlp"), IsEmpty());
  EXPECT_THAT(sides.parts(), ElementsAre("mlp.down", "mlp"));
}

TEST(JoinShards, WhatDoesNotFitTogetherStaysApart) {
  Sides sides;
  // 0.5 of 8.4 apart: too much for replicas, too little for partial sums.
  sides.returns("norm", {4, 7, -2, 1}, {4, 7, -2, 1}, {4, 7, -2, 1.5});
  sides.returns("up", {1, 2, 3, 4}, {1, 2, 3}, {3, 4, 5});  // six values are no four
  sides.join();
  EXPECT_FALSE(sides.mine.is_shared);
  EXPECT_THAT(sides.mine.joined, IsEmpty());
  EXPECT_THAT(sides.parts(), IsEmpty());
}

TEST(JoinShards, SumsThatNobodyAddsUpAreNone) {
  Sides sides;
  sides.returns("mlp.down", {4, 7, -2, 1}, {1, 2, -3, 5}, {3, 5, 1, -4});
  sides.returns("mlp", {4, 7, -2, 1}, {1, 2, -3, 5}, {3, 5, 1, -4});  // its sum is missing
  sides.returns("norm", {1, 2}, {1, 2}, {1, 2});
  sides.join();
  EXPECT_TRUE(sides.mine.is_shared);
  EXPECT_THAT(sides.mine.joined, IsEmpty());
  EXPECT_THAT(sides.parts(), ElementsAre("norm"));
}

TEST(JoinShards, NothingIsSharedWhereEverySumWasRefused) {
  Sides sides;
  sides.returns("mlp.down", {4, 7, -2, 1}, {1, 2, -3, 5}, {3, 5, 1, -4});
  sides.join();
  EXPECT_FALSE(sides.mine.is_shared);
}

TEST(JoinShards, ASumThatOneLayerForgotIsNamedAtThatLayer) {
  Sides sides;
  for (const std::string layer : {"layers.0", "layers.1", "layers.2"}) {
    sides.returns(layer + ".mlp.down", {4, 7, -2, 1}, {1, 2, -3, 5}, {3, 5, 1, -4});
    if (layer == "layers.1") {
      sides.returns(layer + ".mlp", {4, 7, -2, 1}, {1, 2, -3, 5}, {3, 5, 1, -4});
    } else {
      sides.returns(layer + ".mlp", {4, 7, -2, 1}, {4, 7, -2, 1}, {4, 7, -2, 1});
    }
  }
  sides.join();
  // Where the others have sums, layer 1's product has one, too: what forgot it is the module.
  EXPECT_THAT(sides.mine.joined, SizeIs(3));
  EXPECT_THAT(sides.joined("layers.1.mlp.down"), ElementsAre(4, 7, -2, 1));
  EXPECT_THAT(sides.joined("layers.1.mlp"), IsEmpty());
  EXPECT_THAT(sides.parts(), ElementsAre("layers.0.mlp.down", "layers.0.mlp", "layers.1.mlp.down",
                                         "layers.2.mlp.down", "layers.2.mlp"));
}

TEST(JoinShards, ASumAmongPeersThatAreNoneIsWhatItIs) {
  Sides sides;
  for (const std::string layer : {"layers.0", "layers.1", "layers.2"}) {
    const bool is_off = layer == "layers.1";  // two halves, and nobody around them
    sides.returns(layer + ".norm", {4, 7, -2, 1},
                  is_off ? Values{1, 2, -3, 5} : Values{4, 7, -2, 1},
                  is_off ? Values{3, 5, 1, -4} : Values{4, 7, -2, 1});
    sides.returns(layer, {8, 9, 1, 3}, {8, 9, 1, 3}, {8, 9, 1, 3});
  }
  sides.join();
  EXPECT_THAT(sides.mine.joined, IsEmpty());
  EXPECT_THAT(sides.parts(), testing::Not(testing::Contains("layers.1.norm")));
  EXPECT_THAT(sides.parts(), SizeIs(5));
}

TEST(JoinShards, RunsOfAsManyProcessesAreLeftAlone) {
  TestRun golden, mine;
  for (TestRun* run : {&golden, &mine}) {
    for (run->rank = 0; run->rank < 2; ++run->rank)
      run->module_output("up", run->value(DType::Float32, {2}, {1.0 + run->rank, 2}));
  }
  const Program of_golden = golden.program();
  Program of_mine = mine.program();
  join_shards(of_golden, pair_programs(of_golden, of_mine), &of_mine);
  EXPECT_FALSE(of_mine.is_shared);
}

}  // namespace
}  // namespace assay::locate
