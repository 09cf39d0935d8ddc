// SPDX-License-Identifier: Apache-2.0
#include "run/local_numbers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::run {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Named {
  int rank;
  const char* node;
};

/// One rank a stage, but for ranks of `tp`.
Run pipeline_of(const std::vector<Named>& nodes, int64_t stages, int tp = 1) {
  run::Run run;
  for (const Named& one : nodes) {
    TensorRecord record;
    record.rank = one.rank;
    record.node = one.node;
    record.leaf = std::string(one.node) + ".weight";
    run.records.push_back(record);
    run.parallel[one.rank]["pp"] = {.rank = one.rank / tp, .size = stages};
  }
  return run;
}

std::vector<std::string> nodes_of(const Run& run) {
  std::vector<std::string> nodes;
  for (const TensorRecord& record : run.records) nodes.push_back(record.node);
  return nodes;
}

TEST(NumberStagesOn, CountsLayersOnBehindThoseOfTheStagesBefore) {
  run::Run run = pipeline_of({{0, "model.embed_tokens"},
                              {0, "model.layers.0.mlp"},
                              {0, "model.layers.1.mlp"},
                              {1, "model.layers.0.mlp"},
                              {1, "model.layers.1"},
                              {1, "model.layers.2.mlp.up"},
                              {2, "model.layers.0.mlp"},
                              {2, "model.norm"}},
                             3);
  EXPECT_EQ(number_stages_on(&run),
            "3 stages of the pipeline number their layers from 0: they are numbered on, so that "
            "those of stage 1 begin with 2");
  EXPECT_THAT(nodes_of(run),
              ElementsAre("model.embed_tokens", "model.layers.0.mlp", "model.layers.1.mlp",
                          "model.layers.2.mlp", "model.layers.3", "model.layers.4.mlp.up",
                          "model.layers.5.mlp", "model.norm"));
  EXPECT_EQ(run.records[5].leaf, "model.layers.4.mlp.up.weight");
  EXPECT_EQ(run.own_names.at("model.layers.4.mlp.up"), "model.layers.2.mlp.up");
  EXPECT_FALSE(run.own_names.contains("model.layers.1.mlp"));  // of the first stage
  EXPECT_THAT(number_stages_on(&run), IsEmpty());              // they are numbered through now
}

TEST(NumberStagesOn, LeavesStagesThatNumberThrough) {
  run::Run run =
      pipeline_of({{0, "model.layers.0"}, {0, "model.layers.1"}, {1, "model.layers.2"}}, 2);
  EXPECT_THAT(number_stages_on(&run), IsEmpty());
  EXPECT_THAT(nodes_of(run), ElementsAre("model.layers.0", "model.layers.1", "model.layers.2"));
}

TEST(NumberStagesOn, RanksOfOneStageHaveTheSameLayers) {
  run::Run through =
      pipeline_of({{0, "layers.0"}, {1, "layers.0"}, {2, "layers.1"}, {3, "layers.1"}}, 2, 2);
  EXPECT_THAT(number_stages_on(&through), IsEmpty());
  run::Run alike =
      pipeline_of({{0, "layers.0"}, {1, "layers.0"}, {2, "layers.0"}, {3, "layers.0"}}, 2, 2);
  EXPECT_FALSE(number_stages_on(&alike).empty());
  EXPECT_THAT(nodes_of(alike), ElementsAre("layers.0", "layers.0", "layers.1", "layers.1"));
}

TEST(NumberStagesOn, NeedsToKnowTheStageOfEveryRank) {
  run::Run run = pipeline_of({{0, "layers.0"}, {1, "layers.0"}}, 2);
  run.parallel.erase(1);
  EXPECT_THAT(number_stages_on(&run), IsEmpty());
  run.parallel.clear();
  EXPECT_THAT(number_stages_on(&run), IsEmpty());
}

// ---- experts ----

struct Held {
  int rank;
  std::vector<int> experts;
};

/// places  of ep; 0: they are not known
Run experts_of(const std::vector<Held>& ranks, int64_t places) {
  run::Run run;
  for (const Held& held : ranks) {
    for (const int expert : held.experts) {
      TensorRecord record;
      record.rank = held.rank;
      record.node = "layers.1.mlp.experts." + std::to_string(expert) + ".up";
      run.records.push_back(record);
    }
    if (places > 0) run.parallel[held.rank]["ep"] = {.rank = held.rank % places, .size = places};
  }
  return run;
}

std::vector<std::string> numbers_of(const Run& run) {
  std::vector<std::string> numbers;
  for (const TensorRecord& record : run.records)
    if (record.kind == RecordKind::Operand) numbers.push_back(record.node.substr(21, 1));
  return numbers;
}

TEST(NumberExpertsOn, BehindThoseOfThePlacesBefore) {
  run::Run golden = experts_of({{0, {0, 1, 2, 3, 4, 5, 6, 7}}}, 0);
  run::Run mine = experts_of({{0, {0, 1}}, {1, {0, 1}}, {2, {1}}, {3, {0}}}, 4);
  EXPECT_THAT(
      number_experts_on(&golden, &mine),
      ElementsAre("mine: experts are numbered from 0 in each of 4 places of ep: they are numbered "
                  "on, 2 a place, so that those of ep 1 begin with 2"));
  EXPECT_THAT(numbers_of(mine), ElementsAre("0", "1", "2", "3", "5", "6"));
  EXPECT_THAT(numbers_of(golden), ElementsAre("0", "1", "2", "3", "4", "5", "6", "7"));
  EXPECT_EQ(mine.own_names.at("layers.1.mlp.experts.6.up"), "layers.1.mlp.experts.0.up");
}

TEST(NumberExpertsOn, OfPlacesThatHaveNoNumberInCommon) {
  run::Run golden = experts_of({{0, {0, 3}}}, 0);
  run::Run mine = experts_of({{0, {0}}, {1, {1}}}, 2);  // most experts were given no tokens
  EXPECT_FALSE(number_experts_on(&golden, &mine).empty());
  EXPECT_THAT(numbers_of(mine), ElementsAre("0", "3"));
}

TEST(NumberExpertsOn, TakesTheirCountFromTheTree) {
  run::Run golden = experts_of({{0, {0, 5}}}, 0);
  golden.topology = TopologyNode{"", "Model", {{"layers.1.mlp.experts.7", "Expert", {}}}};
  run::Run mine = experts_of({{0, {0, 1}}, {1, {0, 1}}}, 2);
  EXPECT_FALSE(number_experts_on(&golden, &mine).empty());
  EXPECT_THAT(numbers_of(mine), ElementsAre("0", "1", "4", "5"));
}

TEST(NumberExpertsOn, LeavesThoseThatAreNumberedThrough) {
  run::Run golden = experts_of({{0, {0, 1, 2, 3}}}, 0);
  run::Run mine = experts_of({{0, {0, 1}}, {1, {2, 3}}}, 2);
  EXPECT_THAT(number_experts_on(&golden, &mine), IsEmpty());
  run::Run copied = experts_of({{0, {0, 1, 3}}, {1, {2, 3, 0}}}, 2);  // two that are asked often
  EXPECT_THAT(number_experts_on(&golden, &copied), IsEmpty());
  EXPECT_THAT(numbers_of(copied), ElementsAre("0", "1", "3", "2", "3", "0"));
}

TEST(NumberExpertsOn, LeavesTwoRunsThatNumberAlike) {
  run::Run golden = experts_of({{0, {0, 1}}, {1, {0, 1}}}, 2);
  run::Run mine = experts_of({{0, {0, 1}}, {1, {0}}}, 2);
  EXPECT_THAT(number_experts_on(&golden, &mine), IsEmpty());
  EXPECT_THAT(numbers_of(mine), ElementsAre("0", "1", "0"));
  run::Run more = experts_of({{0, {0, 1}}, {1, {0, 1}}, {2, {0, 1}}, {3, {0, 1}}}, 2);
  EXPECT_THAT(number_experts_on(&golden, &more), testing::SizeIs(2));  // ranks are put together
  EXPECT_THAT(numbers_of(more), ElementsAre("0", "1", "2", "3", "0", "1", "2", "3"));
}

TEST(NumberExpertsOn, OfUnknownPlacesOnlyTheFirstAreCompared) {
  run::Run golden = experts_of({{0, {0, 1, 2, 3}}}, 0);
  run::Run mine = experts_of({{4, {0, 1}}, {5, {0, 1}}}, 0);
  EXPECT_THAT(number_experts_on(&golden, &mine),
              ElementsAre(testing::HasSubstr("each of 2 ranks has some below 2, the other run has "
                                             "4; only those of rank 4 are compared, --parallel")));
  EXPECT_THAT(numbers_of(mine), ElementsAre("0", "1"));
  run::Run whole = experts_of({{0, {0, 1, 2, 3}}, {1, {0, 1, 3}}}, 0);  // shards, or replicas
  EXPECT_THAT(number_experts_on(&golden, &whole), IsEmpty());
  EXPECT_THAT(numbers_of(whole), testing::SizeIs(7));
}

TEST(NumberExpertsOn, BehindLayersThatAreNumberedOn) {
  run::Run golden;
  run::Run mine;
  for (const int layer : {0, 1}) {
    for (const int expert : {0, 1}) {
      TensorRecord record;
      record.node = "layers." + std::to_string(layer) + ".experts." + std::to_string(expert);
      golden.records.push_back(record);
      record.rank = 2 * layer + expert;
      record.node = "layers.0.experts.0";
      mine.records.push_back(record);
      mine.parallel[record.rank] = {{"pp", {layer, 2}}, {"ep", {expert, 2}}};
    }
  }
  EXPECT_FALSE(number_stages_on(&mine).empty());
  EXPECT_FALSE(number_experts_on(&golden, &mine).empty());
  EXPECT_EQ(nodes_of(mine), nodes_of(golden));
  EXPECT_EQ(mine.own_names.at("layers.1.experts.1"), "layers.0.experts.0");
}

// ---- trees ----

TopologyNode tree_of(std::vector<TopologyNode> layers, std::vector<TopologyNode> behind = {}) {
  TopologyNode root{"", "Model", {{"layers", "ModuleList", std::move(layers)}}};
  for (TopologyNode& node : behind) root.children.push_back(std::move(node));
  return root;
}

TopologyNode layer(const std::string& number) {
  const std::string name = "layers." + number;
  return {name, "Layer", {{name + ".mlp", "MLP", {}}}};
}

std::vector<std::string> names_of(const TopologyNode& node) {
  std::vector<std::string> names{node.name};
  for (const TopologyNode& child : node.children)
    for (std::string& name : names_of(child)) names.push_back(std::move(name));
  return names;
}

TEST(JoinTrees, OfStagesThatNumberFromZero) {
  run::Run run = pipeline_of({{0, "layers.0"}, {1, "layers.0"}, {2, "layers.0"}}, 3);
  // The first two stages have the same tree.
  run.rank_trees = {{{0, 1}, tree_of({layer("0")})},
                    {{2}, tree_of({layer("0")}, {{"norm", "Norm", {}}})}};
  EXPECT_FALSE(number_stages_on(&run).empty());
  join_trees(&run);
  ASSERT_TRUE(run.topology);
  EXPECT_THAT(names_of(*run.topology),
              ElementsAre("", "layers", "layers.0", "layers.0.mlp", "layers.1", "layers.1.mlp",
                          "layers.2", "layers.2.mlp", "norm"));
  EXPECT_THAT(run.rank_trees, IsEmpty());
}

TEST(JoinTrees, KeepsTheOrderOfListsAndOfTheirNeighbours) {
  run::Run run;
  const TopologyNode missing{"layers.2", "PPMissingLayer", {}};
  run.rank_trees = {
      {{0}, tree_of({layer("0"), missing, layer("10")}, {{"head", "Linear", {}}})},
      {{1}, tree_of({layer("2"), layer("9")}, {{"norm", "Norm", {}}, {"head", "Linear", {}}})}};
  join_trees(&run);
  ASSERT_TRUE(run.topology);
  EXPECT_THAT(
      names_of(*run.topology),
      ElementsAre("", "layers", "layers.0", "layers.0.mlp", "layers.2", "layers.2.mlp", "layers.9",
                  "layers.9.mlp", "layers.10", "layers.10.mlp", "norm", "head"));
  EXPECT_EQ(run.topology->children[0].children[1].type, "Layer");
}

TEST(JoinTrees, LeavesTheOneTreeOfAllRanks) {
  run::Run run;
  run.topology = tree_of({layer("0")});
  run.rank_trees = {{{0, 1, 2}, tree_of({layer("0")})}};
  join_trees(&run);
  EXPECT_THAT(names_of(*run.topology), ElementsAre("", "layers", "layers.0", "layers.0.mlp"));
}

}  // namespace
}  // namespace assay::run
