// SPDX-License-Identifier: Apache-2.0
#include "report/html/neighbourhood.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "locate/program/test_program.hpp"
#include "report/html/page.hpp"
#include "run/test_folder.hpp"

namespace assay::report::html {
namespace {

using locate::test::TestRun;
using locate::test::Value;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Names = std::vector<std::string>;

/// "maker -> user slot" of every edge of a drawing.
Names edges_of(const DataFlow& flow, const Neighbourhood& around) {
  const Json graph = Json::parse(neighbourhood_json(flow, around, {}));
  std::map<std::string, std::string> names;
  for (const Json& node : graph["nodes"]) names[node["id"]] = node["name"];
  Names edges;
  for (const Json& edge : graph["edges"]) {
    edges.push_back(names.at(edge["from"]) + " -> " + names.at(edge["to"]) + " " +
                    edge["slot"].get<std::string>());
  }
  return edges;
}

std::optional<uint32_t> find(const DataFlow& flow, std::string_view name) {
  for (uint32_t i = 0; i < flow.nodes.size(); ++i) {
    if (flow.nodes[i].name == name) return i;
  }
  return std::nullopt;
}

Names edges_around(const DataFlow& flow, std::string_view name,
                   const NeighbourhoodLimits& limits = {}) {
  return edges_of(flow, neighbourhood(flow, find(flow, name), limits));
}

/// y = x * w + x, in module "norm".
struct NormRun : TestRun {
  Value x, w, product, sum;
  NormRun() {
    x = value(DType::Float32, {2}, {1, 2});
    w = leaf("norm.weight", DType::Float32, {2}, {3, 4});
    module_input("norm", "0", x);
    product = op("norm", "aten.mul.Tensor", {{"self", x}, {"other", w}}, "{}",
                 value(DType::Float32, {2}, {3, 8}));
    sum = op("norm", "aten.add.Tensor", {{"self", product}, {"other", x}}, "{}",
             value(DType::Float32, {2}, {4, 10}));
    module_output("norm", sum);
    module_input("head", "0", sum);
    op("head", "aten.neg.default", {{"self", sum}}, "{}", value(DType::Float32, {2}, {-4, -10}));
  }
};

// ---- operators ----------------------------------------------------------------------------------

TEST(Neighbourhood, FollowsTheMakersThatOperatorsName) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  EXPECT_EQ(flow.basis, FlowBasis::Operators);
  EXPECT_EQ(flow.reason, "");
  EXPECT_THAT(edges_around(flow, "norm::aten.add.Tensor.0"),
              UnorderedElementsAre("norm::aten.mul.Tensor.0 -> norm::aten.add.Tensor.0 self",
                                   "norm::aten.add.Tensor.0 -> head::aten.neg.default.0 self",
                                   "norm.weight -> norm::aten.mul.Tensor.0 other"));
}

TEST(Neighbourhood, TakesTheMakerThatTheCaptureNamesOfTwoThatReturnTheSameValue) {
  TestRun run;
  const Value x = run.value(DType::Float32, {2}, {1, 2});
  const Value view =
      run.op("m", "aten.view.default", {{"self", x}}, "{}", run.value(DType::Float32, {2}, {1, 2}));
  run.op("m", "aten.view.default", {{"self", x}}, "{}", view);  // the same place: the same value
  run.op("m", "aten.neg.default", {{"self", view}}, "{}", run.value(DType::Float32, {2}, {-1, -2}));
  const DataFlow flow = data_flow(run.run());
  EXPECT_THAT(edges_around(flow, "m::aten.neg.default.0"),
              ElementsAre("m::aten.view.default.0 -> m::aten.neg.default.0 self"));
}

TEST(Neighbourhood, DrawsModulesAroundAModule) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  EXPECT_THAT(edges_around(flow, "norm"), ElementsAre("norm -> head 0"));
}

TEST(Neighbourhood, LabelsEdgesWithTypeAndShape) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  const Json graph = Json::parse(
      neighbourhood_json(flow, neighbourhood(flow, find(flow, "norm::aten.add.Tensor.0")), {}));
  EXPECT_EQ(graph["edges"][0]["label"], "float32 [2]");
  EXPECT_EQ(graph["basis"], "operators");
}

TEST(Neighbourhood, CallsRowsAndVerdictsByTheOutputsOfANode) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  const uint32_t add = *find(flow, "norm::aten.add.Tensor.0");
  const size_t output = flow.nodes[add].outputs[0].record;
  const Json graph = Json::parse(neighbourhood_json(
      flow, neighbourhood(flow, add), {{output, {7, locate::RowJudgement::OwnError}}}));
  EXPECT_EQ(graph["centre"], graph["nodes"][0]["id"]);
  EXPECT_EQ(graph["nodes"][0]["row"], 7);
  EXPECT_EQ(graph["nodes"][0]["verdict"], "own_error");
  EXPECT_EQ(graph["nodes"][1]["row"], nullptr);
  EXPECT_EQ(graph["nodes"][1]["verdict"], "");
}

TEST(Neighbourhood, DrawsAWriteThroughAViewAsTheMakerOfWhatIsReadAfterwards) {
  // y = x + 1; y.view(-1).add_(1); y * 2, as docs/formats/native.md has it: nothing returned the
  // value that mul reads.
  TestRun run;
  const Value x = run.value(DType::Float32, {2}, {1, 2});
  const Value y = run.op("", "aten.add.Tensor", {{"self", x}}, R"({"other": 1})",
                         run.value(DType::Float32, {2}, {2, 3}));
  const Value view =
      run.op("", "aten.view.default", {{"self", y}}, "{}", run.value(DType::Float32, {2}, {2, 3}));
  run.op("", "aten.add_.Tensor", {{"self", view}}, R"({"other": 1})",
         run.value(DType::Float32, {2}, {3, 4}));
  const Value after = run.value(DType::Float32, {2}, {3, 4});
  run.op("", "aten.mul.Tensor", {{"self", after}}, R"({"other": 2})",
         run.value(DType::Float32, {2}, {6, 8}));
  run::Run& made = run.run();
  // By record: x y | y view | view written | after product
  const int64_t storages[] = {0, 1, 1, 1, 1, 1, 1, 2};
  const int64_t versions[] = {0, 0, 0, 0, 0, 1, 1, 0};
  for (size_t i = 0; i < made.records.size(); ++i) {
    made.records[i].storage_id = storages[i];
    made.records[i].storage_version = versions[i];
  }
  made.operations[2].writes = {"self"};
  const DataFlow flow = data_flow(made);
  EXPECT_THAT(edges_around(flow, "::aten.mul.Tensor.0"),
              UnorderedElementsAre("::aten.add.Tensor.0 -> ::aten.view.default.0 self",
                                   "::aten.view.default.0 -> ::aten.add_.Tensor.0 self",
                                   "::aten.add_.Tensor.0 -> ::aten.mul.Tensor.0 self"));
}

TEST(Neighbourhood, CountsWhatItDoesNotDraw) {
  TestRun run;
  const Value x = run.value(DType::Float32, {2}, {1, 2});
  const Value y =
      run.op("m", "aten.exp.default", {{"self", x}}, "{}", run.value(DType::Float32, {2}, {1, 2}));
  for (int i = 0; i < 1000; ++i) {
    run.op("m", "aten.neg.default", {{"self", y}}, "{}", run.value(DType::Float32, {2}, {-1, -2}));
  }
  const DataFlow flow = data_flow(run.run());
  const Neighbourhood around = neighbourhood(flow, find(flow, "m::aten.exp.default.0"));
  EXPECT_EQ(around.nodes.size(), 9u);  // with the nearest eight
  EXPECT_EQ(around.nodes[0].more_consumers, 992u);
  EXPECT_EQ(flow.nodes[around.nodes[1].node].name, "m::aten.neg.default.0");
  const Neighbourhood few =
      neighbourhood(flow, find(flow, "m::aten.exp.default.0"), {.nodes = 4, .fan = 5000});
  EXPECT_EQ(few.nodes.size(), 4u);
  EXPECT_EQ(few.nodes[0].more_consumers, 997u);
}

TEST(Neighbourhood, GoesNoFurtherThanItsHops) {
  TestRun run;
  Value x = run.value(DType::Float32, {2}, {1, 2});
  for (int i = 0; i < 9; ++i)
    x = run.op("m", "aten.neg.default", {{"self", x}}, "{}",
               run.value(DType::Float32, {2}, {i + 0., 2}));
  const DataFlow flow = data_flow(run.run());
  const Neighbourhood around =
      neighbourhood(flow, find(flow, "m::aten.neg.default.4"), {.hops = 2});
  EXPECT_EQ(around.nodes.size(), 5u);
  for (const NeighbourNode& node : around.nodes) {
    const bool is_end = node.hops == 2;
    EXPECT_EQ(node.more_producers + node.more_consumers, is_end ? 1u : 0u);
  }
}

TEST(Neighbourhood, KeepsNamesOfAnyBytesAsText) {
  TestRun run;
  const std::string name = "</script>\"\x1b[31m\xff" + std::string(500, 'x');
  const Value x = run.leaf(name, DType::Float32, {2}, {1, 2});
  run.op(name, "aten.neg.default", {{name, x}}, "{}", run.value(DType::Float32, {2}, {-1, -2}));
  const DataFlow flow = data_flow(run.run());
  const Neighbourhood around = neighbourhood(flow, 0);
  const Json graph = Json::parse(neighbourhood_json(flow, around, {}));
  const std::string shown = "</script>\"?[31m\xEF\xBF\xBD" + std::string(500, 'x');
  EXPECT_EQ(graph["nodes"][0]["module"], shown);
  EXPECT_EQ(graph["nodes"][1]["name"], shown);
  EXPECT_EQ(graph["edges"][0]["slot"], shown);
  const size_t record = flow.nodes[0].outputs[0].record;
  const Json links = Json::parse(links_json(flow, record, links_of(flow, record), {}));
  EXPECT_EQ(links["producers"][0]["name"], shown);
}

// ---- links of tensors ---------------------------------------------------------------------------

Names names_of(const DataFlow& flow, const std::vector<FlowLink>& links) {
  Names names;
  for (const FlowLink& link : links) {
    names.push_back(
        (link.node == kNoIndex ? flow.values[link.value].name : flow.nodes[link.node].name) + " " +
        link.slot);
  }
  return names;
}

TEST(LinksOf, SayWhatAnOutputWasComputedFromAndWhoReadsIt) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  const size_t product = flow.nodes[*find(flow, "norm::aten.mul.Tensor.0")].outputs[0].record;
  const RecordLinks of_product = links_of(flow, product);
  EXPECT_THAT(names_of(flow, of_product.producers), ElementsAre("norm.weight other"));
  EXPECT_THAT(names_of(flow, of_product.consumers), ElementsAre("norm::aten.add.Tensor.0 self"));
  // Operators first: what is around them has the value, too.
  const size_t sum = flow.nodes[*find(flow, "norm::aten.add.Tensor.0")].outputs[0].record;
  EXPECT_THAT(names_of(flow, links_of(flow, sum).consumers),
              ElementsAre("head::aten.neg.default.0 self", "head 0"));
  const RecordLinks few = links_of(flow, sum, 1);
  EXPECT_THAT(names_of(flow, few.consumers), ElementsAre("head::aten.neg.default.0 self"));
  EXPECT_EQ(few.more_consumers, 1u);
}

TEST(LinksOf, SayWhoMadeAnInputAndWhoElseReadsIt) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  const FlowNode& add = flow.nodes[*find(flow, "norm::aten.add.Tensor.0")];
  EXPECT_THAT(names_of(flow, links_of(flow, add.inputs[0].record).producers),
              ElementsAre("norm::aten.mul.Tensor.0 self"));
  // x comes from outside, and mul reads it as well.
  const RecordLinks of_x = links_of(flow, add.inputs[1].record);
  EXPECT_THAT(of_x.producers, ElementsAre());
  EXPECT_THAT(names_of(flow, of_x.consumers), ElementsAre("norm::aten.mul.Tensor.0 self"));
}

TEST(LinksOf, NameTheRowsAtTheOtherEnd) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  const size_t product = flow.nodes[*find(flow, "norm::aten.mul.Tensor.0")].outputs[0].record;
  const FlowNode& add = flow.nodes[*find(flow, "norm::aten.add.Tensor.0")];
  const RecordLinks links = links_of(flow, product);
  const auto row_with = [&](const RecordRows& rows) {
    return Json::parse(links_json(flow, product, links, rows))["consumers"][0]["row"];
  };
  EXPECT_EQ(row_with({{add.inputs[0].record, {3}}, {add.outputs[0].record, {4}}}), 3);
  EXPECT_EQ(row_with({{add.outputs[0].record, {4}}}), 4);
  EXPECT_EQ(row_with({}), nullptr);
}

TEST(LinksOf, SayWhoReadsAParameter) {
  NormRun run;
  run.weight("norm", "weight", run.w);
  const run::Run& made = run.run();
  const DataFlow flow = data_flow(made);
  const size_t weight = made.records.size() - 1;
  ASSERT_EQ(made.records[weight].role, Role::Weight);
  EXPECT_THAT(names_of(flow, links_of(flow, weight).consumers),
              ElementsAre("norm::aten.mul.Tensor.0 other"));
  EXPECT_EQ(node_of(flow, weight), find(flow, "norm::aten.mul.Tensor.0"));
}

// ---- the centre ---------------------------------------------------------------------------------

TEST(NodeOf, TakesAFindingsTensorThenItsNodeThenItsModule) {
  NormRun run;
  const DataFlow flow = data_flow(run.run());
  locate::Finding finding;
  finding.module = "norm";
  EXPECT_EQ(node_of(flow, finding), find(flow, "norm"));
  finding.node = "norm::aten.mul.Tensor.0";
  EXPECT_EQ(node_of(flow, finding), find(flow, "norm::aten.mul.Tensor.0"));
  finding.mine_record = flow.nodes[*find(flow, "norm::aten.add.Tensor.0")].outputs[0].record;
  EXPECT_EQ(node_of(flow, finding), find(flow, "norm::aten.add.Tensor.0"));
  locate::Finding elsewhere;
  elsewhere.node = "norm::aten.mul.Tensor.0";
  elsewhere.step = 1;
  EXPECT_EQ(node_of(flow, elsewhere), std::nullopt);
}

// ---- values that are equal ----------------------------------------------------------------------

/// Records of modules as a capture without operators leaves them: value `v` has digest v.
struct ModuleRun {
  run::Run run;
  ModuleRun() { run.layout = run::Layout::Native; }
  void add(const std::string& node, Role role, uint64_t value, int64_t step = 0) {
    run::TensorRecord record;
    record.node = node;
    record.op_type = "Module";
    record.role = role;
    record.slot = role == Role::Input ? "0" : "";
    record.step = step;
    record.order = run.records.size();
    record.dtype = DType::Float32;
    record.shape = Dims{2, 3};
    record.digest = stats::Digest{0, value};
    run.records.push_back(record);
  }
  void in(const std::string& node, uint64_t value) { add(node, Role::Input, value); }
  void out(const std::string& node, uint64_t value) { add(node, Role::Output, value); }
};

/// embed -> drop (hands through) -> layers.0 (norm, mlp) -> head
ModuleRun small_model() {
  ModuleRun made;
  made.in("embed", 1);
  made.out("embed", 2);
  made.in("drop", 2);
  made.out("drop", 2);
  made.in("layers.0", 2);
  made.in("layers.0.norm", 2);
  made.out("layers.0.norm", 3);
  made.in("layers.0.mlp", 3);
  made.out("layers.0.mlp", 4);
  made.out("layers.0", 4);
  made.in("head", 4);
  made.out("head", 5);
  return made;
}

TEST(DataFlow, LinksModulesByValuesThatAreEqual) {
  const ModuleRun model = small_model();
  const DataFlow flow = data_flow(model.run);
  EXPECT_EQ(flow.basis, FlowBasis::EqualValues);
  EXPECT_THAT(edges_around(flow, "layers.0.mlp"),
              UnorderedElementsAre("embed -> drop 0", "drop -> layers.0.norm 0",
                                   "layers.0.norm -> layers.0.mlp 0", "layers.0.mlp -> head 0"));
  EXPECT_THAT(edges_around(flow, "layers.0"),
              UnorderedElementsAre("embed -> drop 0", "drop -> layers.0 0", "layers.0 -> head 0"));
}

TEST(Neighbourhood, CountsAModuleAndWhatIsInsideItOnce) {
  // b, b.c and b.c.d all read what a made.
  ModuleRun model;
  model.in("a", 1);
  model.in("a.x", 1);
  model.out("a.x", 2);
  model.out("a", 2);
  for (const char* module : {"b", "b.c", "b.c.d"}) model.in(module, 2);
  for (const char* module : {"b.c.d", "b.c", "b"}) model.out(module, 3);
  const DataFlow flow = data_flow(model.run);
  const Neighbourhood around = neighbourhood(flow, find(flow, "a"));
  EXPECT_THAT(edges_of(flow, around), ElementsAre("a -> b 0"));
  EXPECT_EQ(around.nodes[0].more_consumers, 0u);
}

TEST(DataFlow, LinksModulesOfUnknownOrder) {
  ModuleRun model = small_model();
  std::ranges::reverse(model.run.records);
  model.run.order_known = false;
  const DataFlow flow = data_flow(model.run);
  EXPECT_THAT(
      edges_around(flow, "layers.0.mlp"),
      ::testing::IsSupersetOf({"layers.0.norm -> layers.0.mlp 0", "layers.0.mlp -> head 0"}));
}

TEST(DataFlow, KeepsRanksApart) {
  ModuleRun model = small_model();
  const std::vector<run::TensorRecord> first = model.run.records;
  for (run::TensorRecord record : first) {
    record.rank = 1;
    record.order += first.size();
    model.run.records.push_back(record);
  }
  const DataFlow flow = data_flow(model.run);
  for (const FlowValue& value : flow.values) {
    for (const FlowPlace& user : value.users) {
      for (const FlowPlace& maker : value.makers)
        EXPECT_EQ(flow.nodes[user.node].rank, flow.nodes[maker.node].rank);
    }
  }
  EXPECT_EQ(flow.values.size(), 2 * data_flow(small_model().run).values.size());
}

TEST(DataFlow, TakesTensorsThatShareStoredBytesForOneValue) {
  ModuleRun model = small_model();
  for (run::TensorRecord& record : model.run.records) {
    const uint64_t offset = record.digest->low * 4096;
    record.digest.reset();
    record.bytes = run::ByteLocation{"step-000000.safetensors", "", offset, 24, true};
  }
  const DataFlow flow = data_flow(model.run);
  EXPECT_THAT(edges_around(flow, "layers.0"),
              UnorderedElementsAre("embed -> drop 0", "drop -> layers.0 0", "layers.0 -> head 0"));
}

TEST(DataFlow, TakesATensorOfOneNumberForNoEvidence) {
  ModuleRun model;
  model.out("a", 1);
  model.in("b", 1);
  for (run::TensorRecord& record : model.run.records) {
    stats::TensorStats stats;
    stats.min = stats.max = 0;
    record.stats = stats;
  }
  const DataFlow flow = data_flow(model.run);
  EXPECT_EQ(flow.basis, FlowBasis::Nothing);
  EXPECT_THAT(flow.reason, HasSubstr("--level operator"));
  const Neighbourhood around = neighbourhood(flow, find(flow, "b"));
  EXPECT_EQ(around.nodes.size(), 1u);
  EXPECT_EQ(around.reason, flow.reason);
}

TEST(DataFlow, GivesParametersToTheirModulesWhereNothingSaysWhoReadsThem) {
  ModuleRun model = small_model();
  run::TensorRecord weight;
  weight.step = -1;
  weight.node = "layers.0.norm";
  weight.role = Role::Weight;
  weight.slot = "weight";
  weight.dtype = DType::Float32;
  weight.shape = Dims{3};
  weight.stats = stats::TensorStats();
  weight.order = 100;
  model.run.records.insert(model.run.records.begin(), weight);
  const DataFlow flow = data_flow(model.run);
  EXPECT_THAT(edges_around(flow, "layers.0.norm", {.hops = 1}),
              UnorderedElementsAre("drop -> layers.0.norm 0",
                                   "layers.0.norm.weight -> layers.0.norm weight",
                                   "layers.0.norm -> layers.0.mlp 0"));
  EXPECT_EQ(node_of(flow, 0), find(flow, "layers.0.norm"));
}

TEST(DataFlow, SaysWhyThereIsNone) {
  run::Run empty;
  EXPECT_EQ(data_flow(empty).reason, "the run holds no tensors");
  const Neighbourhood around = neighbourhood(data_flow(empty), std::nullopt);
  const Json graph = Json::parse(neighbourhood_json(data_flow(empty), around, {}));
  EXPECT_EQ(graph["centre"], nullptr);
  EXPECT_EQ(graph["reason"], "the run holds no tensors");
  EXPECT_EQ(graph["nodes"], Json::array());
}

// ---- structures that name their tensors ---------------------------------------------------------

run::TopologyNode operation(const std::string& name, const Names& inputs, const Names& outputs,
                            std::vector<run::TopologyNode> children = {}) {
  run::TopologyNode node;
  node.name = name;
  node.type = name.substr(name.rfind('_') + 1);
  node.inputs = inputs;
  node.outputs = outputs;
  node.children = std::move(children);
  return node;
}

/// A record for every tensor that has a name.
void add_records(const run::TopologyNode& node, int64_t step, run::Run* run) {
  const auto add = [&](Role role, size_t slot, const std::string& mark) {
    run::TensorRecord record;
    record.node = node.name;
    record.op_type = node.type;
    record.role = role;
    record.slot = std::to_string(slot) + mark;
    record.step = step;
    record.step_name = std::to_string(step);
    record.order = run->records.size();
    record.dtype = DType::Float16;
    record.shape = Dims{4};
    run->records.push_back(record);
  };
  for (size_t i = 0; i < node.inputs.size(); ++i) add(Role::Input, i, "");
  for (const run::TopologyNode& child : node.children) add_records(child, step, run);
  for (size_t i = 0; i < node.outputs.size(); ++i) add(Role::Output, i, "");
}

/// Of ATB: a layer that writes a cache in place and reads it, and a head; in two steps.
run::Run atb_run() {
  run::Run run;
  run.layout = run::Layout::AtbTree;
  run.topology = operation("", {}, {});
  run.topology->children = {operation("0_Layer", {"x", "cache"}, {"y", "cache"},
                                      {operation("0_Layer/0_Norm", {"x"}, {"n"}),
                                       operation("0_Layer/1_SetValue", {"cache", "n"}, {"cache"}),
                                       operation("0_Layer/2_Attention", {"n", "cache"}, {"y"})}),
                            operation("1_Head", {"y"}, {"z"})};
  run.models = {{"M", {0, 1}}};
  for (const int64_t step : {0, 1}) {
    for (const run::TopologyNode& child : run.topology->children) add_records(child, step, &run);
  }
  return run;
}

TEST(DataFlow, FollowsTheTensorsThatATopologyNames) {
  const run::Run run = atb_run();
  const DataFlow flow = data_flow(run);
  EXPECT_EQ(flow.basis, FlowBasis::Topology);
  EXPECT_EQ(flow.reason, "");
  EXPECT_THAT(edges_around(flow, "0_Layer/2_Attention"),
              UnorderedElementsAre("x -> 0_Layer/0_Norm 0", "cache -> 0_Layer/1_SetValue 0",
                                   "0_Layer/0_Norm -> 0_Layer/1_SetValue 1",
                                   "0_Layer/0_Norm -> 0_Layer/2_Attention 0",
                                   "0_Layer/1_SetValue -> 0_Layer/2_Attention 1",
                                   "0_Layer/2_Attention -> 1_Head 0"));
  EXPECT_THAT(edges_around(flow, "0_Layer"),
              UnorderedElementsAre("x -> 0_Layer 0", "cache -> 0_Layer 1", "0_Layer -> 1_Head 0"));
}

TEST(DataFlow, KeepsStepsOfATopologyApart) {
  const run::Run run = atb_run();
  const DataFlow flow = data_flow(run);
  const size_t last = run.records.size() - 2;  // the input of the second step's head
  const RecordLinks links = links_of(flow, last);
  ASSERT_EQ(links.producers.size(), 2u);  // the operation and the layer around it
  EXPECT_EQ(flow.nodes[links.producers[0].node].name, "0_Layer/2_Attention");
  for (const FlowLink& link : links.producers) EXPECT_EQ(flow.nodes[link.node].step, 1);
}

TEST(DataFlow, DrawsOperationsWithoutRecordsBetweenThoseThatHaveSome) {
  run::Run run = atb_run();
  std::erase_if(run.records, [](const run::TensorRecord& record) {
    return record.node != "0_Layer/0_Norm" && record.node != "1_Head";
  });
  const DataFlow flow = data_flow(run);
  EXPECT_THAT(edges_around(flow, "1_Head"),
              ::testing::IsSupersetOf(
                  {"0_Layer/0_Norm -> 0_Layer/2_Attention 0", "0_Layer/2_Attention -> 1_Head 0"}));
}

TEST(DataFlow, KeepsModelsThatCallTensorsAlikeApart) {
  run::Run run;
  run.layout = run::Layout::AtbTree;
  run.topology = operation("", {}, {});
  run.topology->children = {operation("0_A", {"x"}, {"y"}), operation("1_B", {"y"}, {"z"})};
  run.models = {{"prefill", {0}}, {"decode", {1}}};
  for (const run::TopologyNode& child : run.topology->children) add_records(child, 0, &run);
  const DataFlow flow = data_flow(run);
  EXPECT_THAT(edges_around(flow, "1_B"), ElementsAre("y -> 1_B 0"));
}

TEST(DataFlow, TellsWeightsOfAModelFromItsInputs) {
  run::Run run = atb_run();
  run.models[0].weights = {"cache"};
  const DataFlow flow = data_flow(run);
  const Neighbourhood around = neighbourhood(flow, find(flow, "0_Layer"));
  const Json graph = Json::parse(neighbourhood_json(flow, around, {}));
  std::map<std::string, std::string> types;
  for (const Json& node : graph["nodes"]) {
    if (node["leaf"]) types[node["name"]] = node["type"];
  }
  EXPECT_EQ(types, (std::map<std::string, std::string>{{"cache", "parameter"}, {"x", "input"}}));
}

TEST(DataFlow, SeesKernelsAsTheirOperation) {
  run::Run run = atb_run();
  run::TensorRecord kernel = run.records.back();
  kernel.node = "1_Head/0_MatMulKernel";
  kernel.op_type = "MatMulKernel";
  run.records.push_back(kernel);
  const DataFlow flow = data_flow(run);
  const std::optional<uint32_t> node = node_of(flow, run.records.size() - 1);
  ASSERT_TRUE(node.has_value());
  EXPECT_EQ(flow.nodes[*node].name, "1_Head");
  EXPECT_EQ(flow.nodes[*node].step, 1);
}

TEST(DataFlow, TakesWhatWasSavedBeforeAsReadAndWhatWasSavedAfterAsMade) {
  run::Run run;
  run.layout = run::Layout::AtbTree;
  run.topology = operation("", {}, {});
  run.topology->children = {operation("0_A", {"x"}, {"y"})};
  for (int i = 0; i < 2; ++i) add_records(run.topology->children[0], 0, &run);
  const Names slots = {"0.before", "0.before", "0.after", "0.after"};
  for (size_t i = 0; i < 4; ++i) run.records[i].slot = slots[i];
  const DataFlow flow = data_flow(run);
  EXPECT_EQ(flow.nodes[0].inputs[0].record, 0u);
  EXPECT_EQ(flow.nodes[0].outputs[0].record, 3u);
  EXPECT_EQ(flow.node_of_record, (std::vector<uint32_t>(4, 0)));
}

/// Records of operators of a compiled graph, as (name, inputs, outputs).
struct GraphRun {
  run::test::TestFolder folder;
  run::Run run;
  GraphRun() {
    run.layout = run::Layout::GeTree;
    run.graph_files = {{0, 0, folder / "dynamo_original_graph_1_rank_0.txt"}};
  }
  void text(const std::string& name, const std::string& content) { folder.put(name, content); }
  void op(const std::string& name, size_t inputs, size_t outputs) {
    for (const Role role : {Role::Input, Role::Output}) {
      for (size_t i = 0; i < (role == Role::Input ? inputs : outputs); ++i) {
        run::TensorRecord record;
        record.node = name;
        record.op_type = "T";
        record.role = role;
        record.slot = std::to_string(i);
        record.step_name = "0";
        record.order = run.records.size();
        run.records.push_back(record);
      }
    }
  }
  static std::string op_text(const std::string& name, const std::string& type,
                             const Names& inputs) {
    std::string text = "op { name: \"" + name + "\" type: \"" + type + "\" ";
    for (const std::string& input : inputs) text += "input: \"" + input + "\" ";
    return text + "output_desc { dtype: DT_FLOAT shape { dim: 2 dim: 3 } } }\n";
  }
};

std::string small_graph() {
  return GraphRun::op_text("x", "Data", {}) + GraphRun::op_text("w", "Const", {}) +
         GraphRun::op_text("MatMul", "MatMulV2", {"x:0", "", "w:0", "x:-1"}) +
         GraphRun::op_text("Cast", "Cast", {"MatMul:0"}) +
         GraphRun::op_text("Add", "Add", {"Cast:0", "x:0"}) +
         GraphRun::op_text("Mul", "Mul", {"Add:0", "w:0"}) +
         GraphRun::op_text("NetOutput", "NetOutput", {"Mul:0"});
}

TEST(DataFlow, FollowsTheEdgesOfAGraphsText) {
  GraphRun made;
  made.text("dynamo_original_graph_1_rank_0.txt", small_graph());
  made.op("MatMul", 2, 1);
  made.op("Add", 2, 1);
  made.op("Mul", 2, 1);
  const DataFlow flow = data_flow(made.run);
  EXPECT_EQ(flow.basis, FlowBasis::GraphText);
  // The absent operand of MatMul has no file, and so no number.
  EXPECT_THAT(edges_around(flow, "MatMul", {.hops = 2}),
              UnorderedElementsAre("x -> MatMul 0", "w -> MatMul 1", "MatMul -> Cast 0",
                                   "Cast -> Add 0", "x -> Add 1"));
  const Neighbourhood around = neighbourhood(flow, find(flow, "MatMul"), {.hops = 1});
  const Json graph = Json::parse(neighbourhood_json(flow, around, {}));
  EXPECT_EQ(graph["edges"][2]["label"], "DT_FLOAT [2, 3]");
}

TEST(DataFlow, TakesAFusedOperatorForItsMembers) {
  GraphRun made;
  made.text("dynamo_original_graph_1_rank_0.txt", small_graph());
  made.op("MatMul", 2, 1);
  made.op("AddMul", 3, 1);
  const DataFlow flow = data_flow(made.run);
  EXPECT_THAT(edges_around(flow, "AddMul", {.hops = 1}),
              UnorderedElementsAre("Cast -> AddMul 0", "x -> AddMul 1", "w -> AddMul 2",
                                   "AddMul -> NetOutput 0"));
}

TEST(DataFlow, DoesNotGuessWhichOperandAFusedOperatorReadsWhere) {
  GraphRun made;
  made.text("dynamo_original_graph_1_rank_0.txt", small_graph());
  made.op("AddMul", 2, 1);  // its members read three from outside
  const DataFlow flow = data_flow(made.run);
  EXPECT_THAT(edges_around(flow, "AddMul", {.hops = 1}),
              UnorderedElementsAre("Cast -> AddMul ", "x -> AddMul ", "w -> AddMul ",
                                   "AddMul -> NetOutput 0"));
}

TEST(DataFlow, SaysWhichTextCannotBeRead) {
  GraphRun made;
  made.text("dynamo_original_graph_1_rank_0.txt", "op {");
  made.op("MatMul", 2, 1);
  const DataFlow flow = data_flow(made.run);
  EXPECT_EQ(flow.basis, FlowBasis::Nothing);
  EXPECT_THAT(flow.reason, HasSubstr("dynamo_original_graph_1_rank_0.txt"));
}

TEST(Neighbourhood, EndsInAGraphThatGoesRound) {
  GraphRun made;
  made.text("dynamo_original_graph_1_rank_0.txt", GraphRun::op_text("A", "Merge", {"B:0", "A:0"}) +
                                                      GraphRun::op_text("B", "Add", {"A:0"}));
  made.op("A", 2, 1);
  made.op("B", 1, 1);
  const DataFlow flow = data_flow(made.run);
  EXPECT_THAT(edges_around(flow, "A", {.hops = 100}), UnorderedElementsAre("B -> A 0", "A -> B 0"));
}

}  // namespace
}  // namespace assay::report::html
