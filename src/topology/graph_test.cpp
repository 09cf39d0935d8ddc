// SPDX-License-Identifier: Apache-2.0
// Graphs, their wiring and their differences. That ONNX files are right is tested with the onnx
// package, in tests/python/test_topology.py.
#include "topology/graph.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "pair/graph_diff.hpp"
#include "topology/atb_enums.hpp"
#include "topology/onnx_export.hpp"
#include "topology/shapes.hpp"

namespace assay::topology {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Graph graph_of(std::string_view text) {
  Result<Graph> graph = read_graph(text);
  EXPECT_TRUE(graph) << graph.error().describe();
  if (graph) return *std::move(graph);
  Graph empty;
  empty.nodes.emplace_back();
  return empty;
}

std::vector<std::string> names_at(const Graph& graph, int level) {
  std::vector<std::string> names;
  for (const uint32_t index : nodes_at_level(graph, level))
    names.push_back(graph.nodes[index].name);
  return names;
}

constexpr std::string_view kNested =
    R"({"opName":"L_0","opType":"L","inTensors":["x"],"outTensors":["z"],"nodes":[)"
    R"({"opName":"A_0_0","opType":"A","inTensors":["x"],"outTensors":["y"],"param":{"n":{"e":1e-05},"off":false}},)"
    R"({"opName":"G_0_1","opType":"G","inTensors":["y"],"outTensors":["z"],"nodes":[)"
    R"({"opName":"B_0_1_0","opType":"B","inTensors":["y"],"outTensors":["t"]},)"
    R"({"opName":"B_0_1_1","opType":"B","inTensors":["t"],"outTensors":["z"]}]}]})";

TEST(Graph, KeepsOrderDepthAndIds) {
  const Graph graph = graph_of(kNested);
  EXPECT_THAT(names_at(graph, -1), ElementsAre("A_0_0", "B_0_1_0", "B_0_1_1"));
  EXPECT_THAT(names_at(graph, 1), ElementsAre("A_0_0", "G_0_1"));
  EXPECT_THAT(names_at(graph, 0), ElementsAre("L_0"));
  EXPECT_THAT(names_at(graph, -5), ElementsAre("A_0_0", "G_0_1"));
  EXPECT_EQ(graph.nodes[4].ids, "0_1_1");
  EXPECT_EQ(graph.nodes[4].depth, 2u);
  EXPECT_EQ(graph.nodes[1].parameters[0].name, "n.e");
  EXPECT_EQ(graph.nodes[1].parameters[0].text, "1e-05");
  EXPECT_EQ(std::get<bool>(graph.nodes[1].parameters[1].value), false);
}

TEST(Wiring, GivesEveryWriteItsOwnNameAndAvoidsThoseInUse) {
  // "c@1" is a tensor of the file, so the second version of c is called c@2.
  const Wiring wiring = wire({{0, {"c"}, {"c"}}, {1, {"c", "c@1"}, {"c"}}}, {"c"}, {"c", "absent"});
  EXPECT_THAT(wiring.nodes[0].outputs, ElementsAre("c@2"));
  EXPECT_THAT(wiring.nodes[1].inputs, ElementsAre("c@2", "c@1"));
  EXPECT_THAT(wiring.nodes[1].outputs, ElementsAre("c@3"));
  EXPECT_THAT(wiring.inputs, ElementsAre("c", "c@1"));
  EXPECT_THAT(wiring.outputs, ElementsAre("c@3"));
  EXPECT_THAT(wiring.output_names, ElementsAre("c"));
}

TEST(Wiring, PutsProducersFirstAndLeavesCyclesInPlace) {
  const Wiring sorted = wire({{0, {"b"}, {"c"}}, {1, {"a"}, {"b"}}}, {"a"}, {"c"});
  EXPECT_EQ(sorted.nodes[0].node, 1u);
  const Wiring cycle = wire({{0, {"b"}, {"a"}}, {1, {"a"}, {"b"}}}, {}, {});
  EXPECT_EQ(cycle.nodes[0].node, 0u);
  EXPECT_THAT(cycle.inputs, ElementsAre("b"));
  EXPECT_THAT(cycle.nodes[1].outputs, ElementsAre("b@1"));
}

TEST(Graph, ShowsWhatOperationsWriteInPlaceToTheGraphAround) {
  const Graph graph = graph_of(
      R"({"opName":"L_0","inTensors":["x","cache"],"nodes":[{"opName":"G_0_0","inTensors":["x","cache"],"nodes":[)"
      R"({"opName":"KvCacheOperation_0_0_0","opType":"KvCacheOperation","inTensors":["x","x","cache"]}]}]})");
  EXPECT_THAT(outputs_in_place(graph, 2), ElementsAre("cache"));
  EXPECT_THAT(outputs_in_place(graph, 1), ElementsAre("cache"));
}

TEST(Graph, OpensTheLayersOfAModelFromTheirOwnFiles) {
  const Graph layer = graph_of(kNested);
  Graph model =
      graph_of(R"({"modelName":"M","inTensors":["in"],"outTensors":["out"],"nodes":[)"
               R"({"opName":"E_9","opType":"E","inTensors":["in"],"outTensors":["h"]},)"
               R"({"opName":"L_0","opType":"L","inTensors":["h"],"outTensors":["out"]}]})");
  const Graph whole = with_layers(model, [&](const std::string& name) {
    return name == "L_0" ? std::optional(layer) : std::nullopt;
  });
  EXPECT_THAT(names_at(whole, -1), ElementsAre("E_9", "A_0_0", "B_0_1_0", "B_0_1_1"));
  EXPECT_THAT(names_at(whole, 2), ElementsAre("E_9", "A_0_0", "G_0_1"));
  EXPECT_THAT(whole.nodes[3].inputs, ElementsAre("h"));     // A_0_0
  EXPECT_THAT(whole.nodes[6].outputs, ElementsAre("out"));  // B_0_1_1
  EXPECT_EQ(whole.nodes[6].parent, 4u);
  EXPECT_EQ(whole.nodes[6].depth, 3u);
}

TEST(Graph, ReadsAModuleTreeThatAnOlderLongerOneFollows) {
  const Graph tree = graph_of(
      R"({"name":"root","type":"Lm","children":[{"name":"root.a","type":"A","children":[]}]}"children":[]}]})");
  EXPECT_THAT(names_at(tree, -1), ElementsAre("root.a"));
}

TEST(TensorType, CollectsTheLengthsOfAllRounds) {
  TensorType type;
  merge_type("float16", std::vector<int64_t>{37, 64}, &type);
  merge_type("float16", std::vector<int64_t>{1, 64}, &type);
  merge_type("float16", std::vector<int64_t>{37, 64}, &type);
  EXPECT_EQ(type_text(type), "float16[1|37,64]");
  merge_type("float16", std::vector<int64_t>{64}, &type);
  merge_type("float16", std::vector<int64_t>{64}, &type);
  EXPECT_EQ(type_text(type), "float16[?]");
  TensorType scalar;
  merge_type("bool", std::vector<int64_t>{}, &scalar);
  EXPECT_EQ(type_text(scalar), "bool[]");
}

TEST(ShapeTable, ReadsOperationListsAndTypesTheTensors) {
  ShapeTable shapes;
  shapes.add_op_csv(
      "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
      "OutShape|DataGenType|"
      "DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|SocVersion|"
      "ExpectedError\n"
      "1|A_0_01|A_0_0|{}|1|float16|nd|3,4|1|bf16|nd|4|customize| |a|b| | | | |NO_ERROR\n");
  Graph graph = graph_of(kNested);
  shapes.apply(&graph);
  EXPECT_EQ(type_text(graph.tensors.at("x")), "float16[3,4]");
  EXPECT_EQ(type_text(graph.tensors.at("y")), "bf16[4]");
  EXPECT_EQ(graph.nodes[1].csv_row, 1u);
  EXPECT_FALSE(graph.tensors.contains("z"));
}

TEST(EnumName, KnowsAtbsNumbersByOperation) {
  EXPECT_EQ(enum_name("ActivationOperation", "activationType", 4), "SWISH");
  EXPECT_EQ(enum_name("ElewiseOperation", "elewiseType", 8), "ADD");
  EXPECT_EQ(enum_name("SelfAttentionOperation", "maskType", 3), "NORM_COMPRESS");
  EXPECT_EQ(enum_name("PagedAttentionOperation", "maskType", 3), "SPEC");
  EXPECT_EQ(enum_name("RmsNormOperation", "normParam.precisionMode", 1), "HIGH_PERFORMANCE");
  EXPECT_EQ(enum_name("ActivationOperation", "activationType", 0), "");
  EXPECT_EQ(enum_name("ActivationOperation", "activationType", 99), "");
  EXPECT_EQ(enum_name("Unknown", "activationType", 4), "");
}

TEST(OnnxElementType, KnowsEveryWordThatOnnxHasANumberFor) {
  EXPECT_EQ(onnx_element_type("float"), 1);
  EXPECT_EQ(onnx_element_type("bf16"), 16);
  EXPECT_EQ(onnx_element_type("bool"), 9);
  EXPECT_EQ(onnx_element_type("string"), 8);
  EXPECT_EQ(onnx_element_type("complex64"), 14);
  EXPECT_EQ(onnx_element_type("hifloat8"), 0);
  EXPECT_EQ(onnx_element_type("whatever"), 0);
}

TEST(OnnxModel, IsTheWorkedExampleByteForByte) {
  // docs/formats/onnx.md, "Bytes".
  const Graph graph =
      graph_of(R"({"opName":"A_0","opType":"A","inTensors":["x"],"outTensors":["y"]})");
  using namespace std::string_literals;
  const std::string expected =
      "\x08\x08"
      "\x12\x05"
      "assay\x1a\x05"
      "0.1.0"
      "\x3a\x55"
      "\x0a\x1c\x0a\x01x\x12\x01y\x1a\x03"
      "A_0\x22\x01"
      "A\x32\x07op_id 0\x3a\x03"
      "atb"
      "\x12\x03"
      "A_0\x52\x16Topology file A_0.json"
      "\x5a\x0b\x0a\x01x\x12\x06\x0a\x04\x08\x00\x12\x00"
      "\x62\x0b\x0a\x01y\x12\x06\x0a\x04\x08\x00\x12\x00"
      "\x42\x07\x0a\x03"
      "atb\x10\x01"s;
  EXPECT_EQ(onnx_model(graph, {.document = "Topology file A_0.json"}), expected);
}

TEST(GraphDiff, FindsNothingBetweenEqualStructuresAndAlignsByTypeOtherwise) {
  const Graph golden = graph_of(kNested);
  EXPECT_THAT(pair::graph_diff(golden, golden).differences, IsEmpty());
  std::string text(kNested);
  text.replace(text.find(R"("opType":"A")"), 12, R"("opType":"C")");
  const pair::GraphDiff diff = pair::graph_diff(golden, graph_of(text));
  ASSERT_EQ(diff.differences.size(), 2u);
  EXPECT_EQ(diff.differences[0].kind, pair::DifferenceKind::Removed);
  EXPECT_EQ(diff.differences[1].kind, pair::DifferenceKind::Added);
  EXPECT_EQ(diff.same_nodes.size(), 4u);
}

TEST(Graph, ReadsAThousandLevelsAndRefusesTenThousand) {
  const auto nested = [](size_t depth) {
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += R"({"opName":"G_0","inTensors":["x"],"nodes":[)";
    for (size_t i = 0; i < depth; ++i) text += "]}";
    return text;
  };
  const Graph deep = graph_of(nested(1000));
  EXPECT_EQ(deep.nodes.size(), 1000u);
  EXPECT_FALSE(onnx_model(deep, {.hierarchical = true}).empty());
  const Result<Graph> refused = read_graph(nested(10'000));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::TooLarge);
}

}  // namespace
}  // namespace assay::topology
