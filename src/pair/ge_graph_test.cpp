// SPDX-License-Identifier: Apache-2.0
#include "pair/ge_graph.hpp"

#include <gtest/gtest.h>

#include "pair/align_operands.hpp"
#include "pair/torchair.hpp"
#include "run/test_folder.hpp"

namespace assay::pair {
namespace {

using run::test::TestFolder;
using Names = std::vector<std::string>;

std::string op_text(const std::string& name, const std::string& rest = "") {
  return "op { name: \"" + name + "\" type: \"T\" " + rest + " }\n";
}
std::string attribute(const std::string& key, const std::string& value) {
  return "attr { key: \"" + key + "\" value { " + value + " } }";
}

GeGraph graph_of(const TestFolder& folder, const Names& names) {
  std::string text;
  for (const std::string& name : names) text += op_text(name);
  folder.put("graph.txt", text);
  return GeGraph::read(folder / "graph.txt").value();
}

Names members(const OperatorOrigin& origin) {
  Names names;
  for (const formats::GraphOp* op : origin.members) names.push_back(op->name);
  return names;
}

// ---- names --------------------------------------------------------------------------------------

TEST(GeGraph, TakesAFusedNameApart) {
  const TestFolder folder;
  const GeGraph graph = graph_of(folder, {"Add", "Mul_1", "Mul"});
  const OperatorOrigin origin = graph.origin("AddMul_1", {}, {});
  EXPECT_EQ(members(origin), (Names{"Add", "Mul_1"}));
  EXPECT_EQ(origin.rule, Rule::NameDecomposition);
  EXPECT_EQ(members(graph.decompose("AddMul_1", {})), (Names{"Add", "Mul_1"}));
}

TEST(GeGraph, TriesShorterPrefixesWhereTheLongestLeadsNowhere) {
  // "Add_1" is the longest prefix, but "2Mul" is no operator.
  const TestFolder folder;
  const GeGraph graph = graph_of(folder, {"Add_1", "Add_", "12Mul"});
  EXPECT_EQ(members(graph.origin("Add_12Mul", {}, {})), (Names{"Add_", "12Mul"}));
  const OperatorOrigin greedy = graph.decompose("Add_12Mul", {});
  EXPECT_EQ(members(greedy), Names{"Add_1"});
  EXPECT_EQ(greedy.rest, "2Mul");
}

TEST(GeGraph, StopsAtADumpedOperatorThatIsNotInTheGraph) {
  const TestFolder folder;
  const GeGraph graph = graph_of(folder, {"Add"});
  EXPECT_EQ(members(graph.decompose("AddX", {})), Names{"Add"});
  EXPECT_EQ(members(graph.decompose("AddXY", {"AddX"})), Names{});
}

TEST(GeGraph, FindsNamesAsFilesSpellThem) {
  const TestFolder folder;
  const GeGraph graph = graph_of(folder, {"block/0.add", "mul"});
  EXPECT_EQ(graph.find("block_0_add")->name, "block/0.add");
  EXPECT_EQ(members(graph.origin("block_0_addmul", {}, {})), (Names{"block/0.add", "mul"}));
  EXPECT_EQ(graph.position("mul"), 1);
  EXPECT_EQ(graph.position("other"), -1);
}

TEST(GeGraph, PrefersMetadataToNames) {
  const TestFolder folder;
  GeGraph graph = graph_of(folder, {"Add", "Mul", "AddMul"});
  folder.put(
      "optimized.txt",
      op_text("AddMul", attribute("_datadump_original_op_names", R"(list { s: "Mul" s: "Add" })") +
                            "output_desc { " + attribute("_datadump_origin_name", R"(s: "Mul")") +
                            attribute("_datadump_origin_output_index", "i: 2") + " }") +
          op_text("made", attribute("_datadump_original_op_names", R"(list { s: "" })")) +
          op_text("renamed", attribute("_datadump_original_op_names", R"(list { s: "Add" })") +
                                 "output_desc { " + attribute("_datadump_origin_name", R"(s: "")") +
                                 " }"));
  ASSERT_TRUE(graph.add_metadata(folder / "optimized.txt").has_value());
  EXPECT_EQ(members(graph.origin("AddMul", {}, {})), (Names{"Mul", "Add"}));
  EXPECT_EQ(graph.origin_of_output("AddMul", 0)->op, "Mul");
  EXPECT_EQ(graph.origin_of_output("AddMul", 0)->output, 2);
  EXPECT_FALSE(graph.origin_of_output("AddMul", 1).has_value());
  EXPECT_EQ(members(graph.origin("made", {}, {})), Names{});
  EXPECT_EQ(members(graph.origin("renamed", {}, {})), Names{"Add"});
  EXPECT_EQ(graph.origin_of_output("renamed", 0)->op, "Add");
}

TEST(GeGraph, UsesWhatTheDumpSaysWhereTheNameSaysNothing) {
  const TestFolder folder;
  const GeGraph graph = graph_of(folder, {"Add", "Mul"});
  const OperatorOrigin origin = graph.origin("te_fused", {"Mul", "unknown"}, {});
  EXPECT_EQ(members(origin), Names{"Mul"});
  EXPECT_EQ(origin.rule, Rule::DumpMetadata);
}

TEST(GeGraph, SaysWhichFileCannotBeRead) {
  const TestFolder folder;
  folder.put("graph.txt", "op {");
  const auto graph = GeGraph::read(folder / "graph.txt");
  ASSERT_FALSE(graph.has_value());
  EXPECT_EQ(graph.error().path, folder / "graph.txt");
  EXPECT_EQ(graph.error().code, Errc::Invalid);
}

TEST(FxValueOf, ReadsNodeAndOutput) {
  formats::GraphOp op;
  op.output_desc.resize(3);
  op.output_desc[0].attributes["_fx_tensor_name"].text = "topk-aten.topk.default.OUTPUT.1";
  op.output_desc[1].attributes["_fx_tensor_name"].text = "x_1";
  EXPECT_EQ(fx_value_of(op, 0)->node, "topk-aten.topk.default");
  EXPECT_EQ(fx_value_of(op, 0)->output, 1);
  EXPECT_EQ(fx_value_of(op, 1)->node, "x_1");
  EXPECT_FALSE(fx_value_of(op, 2).has_value());
  EXPECT_FALSE(fx_value_of(op, 9).has_value());
}

// ---- shapes -------------------------------------------------------------------------------------

OperandShape operand(Dims shape, DType dtype = DType::Float32) { return {dtype, shape}; }
using Pairs = std::vector<std::pair<size_t, size_t>>;

TEST(OperandSimilarity, NeedsTheSameKindAndElementCount) {
  EXPECT_GT(operand_similarity(operand({2, 3}), operand({2, 3})),
            operand_similarity(operand({2, 3}), operand({6})));
  EXPECT_GT(operand_similarity(operand({6}), operand({6}, DType::BFloat16)), 0);
  EXPECT_GT(operand_similarity(operand({6}, DType::Int64), operand({6}, DType::Int32)), 0);
  EXPECT_EQ(operand_similarity(operand({6}), operand({6}, DType::Int32)), 0);
  EXPECT_EQ(operand_similarity(operand({6}), operand({7})), 0);
  EXPECT_GT(operand_similarity(operand({6}), {}), 0);
}

TEST(AlignOperands, LeavesOutWhatFitsNothing) {
  const auto aligned = align_operands({operand({2, 3}), operand({4})},
                                      {operand({9}), operand({2, 3}), operand({4})});
  EXPECT_EQ(aligned.pairs, (Pairs{{0, 1}, {1, 2}}));
  EXPECT_TRUE(aligned.ambiguous_first.empty());
  EXPECT_TRUE(aligned.ambiguous_second.empty());
}

TEST(AlignOperands, DoesNotGuess) {
  // One of two equal operands: either may be the one that the other side lacks.
  const auto aligned = align_operands({operand({4})}, {operand({4}), operand({4})});
  EXPECT_TRUE(aligned.pairs.empty());
  EXPECT_EQ(aligned.ambiguous_first, std::vector<size_t>{0});
  EXPECT_EQ(aligned.ambiguous_second, (std::vector<size_t>{0, 1}));
}

TEST(AlignOperands, KeepsTheOrder) {
  const auto aligned =
      align_operands({operand({4}), operand({5}), operand({4})}, {operand({4}), operand({5})});
  EXPECT_EQ(aligned.pairs, (Pairs{{0, 0}, {1, 1}}));
}

TEST(AlignOperands, SurvivesEmptyAndHugeLists) {
  EXPECT_TRUE(align_operands({}, {operand({1})}).pairs.empty());
  const std::vector<OperandShape> many(2000, operand({1}));
  EXPECT_EQ(align_operands(many, many).ambiguous_first.size(), many.size());
}

// ---- ranks and graphs ---------------------------------------------------------------------------

run::TensorRecord record(const std::string& node, int rank, uint32_t graph, int64_t step) {
  run::TensorRecord out;
  out.node = node;
  out.rank = rank;
  out.graph = graph;
  out.step = step;
  out.slot = "0";
  out.op_type = node;
  out.bytes.emplace();
  out.bytes->file = "/r/" + node + ".1.1.1735786845000001";
  return out;
}

struct Sides {
  TestFolder folder;
  run::Run golden;
  run::Run mine;
  Sides() {
    folder.put("dynamo_original_graph_1_rank_0_pid_1_ts_1.txt", op_text("Add"));
    golden.layout = mine.layout = run::Layout::GeTree;
  }
  void text(int rank, uint32_t graph) {
    mine.graph_files.push_back(
        {rank, graph, folder / "dynamo_original_graph_1_rank_0_pid_1_ts_1.txt"});
  }
  Result<std::vector<GraphMatching>> match(const UserRules& user = {}) const {
    return match_torchair(golden, mine, user, {});
  }
};

TEST(MatchTorchair, IsForDumpsWithTexts) {
  Sides sides;
  EXPECT_FALSE(is_torchair_pair(sides.golden, sides.mine));
  sides.text(-1, 0);
  EXPECT_TRUE(is_torchair_pair(sides.golden, sides.mine));
  sides.golden.layout = run::Layout::TorchTree;
  EXPECT_FALSE(is_torchair_pair(sides.golden, sides.mine));
}

TEST(MatchTorchair, MatchesGraphsByNumberOrElseByPlace) {
  Sides sides;
  for (const uint32_t graph : {0u, 4u}) {
    sides.mine.records.push_back(record("Add", 0, graph, 0));
    sides.text(-1, graph);
  }
  sides.golden.records = {record("Add", 0, 0, 0), record("Add", 0, 1, 0)};
  const auto graphs = sides.match().value();
  ASSERT_EQ(graphs.size(), 2u);
  EXPECT_EQ(graphs[1].rank, -1);
  EXPECT_EQ(graphs[1].graph, 4);
  ASSERT_EQ(graphs[1].matching.pairs.size(), 1u);
  EXPECT_EQ(graphs[1].matching.pairs[0].golden, 1u);
  // A graph less in golden: only equal numbers are sure.
  sides.golden.records.pop_back();
  const auto fewer = sides.match().value();
  EXPECT_EQ(fewer[0].matching.pairs.size(), 1u);
  EXPECT_TRUE(fewer[1].matching.pairs.empty());
  ASSERT_EQ(fewer[1].matching.unmatched.size(), 1u);
  EXPECT_FALSE(fewer[0].matching.warnings.empty());
}

TEST(MatchTorchair, NeedsACommonRank) {
  Sides sides;
  sides.text(1, 0);
  sides.mine.records = {record("Add", 1, 0, 0), record("Add", 2, 0, 0)};
  sides.golden.records = {record("Add", 3, 0, 0)};
  EXPECT_EQ(sides.match().error().message, "No common rank data in golden_path and my_path.");
  sides.golden.records.push_back(record("Add", 2, 0, 0));
  EXPECT_EQ(sides.match({.ranks = {1}}).error().code, Errc::Usage);
  EXPECT_EQ(sides.match({.ranks = {2}}).value().size(), 1u);
}

TEST(MatchTorchair, AlignsTokensAsToldAndCountsWhatIsLeft) {
  Sides sides;
  sides.text(-1, 0);
  sides.mine.records = {record("Add", 0, 0, 0), record("Add", 0, 0, 5)};
  sides.golden.records = {record("Add", 0, 0, 0), record("Add", 0, 0, 7)};
  const Matching plain = sides.match().value()[0].matching;
  EXPECT_EQ(plain.pairs.size(), 1u);
  EXPECT_EQ(plain.warnings, Names{"My token_id 5 not found in golden dump data"});
  EXPECT_EQ(plain.unmatched.size(), 2u);
  EXPECT_EQ(plain.coverage_percent(), 50);
  const Matching mapped = sides.match({.token_map = {{7, 5}}}).value()[0].matching;
  ASSERT_EQ(mapped.pairs.size(), 1u);
  EXPECT_EQ(mapped.pairs[0].golden, 1u);
  EXPECT_EQ(mapped.coverage_percent(), 100);
}

}  // namespace
}  // namespace assay::pair
