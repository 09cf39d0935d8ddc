// SPDX-License-Identifier: Apache-2.0
#include "topology/ge_graph.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pair/graph_diff.hpp"
#include "topology/model_explorer.hpp"

namespace assay::topology {
namespace {

using Json = nlohmann::json;

// x -> Add(x, x) -> Mul(Add, Const) -> NetOutput, with a control edge and a value that looks like
// syntax.
constexpr std::string_view kGraph = R"(name: "graph_1"
op { name: "x_1" type: "Data" attr { key: "index" value { i: 0 } }
     output_desc { name: "y" dtype: DT_FLOAT shape { dim: -1 dim: 2 } layout: "ND" } }
op { name: "Add" type: "Add" input: "x_1:0" input: "x_1:0"
     input_desc { name: "x1" dtype: DT_FLOAT } input_desc { name: "x2" dtype: DT_FLOAT }
     output_desc { name: "y" dtype: DT_FLOAT shape { dim: -1 dim: 2 } layout: "FRACTAL_NZ"
       attr { key: "_fx_tensor_name" value { s: "add-aten.add.Tensor.OUTPUT.0" } } } }
op { name: "Const" type: "Const" input: "Add:-1"
     attr { key: "value" value { t { desc { dtype: DT_FLOAT shape { } } data: "\000\000@@" } } }
     output_desc { name: "y" dtype: DT_FLOAT shape { } } }
op { name: "Mul" type: "Mul" input: "Add:0" input: "Const:0" input: ""
     attr { key: "axes" value { list { i: 1 i: -1 } } } attr { key: "note" value { s: "a: {b} \"c\"" } }
     attr { key: "alpha" value { f: 1e-05 } } attr { key: "keep" value { b: true } }
     attr { key: "rows" value { list_list_int { list_list_i { list_i: 1 list_i: 2 } list_list_i { } } } }
     output_desc { name: "y" dtype: DT_BF16 shape { dim: -2 } } }
op { name: "NetOutput" type: "NetOutput" input: "Mul:0" }
)";

Graph read(std::string_view text) {
  auto graph = read_graph(text);
  EXPECT_TRUE(graph.has_value()) << graph.error().describe();
  return graph ? *std::move(graph) : Graph{};
}

const Node& node_of(const Graph& graph, std::string_view name) {
  const auto found = std::find_if(graph.nodes.begin(), graph.nodes.end(),
                                  [&](const Node& node) { return node.name == name; });
  EXPECT_NE(found, graph.nodes.end()) << name;
  return found == graph.nodes.end() ? graph.nodes.front() : *found;
}

std::string parameter(const Node& node, std::string_view name) {
  for (const Parameter& parameter : node.parameters) {
    if (parameter.name == name) return parameter.text;
  }
  return "(absent)";
}

TEST(ReadGeGraph, WiresOperatorsByTheirEdges) {
  const Graph graph = read(kGraph);
  EXPECT_EQ(graph.kind, GraphKind::Engine);
  EXPECT_EQ(graph.root().name, "graph_1");
  EXPECT_EQ(graph.root().children.size(), 5u);
  EXPECT_EQ(graph.root().outputs, std::vector<std::string>{"Mul:0"});
  const Node& mul = node_of(graph, "Mul");
  EXPECT_EQ(mul.type, "Mul");
  EXPECT_EQ(mul.inputs, (std::vector<std::string>{"Add:0", "Const:0", ""}));
  EXPECT_EQ(mul.outputs, std::vector<std::string>{"Mul:0"});
  // Const waits for Add.
  EXPECT_EQ(node_of(graph, "Add").outputs, (std::vector<std::string>{"Add:0", "Add:-1"}));
  EXPECT_TRUE(node_of(graph, "NetOutput").outputs.empty());
  EXPECT_TRUE(wire_level(graph, -1).inputs.empty());
}

TEST(ReadGeGraph, KeepsTypesWithDynamicShapes) {
  const Graph graph = read(kGraph);
  EXPECT_EQ(type_text(graph.tensors.at("x_1:0")), "float32[?,2]");
  EXPECT_EQ(type_text(graph.tensors.at("Const:0")), "float32[]");
  EXPECT_EQ(type_text(graph.tensors.at("Mul:0")), "bfloat16[?]");
}

TEST(ReadGeGraph, KeepsAttributesOfOperatorsAndOperands) {
  const Graph graph = read(kGraph);
  const Node& mul = node_of(graph, "Mul");
  EXPECT_EQ(parameter(mul, "axes"), "[1,-1]");
  EXPECT_EQ(parameter(mul, "note"), "a: {b} \"c\"");
  EXPECT_EQ(parameter(mul, "alpha"), "1e-05");
  EXPECT_EQ(parameter(mul, "keep"), "true");
  EXPECT_EQ(parameter(mul, "rows"), "[[1,2],[]]");
  EXPECT_EQ(parameter(node_of(graph, "Const"), "value"), "float32[], 4 bytes");
  const Node& add = node_of(graph, "Add");
  EXPECT_EQ(parameter(add, "output.y._fx_tensor_name"), "add-aten.add.Tensor.OUTPUT.0");
  EXPECT_EQ(parameter(add, "output.y.layout"), "FRACTAL_NZ");
}

TEST(ReadGeGraph, GivesEachGraphOfAModelItsOwnTensors) {
  const Graph graph = read(R"(name: "model" version: 1
    graph { name: "main" op { name: "A" type: "T" output_desc { } } op { name: "B" type: "T" input: "A:0" } }
    graph { name: "branch" op { name: "A" type: "T" output_desc { } } op { name: "B" type: "T" input: "A:0" } })");
  EXPECT_EQ(graph.root().name, "model");
  ASSERT_EQ(graph.root().children.size(), 2u);
  const Node& branch = graph.nodes[graph.root().children[1]];
  EXPECT_EQ(branch.name, "branch");
  EXPECT_EQ(graph.nodes[branch.children[1]].inputs, std::vector<std::string>{"branch/A:0"});
  EXPECT_EQ(wire_level(graph, -1).nodes.size(), 4u);
  EXPECT_TRUE(wire_level(graph, -1).inputs.empty());
}

TEST(ReadGeGraph, ReadsTheFormOfGraphViewers) {
  const Graph graph = read(R"(node { name: "Add" op: "Add" input: "x" input: "^w"
      attr { key: "axes" value { s: "list {\n  i: 1\n  i: 2\n}\n" } } attr { key: "pad" value { s: "SAME" } }
      attr { key: "[o]y" value { s: "name: \"y\"\ndtype: DT_FLOAT16\nshape {\n  dim: 4\n}\n" } } }
    node { name: "x" op: "Data" } node { name: "w" op: "Data" })");
  EXPECT_EQ(node_of(graph, "Add").inputs, (std::vector<std::string>{"x:0", "w:-1"}));
  EXPECT_EQ(type_text(graph.tensors.at("Add:0")), "float16[4]");
  EXPECT_EQ(parameter(node_of(graph, "Add"), "axes"), "[1,2]");
  EXPECT_EQ(parameter(node_of(graph, "Add"), "pad"), "SAME");
}

TEST(ReadGeGraph, ReadsTheFormOfOnnx) {
  const Graph graph = read(
      R"(ir_version: 7 graph { name: "g" input { name: "in" type { tensor_type { elem_type: 10 shape {
        dim { dim_value: 3 } dim { dim_param: "?" } } } } } output { name: "out" }
      node { name: "a" op_type: "ge:Relu" input: "in" output: "t"
             attribute { name: "k" type: INT i: 3 } attribute { name: "v" ints: 1 ints: 2 } }
      node { name: "b" op_type: "ge:Abs" input: "t" output: "out" } })");
  EXPECT_EQ(graph.root().inputs, std::vector<std::string>{"in"});
  EXPECT_EQ(type_text(graph.tensors.at("in")), "float16[3,?]");
  EXPECT_EQ(graph.tensors.size(), 1u);
  EXPECT_EQ(node_of(graph, "b").inputs, std::vector<std::string>{"t"});
  EXPECT_EQ(node_of(graph, "a").type, "ge:Relu");
  EXPECT_EQ(parameter(node_of(graph, "a"), "v"), "[1,2]");
}

TEST(ReadGeGraph, RefusesWhatIsNoGraph) {
  EXPECT_EQ(read_ge_graph("name: \"x\"").error().code, Errc::Invalid);
  EXPECT_EQ(read_ge_graph("op { name: \"x").error().code, Errc::Invalid);
  EXPECT_FALSE(is_graph_text("{\"opName\": 1}"));
  EXPECT_FALSE(is_graph_text("PK\x03\x04"));
  EXPECT_FALSE(is_graph_text("some words"));
  EXPECT_FALSE(is_graph_text(""));
  EXPECT_TRUE(is_graph_text("# by hand\n op {"));
}

TEST(ReadGeGraph, SurvivesEdgesThatLeadNowhere) {
  // An output number that would be gigabytes of names, a cycle, one name twice, an edge to nothing.
  const Graph graph =
      read(R"(op { name: "A" type: "T" input: "B:4000000000" input: "gone:1" output_desc { } }
      op { name: "B" type: "T" input: "A:0" } op { name: "B" type: "T" })");
  EXPECT_EQ(node_of(graph, "B").outputs, std::vector<std::string>{"B:4000000000"});
  EXPECT_EQ(graph.notes.size(), 1u);
  EXPECT_FALSE(model_explorer_json(graph).empty());
}

TEST(GeGraphJson, LeavesNothingOut) {
  const Result<std::string> text = ge_graph_json(kGraph);
  ASSERT_TRUE(text.has_value());
  const Json json = Json::parse(*text);
  EXPECT_EQ(json["name"], "graph_1");
  EXPECT_EQ(json["op"].size(), 5u);
  const Json& constant = json["op"][2];
  EXPECT_EQ(constant["input"], Json::array({"Add:-1"}));
  // Two zero bytes and "@@" are 3.0f; base64 by hand: 000000 000000 000001 000000 010000 00(0000) =
  // AABAQA==.
  EXPECT_EQ(constant["attr"]["value"]["t"]["data"]["base64"], "AABAQA==");
  EXPECT_EQ(constant["attr"]["value"]["t"]["desc"]["shape"], Json::object());
  const Json& mul = json["op"][3];
  EXPECT_EQ(mul["attr"]["alpha"]["f"], 1e-05);
  EXPECT_EQ(mul["attr"]["keep"]["b"], true);
  EXPECT_EQ(mul["attr"]["axes"]["list"]["i"], Json::array({1, -1}));
  EXPECT_EQ(mul["attr"]["rows"]["list_list_int"]["list_list_i"][0]["list_i"], Json::array({1, 2}));
  EXPECT_EQ(mul["output_desc"][0]["shape"]["dim"], Json::array({-2}));
}

TEST(GeGraphJson, WritesWhatJsonHasNoNumberFor) {
  const Result<std::string> text = ge_graph_json(
      "op { name: \"\\377\" id: 0x10 future: 1 future: 2 attr { key: \"k\" value { f: -inf } } "
      "attr { key: \"l\" value { f: 2.5f } } }");
  ASSERT_TRUE(text.has_value());
  const Json op = Json::parse(*text)["op"][0];
  EXPECT_EQ(op["name"]["base64"], "/w==");
  EXPECT_EQ(op["id"], 16);
  EXPECT_EQ(op["future"], Json::array({1, 2}));
  EXPECT_EQ(op["attr"]["k"]["f"], "-inf");
  EXPECT_EQ(op["attr"]["l"]["f"], 2.5);
}

TEST(GroupByFusion, PutsTheMembersOfAFusedOperatorIntoAGraph) {
  const Graph original = read(kGraph);
  const Graph fused = read(R"(op { name: "x_1" type: "Data" output_desc { } }
      op { name: "AddMul" type: "AutomaticBufferFusionOp" input: "x_1:0" output_desc { }
           attr { key: "_datadump_original_op_names" value { list { s: "Add" s: "Mul" } } } }
      op { name: "Lost" type: "T" attr { key: "_datadump_original_op_names" value { list { s: "a" s: "b" } } } })");
  const Graph grouped = group_by_fusion(original, fused);
  const Node& group = node_of(grouped, "AddMul");
  EXPECT_TRUE(group.is_graph);
  EXPECT_EQ(group.children.size(), 2u);
  EXPECT_EQ(group.inputs, (std::vector<std::string>{"x_1:0", "Const:0"}));
  EXPECT_EQ(group.outputs, (std::vector<std::string>{"Add:-1", "Mul:0"}));
  EXPECT_EQ(grouped.notes.size(), 2u);
  EXPECT_EQ(wire_level(grouped, -1).nodes.size(), 5u);
  EXPECT_EQ(wire_level(grouped, 1).nodes.size(), 4u);
  const std::string explorer = model_explorer_json(grouped);
  EXPECT_NE(explorer.find("\"namespace\":\"graph_1/AddMul\""), std::string::npos);
}

TEST(GroupByFusion, KeepsTheGraphsOfAModelApart) {
  constexpr std::string_view kModel = R"(name: "m"
      graph { name: "a" op { name: "X" type: "T" output_desc { } } op { name: "Y" type: "T" input: "X:0" } }
      graph { name: "b" op { name: "X" type: "T" output_desc { } } op { name: "Y" type: "T" input: "X:0" } })";
  const Graph fused = read(R"(name: "m" graph { name: "a" op { name: "Z" type: "T" } }
      graph { name: "b" op { name: "XY" type: "F"
        attr { key: "_datadump_original_op_names" value { list { s: "X" s: "Y" } } } } })");
  const Graph grouped = group_by_fusion(read(kModel), fused);
  EXPECT_EQ(node_of(grouped, "a").children.size(), 2u);
  const Node& second = node_of(grouped, "b");
  ASSERT_EQ(second.children.size(), 1u);
  EXPECT_EQ(grouped.nodes[second.children[0]].name, "XY");
  EXPECT_EQ(wire_level(grouped, -1).nodes.size(), 4u);
}

TEST(GraphDiff, TellsTextsApart) {
  const Graph golden = read(kGraph);
  std::string other(kGraph);
  other.replace(other.find("1e-05"), 5, "1e-06");
  const pair::GraphDiff diff = pair::graph_diff(golden, read(other));
  ASSERT_EQ(diff.differences.size(), 1u);
  EXPECT_EQ(diff.differences[0].golden, "Mul");
  EXPECT_EQ(diff.differences[0].parameters[0].name, "alpha");
}

}  // namespace
}  // namespace assay::topology
