// SPDX-License-Identifier: Apache-2.0
#include "pair/match.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "pair/policies.hpp"
#include "pair/tree.hpp"
#include "vendor/msit/pairs.hpp"

namespace assay::pair {
namespace {

using run::TensorRecord;
using run::TopologyNode;

/// What a command does: finds out what corresponds as a whole, then pairs the tensors.
Result<Matching> match(const run::Run& golden, const run::Run& mine, const MatchOptions& options,
                       const UserRules& user = {}) {
  ASSAY_TRY(const Correspondence pairs, correspond(golden, mine, user));
  return match_runs(golden, mine, pairs, options);
}

TensorRecord output(const std::string& node, const std::string& slot = "", int64_t step = 0) {
  TensorRecord record;
  record.node = node;
  record.slot = slot;
  record.step = step;
  record.step_name = std::to_string(step);
  record.bytes.emplace();
  record.bytes->file =
      "/r/" + record.step_name + "/" + node + "/output" + (slot.empty() ? "" : "_" + slot) + ".pth";
  return record;
}

run::Run make_run(std::vector<TensorRecord> records,
                  std::optional<TopologyNode> topology = std::nullopt,
                  run::Layout layout = run::Layout::TorchTree) {
  run::Run run;
  run.path = "/r";
  run.layout = layout;
  run.records = std::move(records);
  for (size_t i = 0; i < run.records.size(); ++i) run.records[i].order = i;
  run.topology = std::move(topology);
  return run;
}

// root -> root.model -> root.model.layers (ModuleList) -> n layers with self_attn and mlp;
// root.lm_head
TopologyNode llama(int layer_count, const std::string& layer_type = "LlamaDecoderLayer") {
  TopologyNode layers{"root.model.layers", "ModuleList", {}, {}};
  for (int i = 0; i < layer_count; ++i) {
    const std::string name = "root.model.layers." + std::to_string(i);
    layers.children.push_back(
        {name,
         layer_type,
         {{name + ".self_attn", "LlamaAttention", {}, {}}, {name + ".mlp", "LlamaMLP", {}, {}}},
         {}});
  }
  TopologyNode model{
      "root.model", "LlamaModel", {{"root.model.embed_tokens", "Embedding", {}, {}}, layers}, {}};
  return {"root", "LlamaForCausalLM", {model, {"root.lm_head", "Linear", {}, {}}}, {}};
}

void append_outputs(const TopologyNode& node, std::vector<TensorRecord>* records) {
  records->push_back(output(node.name));
  for (const TopologyNode& child : node.children) append_outputs(child, records);
}

run::Run llama_run(int layer_count) {
  std::vector<TensorRecord> records;
  append_outputs(llama(layer_count), &records);
  return make_run(std::move(records), llama(layer_count));
}

// "golden node slot -> mine node slot", in the order of the pairs
std::vector<std::string> texts(const Matching& matching, const run::Run& golden,
                               const run::Run& mine) {
  std::vector<std::string> out;
  for (const RecordPair& pair : matching.pairs) {
    const TensorRecord& g = golden.records[pair.golden];
    const TensorRecord& m = mine.records[pair.mine];
    out.push_back(g.node + ":" + g.slot + " -> " + m.node + ":" + m.slot);
  }
  return out;
}

TEST(FindLayers, TakesTheFrequentTypeBelowTheFirstNodeWithMoreThanTenChildren) {
  const Tree tree = trees_of(llama_run(12)).front();
  const Layers layers = find_layers(tree, false);
  EXPECT_EQ(layers.type, "LlamaDecoderLayer");
  ASSERT_EQ(layers.nodes.size(), 12u);
  EXPECT_EQ(tree.at(layers.nodes[11]).path, "root.model.layers.11");
}

TEST(FindLayers, LeavesModelsOfTenLayersAloneUnlessShortModelsAreAllowed) {
  const Tree tree = trees_of(llama_run(10)).front();
  EXPECT_TRUE(find_layers(tree, false).nodes.empty());
  EXPECT_EQ(find_layers(tree, true).nodes.size(), 10u);
}

TEST(FindLayers, EndsTheSearchWhereManyChildrenHaveNoCommonType) {
  // 11 children of 11 types decide that there is no layer type, although the twelve below would be
  // one.
  TopologyNode root{"root", "M", {}, {}};
  for (int i = 0; i < 11; ++i)
    root.children.push_back({"root.a" + std::to_string(i), "T" + std::to_string(i), {}, {}});
  root.children[0].children = llama(12).children[0].children[1].children;
  const run::Run run = make_run({}, root);
  EXPECT_TRUE(find_layers(trees_of(run).front(), false).type.empty());
}

TEST(MatchRuns, PairsLayersInOrderAtLayerLevel) {
  const run::Run golden = llama_run(12);
  const run::Run mine = llama_run(12);
  const auto matching =
      match(golden, mine, {.level = Level::Layer, .literal = &vendor::msit::pair_rules()});
  ASSERT_TRUE(matching);
  ASSERT_EQ(matching->pairs.size(), 12u);
  EXPECT_EQ(texts(*matching, golden, mine)[3], "root.model.layers.3: -> root.model.layers.3:");
  EXPECT_EQ(matching->pairs[0].rule, Rule::LayerMatch);
  EXPECT_EQ(matching->golden_layer_type, "LlamaDecoderLayer");
}

TEST(MatchRuns, PairsAttentionAndMlpAtModuleLevel) {
  const run::Run golden = llama_run(12);
  const run::Run mine = llama_run(12);
  const auto matching =
      match(golden, mine, {.level = Level::Module, .literal = &vendor::msit::pair_rules()});
  ASSERT_TRUE(matching);
  EXPECT_EQ(matching->pairs.size(), 24u);
  EXPECT_EQ(texts(*matching, golden, mine)[1],
            "root.model.layers.0.mlp: -> root.model.layers.0.mlp:");
}

TEST(MatchRuns, PairsEveryNodeAndTheEndOfTheModelLikeTheOriginalAtApiLevel) {
  const run::Run golden = llama_run(12);
  const run::Run mine = llama_run(12);
  const auto matching =
      match(golden, mine, {.level = Level::Api, .literal = &vendor::msit::pair_rules()});
  ASSERT_TRUE(matching);
  // 41 nodes with themselves, and the chain root, root.lm_head crosswise: two more.
  EXPECT_EQ(golden.records.size(), 41u);
  EXPECT_EQ(matching->pairs.size(), 43u);
}

TEST(MatchRuns, PairsEveryTensorOnceWithoutTheOriginalsDuplicates) {
  const run::Run golden = llama_run(12);
  const run::Run mine = llama_run(12);
  const auto matching = match(golden, mine, {.level = Level::Api});
  ASSERT_TRUE(matching);
  EXPECT_EQ(matching->pairs.size(), 41u);
  EXPECT_TRUE(matching->unmatched.empty());
  EXPECT_DOUBLE_EQ(matching->coverage_percent(), 100);
}

TEST(MatchRuns, DropsNestedGoldenOutputsAndTriesEveryCombinationLikeTheOriginal) {
  TopologyNode tree = llama(12);
  const std::string layer = "root.model.layers.0";
  const run::Run golden = make_run({output(layer, "0"), output(layer, "1.0")}, tree);
  const run::Run mine =
      make_run({output(layer, "0"), output(layer, "1.0"), output(layer, "1.1")}, tree);
  const auto matching = match(golden, mine, {.level = Level::Layer});
  ASSERT_TRUE(matching);
  EXPECT_EQ(
      texts(*matching, golden, mine),
      (std::vector<std::string>{layer + ":0 -> " + layer + ":0", layer + ":0 -> " + layer + ":1.0",
                                layer + ":0 -> " + layer + ":1.1"}));
  EXPECT_TRUE(matching->pairs[1].speculative);
}

TEST(MatchRuns, SortsOutputNamesAsTextLikeTheOriginal) {
  TopologyNode tree = llama(12);
  const std::string layer = "root.model.layers.0";
  const run::Run golden =
      make_run({output(layer, "1"), output(layer, "2"), output(layer, "10")}, tree);
  const run::Run mine =
      make_run({output(layer, "3"), output(layer, "4"), output(layer, "20")}, tree);
  const auto matching =
      match(golden, mine, {.level = Level::Layer, .literal = &vendor::msit::pair_rules()});
  ASSERT_TRUE(matching);
  // As text: 1, 10, 2 and 20, 3, 4.
  EXPECT_EQ(
      texts(*matching, golden, mine),
      (std::vector<std::string>{layer + ":1 -> " + layer + ":20", layer + ":10 -> " + layer + ":3",
                                layer + ":2 -> " + layer + ":4"}));
}

TEST(MatchRuns, PairsLeftoverSlotsByPosition) {
  // A module that returned a tensor on one side and a one-element tuple on the other.
  const run::Run golden = make_run({output("root.norm")});
  const run::Run mine = make_run({output("root.norm", "0")});
  const auto matching = match(golden, mine, {});
  ASSERT_TRUE(matching);
  ASSERT_EQ(matching->pairs.size(), 1u);
  EXPECT_EQ(matching->pairs[0].rule, Rule::EqualPosition);
}

TEST(MatchRuns, LetsStrictAndNativeNamesMeet) {
  const run::Run golden = make_run({output("root.model.norm"), output("root")});
  const run::Run mine =
      make_run({output("model.norm"), output("")}, std::nullopt, run::Layout::Native);
  const auto matching = match(golden, mine, {});
  ASSERT_TRUE(matching);
  EXPECT_EQ(matching->pairs.size(), 2u);
  EXPECT_TRUE(matching->unmatched.empty());
}

TEST(MatchRuns, PairsNodesOfOtherNamesByTypeAndPosition) {
  TopologyNode golden_tree = llama(12);
  TopologyNode mine_tree = llama(12);
  mine_tree.children[1].name = "root.output_head";
  std::vector<TensorRecord> golden_records;
  std::vector<TensorRecord> mine_records;
  append_outputs(golden_tree, &golden_records);
  append_outputs(mine_tree, &mine_records);
  const run::Run golden = make_run(golden_records, golden_tree);
  const run::Run mine = make_run(mine_records, mine_tree);
  const auto matching = match(golden, mine, {});
  ASSERT_TRUE(matching);
  const std::vector<std::string> pairs = texts(*matching, golden, mine);
  EXPECT_NE(std::find(pairs.begin(), pairs.end(), "root.lm_head: -> root.output_head:"),
            pairs.end());
  EXPECT_TRUE(matching->unmatched.empty());
}

TEST(MatchRuns, ListsWhatHasNoPartnerWithTheReason) {
  const run::Run golden = make_run({output("root.a"), output("root.b"), output("root.a", "", 7)});
  const run::Run mine = make_run({output("root.a")});
  const auto matching = match(golden, mine, {});
  ASSERT_TRUE(matching);
  ASSERT_EQ(matching->unmatched.size(), 2u);
  EXPECT_EQ(matching->unmatched[0].record, 1u);
  EXPECT_EQ(matching->unmatched[0].reason, "no node of this name or type in mine");
  EXPECT_EQ(matching->unmatched[1].reason, "step 7 is not compared: not in mine or not selected");
  // token 0: golden a matched and b not, mine a matched: 2 of 3
  EXPECT_NEAR(matching->coverage_percent(), 200.0 / 3, 1e-9);
}

TEST(MatchRuns, SaysWhichTokensTheSidesHaveWhenTheyShareNone) {
  const run::Run golden = make_run({output("root.a", "", 0), output("root.a", "", 1)});
  const run::Run mine = make_run({output("root.a", "", 5)});
  const auto matching = match(golden, mine, {});
  ASSERT_FALSE(matching);
  EXPECT_EQ(matching.error().message,
            "my tokens is [5] and golden tokens is [0, 1]. The two cannot be matched.");
}

TEST(MatchRuns, ComparesTwoNamedTokenFoldersWhateverTheirNumbers) {
  run::Run golden = make_run({output("root.a", "", 0)});
  run::Run mine = make_run({output("root.a", "", 5)});
  golden.path = "/d/cpu_1/0";
  mine.path = "/d/cpu_2/5";
  const auto matching = match(golden, mine, {});
  ASSERT_TRUE(matching);
  EXPECT_EQ(matching->pairs.size(), 1u);
}

TEST(MatchRuns, AlignsTokensByTheMap) {
  const run::Run golden = make_run({output("root.a", "", 0), output("root.a", "", 1)});
  const run::Run mine = make_run({output("root.a", "", 1), output("root.a", "", 2)});
  const auto matching = match(golden, mine, {}, {.token_map = {{0, 1}, {1, 2}}});
  ASSERT_TRUE(matching);
  ASSERT_EQ(matching->pairs.size(), 2u);
  EXPECT_EQ(golden.records[matching->pairs[0].golden].step, 0);
  EXPECT_EQ(mine.records[matching->pairs[0].mine].step, 1);
}

TEST(MatchRuns, RefusesARankThatOneSideLacks) {
  const run::Run golden = make_run({output("root.a")});
  const run::Run mine = make_run({output("root.a")});
  const auto matching = match(golden, mine, {}, {.ranks = {1}});
  ASSERT_FALSE(matching);
  EXPECT_EQ(matching.error().message, "rank 1 is not present on both sides");
}

TEST(MatchRuns, LetsExplicitPairsWin) {
  const run::Run golden = make_run({output("root.a"), output("root.b")});
  const run::Run mine = make_run({output("root.a"), output("root.b")});
  const auto matching = match(golden, mine, {}, {.explicit_pairs = {{"root.a", "root.b"}}});
  ASSERT_TRUE(matching);
  EXPECT_EQ(texts(*matching, golden, mine), (std::vector<std::string>{"root.a: -> root.b:"}));
  EXPECT_EQ(matching->unmatched.size(), 2u);
}

TEST(MatchRuns, PairsInputsOfRunsThatAreNotStrictTrees) {
  TensorRecord input = output("norm", "kwargs.x");
  input.role = Role::Input;
  const run::Run golden = make_run({input, output("norm")}, std::nullopt, run::Layout::Native);
  const run::Run mine = make_run({input, output("norm")}, std::nullopt, run::Layout::Native);
  const auto matching = match(golden, mine, {});
  ASSERT_TRUE(matching);
  EXPECT_EQ(matching->pairs.size(), 2u);
}

TEST(MatchRuns, OperatorsOfOneSideOnlyAreLeftOutWithANote) {
  run::Run golden = make_run({output("model.norm::aten.mul.Tensor.0"), output("model.norm")}, {},
                             run::Layout::Native);
  golden.operations.emplace_back();
  const run::Run mine = make_run({output("model.norm")}, {}, run::Layout::Native);
  const auto matching = match(golden, mine, {});
  ASSERT_TRUE(matching.has_value());
  EXPECT_EQ(matching->pairs.size(), 1u);
  EXPECT_TRUE(matching->unmatched.empty());
  ASSERT_EQ(matching->notes.size(), 1u);
  EXPECT_EQ(matching->notes[0],
            "1 tensors of operators are not compared: the other side has modules only");
  const auto both = match(golden, golden, {});
  ASSERT_TRUE(both.has_value());
  EXPECT_EQ(both->pairs.size(), 2u);
}

RC_GTEST_PROP(MatchRuns, GivesTheSamePairsWhateverTheOrderOfGoldensRecords, (unsigned seed)) {
  const run::Run mine = llama_run(12);
  run::Run golden = llama_run(12);
  std::shuffle(golden.records.begin(), golden.records.end(), std::mt19937(seed));
  const auto matching = match(golden, mine, {});
  RC_ASSERT(matching.has_value());
  const run::Run sorted = llama_run(12);
  RC_ASSERT(texts(*matching, golden, mine) == texts(*match(sorted, mine, {}), sorted, mine));
}

RC_GTEST_PROP(MatchRuns, NeverUsesATensorTwice,
              (std::vector<unsigned char> golden_slots, std::vector<unsigned char> mine_slots)) {
  const auto records_of = [](const std::vector<unsigned char>& slots) {
    std::vector<TensorRecord> records;
    std::set<std::string> known;
    for (const unsigned char slot : slots) {
      const std::string node = "root.n" + std::to_string(slot % 3);
      const std::string name = std::to_string(slot / 3 % 6);
      if (known.insert(node + name).second) records.push_back(output(node, name));
    }
    return records;
  };
  const run::Run golden = make_run(records_of(golden_slots));
  const run::Run mine = make_run(records_of(mine_slots));
  const auto matching = match(golden, mine, {});
  RC_PRE(matching.has_value());
  std::set<size_t> golden_seen;
  std::set<size_t> mine_seen;
  for (const RecordPair& pair : matching->pairs) {
    RC_ASSERT(golden_seen.insert(pair.golden).second);
    RC_ASSERT(mine_seen.insert(pair.mine).second);
  }
  RC_ASSERT(matching->unmatched.size() + golden_seen.size() + mine_seen.size() ==
            golden.records.size() + mine.records.size());
}

TEST(MatchRuns, LeavesOutWhatACaptureOfGgmlOnlyNames) {
  std::vector<TensorRecord> records = {output("Qcur-0::ggml.mul_mat.0"),
                                       output("cache_k_l0 (view)::ggml.view.0")};
  for (TensorRecord& record : records) record.op_type = "ggml.x";
  records[1].bytes.reset();
  run::Run run = make_run(records, std::nullopt, run::Layout::Native);
  run.properties["host.kind"] = "ggml";
  const auto matching = match(run, run, {});
  ASSERT_TRUE(matching);
  ASSERT_EQ(matching->pairs.size(), 1U);
  EXPECT_EQ(matching->pairs[0].golden, 0U);
  EXPECT_TRUE(matching->unmatched.empty());
}

}  // namespace
}  // namespace assay::pair
