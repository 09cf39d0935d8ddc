// SPDX-License-Identifier: Apache-2.0
#include "locate/program/program.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "locate/program/test_program.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::ArgumentList;
using reference::aten::Call;
using reference::aten::DTypeArgument;
using reference::aten::HostArgument;
using test::TestRun;
using test::Value;
using testing::ElementsAre;

std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.view.element_count()));
  read_values(tensor.view, 0, tensor.view.element_count(), values);
  return values;
}

TEST(MakeProgram, JoinsOperatorsThroughTheirValues) {
  // Given  t = x @ w in `proj`, then exp(t) in the root
  TestRun made;
  const Value x = made.value(DType::Float32, {1, 2}, {1, 2});
  const Value w = made.leaf("proj.weight", DType::Float32, {2, 1}, {3, 4});
  made.module_input("proj", "0", x);
  const Value t = made.op("proj", "aten.mm.default", {{"self", x}, {"mat2", w}},
                          R"({"self":{"tensor":"self"},"mat2":{"tensor":"mat2"}})",
                          made.value(DType::Float32, {1, 1}, {11}));
  made.module_output("proj", t);
  const Value y = made.op("", "aten.exp.default", {{"self", t}}, R"({"self":{"tensor":"self"}})",
                          made.value(DType::Float32, {1, 1}, {59874.14}));
  made.module_output("", y);

  const Program program = made.program();

  EXPECT_EQ(program.level, CaptureLevel::Operators);
  EXPECT_TRUE(program.has_bytes);
  EXPECT_TRUE(program.problems.empty());
  ASSERT_EQ(program.operators.size(), 2u);
  const Operator& product = program.operators[0];
  EXPECT_EQ(product.name, "aten.mm.default");
  EXPECT_EQ(product.module, "proj");
  ASSERT_EQ(product.inputs.size(), 2u);
  EXPECT_EQ(product.inputs[0].producer, kNone);
  EXPECT_EQ(product.inputs[0].leaf, "");
  EXPECT_EQ(product.inputs[1].leaf, "proj.weight");
  EXPECT_EQ(program.leaves.at("proj.weight"), product.inputs[1].record);
  const Operator& exponential = program.operators[1];
  EXPECT_EQ(exponential.inputs[0].producer, 0u);
  EXPECT_EQ(exponential.inputs[0].value, product.outputs[0].value);
  EXPECT_LT(product.time, exponential.time);

  ASSERT_EQ(program.calls.size(), 2u);
  EXPECT_EQ(program.calls[0].module, "proj");
  EXPECT_TRUE(program.calls[0].leaf);
  EXPECT_EQ(program.calls[1].module, "");
  EXPECT_FALSE(program.calls[1].leaf);
  EXPECT_LT(program.calls[0].end, program.calls[1].end);
}

TEST(MakeProgram, TellsTheCallsOfAModuleApart) {
  TestRun made;
  const Value a = made.value(DType::Float32, {1}, {1});
  const Value b =
      made.op("act", "aten.neg.default", {{"self", a}}, "", made.value(DType::Float32, {1}, {-1}));
  made.module_output("act", b);
  made.call = 1;
  const Value c =
      made.op("act", "aten.neg.default", {{"self", b}}, "", made.value(DType::Float32, {1}, {1}));
  made.module_output("act", c);
  const Program program = made.program();
  ASSERT_EQ(program.operators.size(), 2u);
  EXPECT_EQ(program.operators[0].node, program.operators[1].node);
  EXPECT_EQ(program.operators[1].module_call, 1u);
  EXPECT_EQ(program.operators[1].inputs[0].producer, 0u);
  ASSERT_EQ(program.calls.size(), 2u);
  EXPECT_EQ(program.calls[1].call, 1u);
}

TEST(MakeProgram, GivesTheValuesOfEveryRankTheirOwnIds) {
  TestRun made;
  Value x = made.value(DType::Float32, {1}, {1});
  made.module_output("a", x);
  made.rank = 3;
  made.module_output("a", x);
  const Program program = made.program();
  ASSERT_EQ(program.calls.size(), 2u);
  EXPECT_NE(program.calls[0].outputs[0].value, program.calls[1].outputs[0].value);
  EXPECT_EQ(program.calls[1].rank, 3);
}

TEST(MakeProgram, TakesTheWholeOfALeafThatOperatorsSawInParts) {
  // Given  an operator that saw the first half of a parameter, then one that saw all of it
  TestRun made;
  const Value part = made.leaf("in_proj.weight", DType::Float32, {1}, {5});
  const Value whole = made.leaf("in_proj.weight", DType::Float32, {2}, {5, 6});
  made.op("", "aten.neg.default", {{"self", part}}, "", made.value(DType::Float32, {1}, {-5}));
  made.op("", "aten.neg.default", {{"self", whole}}, "", made.value(DType::Float32, {2}, {-5, -6}));
  EXPECT_EQ(make_program(made.run()).leaves.at("in_proj.weight"), 2u);
  // When the parameters were dumped, too, that record counts
  made.weight("in_proj", "weight", whole);
  EXPECT_EQ(make_program(made.run()).leaves.at("in_proj.weight"), 4u);
}

TEST(MakeProgram, ReadsEveryKindOfArgument) {
  TestRun made;
  made.begin_op(
      "", "aten.foo.default", {},
      R"({"none":null,"yes":true,"dim":-1,"eps":1e-05,"text":"tanh","dims":[1,-1],"low":{"float":"-inf"},)"
      R"("dtype":{"dtype":"bfloat16"},"device":{"device":"cpu"},"generator":{"other":"Generator"}})");
  const Program program = made.program();
  const auto& attributes = program.operators.at(0).attributes;
  EXPECT_EQ(program.operators[0].problem, "");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(attributes.at("none").value));
  EXPECT_EQ(std::get<bool>(attributes.at("yes").value), true);
  EXPECT_EQ(std::get<int64_t>(attributes.at("dim").value), -1);
  EXPECT_EQ(std::get<double>(attributes.at("eps").value), 1e-5);
  EXPECT_EQ(std::get<std::string>(attributes.at("text").value), "tanh");
  const auto& dims = std::get<ArgumentList>(attributes.at("dims").value);
  ASSERT_EQ(dims.size(), 2u);
  EXPECT_EQ(std::get<int64_t>(dims[1].value), -1);
  EXPECT_EQ(std::get<double>(attributes.at("low").value), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(std::get<DTypeArgument>(attributes.at("dtype").value).dtype, DType::BFloat16);
  EXPECT_EQ(std::get<HostArgument>(attributes.at("device").value).text, "cpu");
  EXPECT_EQ(std::get<HostArgument>(attributes.at("generator").value).kind, "generator");
}

TEST(MakeProgram, SaysWhichArgumentItDoesNotUnderstand) {
  const auto problem = [](const std::string& arguments) {
    TestRun made;
    made.begin_op("", "aten.foo.default", {}, arguments);
    return made.program().operators.at(0).problem;
  };
  EXPECT_EQ(problem("{"), "arguments are no JSON object");
  EXPECT_EQ(problem(R"({"a":18446744073709551615})"), "argument 'a' is an integer beyond 64 bits");
  EXPECT_EQ(problem(R"({"a":{"complex":[1,2]}})"), "argument 'a' is a complex number [1,2]");
  EXPECT_EQ(problem(R"({"a":{"other":"ScriptObject"}})"), "argument 'a' is a ScriptObject");
  EXPECT_EQ(problem(R"({"a":{"tensor":"a"}})"), "the input 'a' was not captured");
  EXPECT_EQ(problem(R"({"a":{"tensor":"b"}})"), "argument 'a' names the tensor 'b'");
  EXPECT_EQ(problem(R"({"a":[{"tensor":"a.0"},3]})"),
            "argument 'a' mixes tensors with other values");
}

TEST(LoadCall, PutsOperandsIntoTheirArguments) {
  // Given  index.Tensor(self, [None, i, None]) and a scalar
  TestRun made;
  const Value self = made.value(DType::Float32, {2, 2}, {1, 2, 3, 4});
  const Value index = made.value(DType::Int64, {1}, {1});
  made.op("", "aten.index.Tensor", {{"self", self}, {"indices.1", index}},
          R"({"self":{"tensor":"self"},"indices":[null,{"tensor":"indices.1"},null],"alpha":2})",
          made.value(DType::Float32, {2, 1}, {2, 4}));
  const Program program = made.program();

  const Result<Call> call = load_call(program, program.operators.at(0));

  ASSERT_TRUE(call) << call.error().describe();
  EXPECT_EQ(call->name, "aten.index.Tensor");
  EXPECT_THAT(values_of(std::get<Tensor>(call->arguments.at("self").value)),
              ElementsAre(1, 2, 3, 4));
  const auto& indices = std::get<ArgumentList>(call->arguments.at("indices").value);
  ASSERT_EQ(indices.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(indices[0].value));
  EXPECT_THAT(values_of(std::get<Tensor>(indices[1].value)), ElementsAre(1));
  EXPECT_EQ(std::get<int64_t>(call->arguments.at("alpha").value), 2);
}

TEST(LoadCall, NamesTheInputWithoutBytes) {
  TestRun made;
  made.op("", "aten.neg.default", {{"self", made.value(DType::Float32, {1}, {1})}}, "",
          made.value(DType::Float32, {1}, {-1}));
  made.run().records[0].bytes.reset();
  made.run().records[0].problem = "not captured: queue full";
  const Program program = made.program();
  const Result<Call> call = load_call(program, program.operators.at(0));
  ASSERT_FALSE(call);
  EXPECT_EQ(call.error().code, Errc::NotFound);
  EXPECT_EQ(call.error().message, "input 'self': not captured: queue full");
}

TEST(MakeCall, TakesTheGivenOperandsAndMissesNone) {
  TestRun made;
  const Value x = made.value(DType::Float32, {1}, {1});
  made.op("", "aten.cat.default", {{"tensors.0", x}, {"tensors.1", x}},
          R"({"tensors":[{"tensor":"tensors.0"},{"tensor":"tensors.1"}]})", x);
  const Program program = made.program();
  const Tensor seven = reference::to_tensor(reference::Wide(Dims{1}, 7.0));
  const Tensor eight = reference::to_tensor(reference::Wide(Dims{1}, 8.0));
  const Result<Call> call =
      make_call(program.operators.at(0), {{"tensors.0", seven}, {"tensors.1", eight}});
  ASSERT_TRUE(call) << call.error().describe();
  const auto& list = std::get<ArgumentList>(call->arguments.at("tensors").value);
  EXPECT_THAT(values_of(std::get<Tensor>(list[1].value)), ElementsAre(8));

  const Result<Call> lacking = make_call(program.operators[0], {{"tensors.0", seven}});
  ASSERT_FALSE(lacking);
  EXPECT_EQ(lacking.error().message, "aten.cat.default: no value for the input 'tensors.1'");
}

// ---- what was captured --------------------------------------------------------------------------

TEST(CaptureLevel, FollowsFromWhatIsThere) {
  const auto level = [](const auto& fill) {
    TestRun made;
    const Value x = made.value(DType::Float32, {1}, {1});
    fill(&made, x);
    return made.program().level;
  };
  EXPECT_EQ(level([](TestRun*, const Value&) {}), CaptureLevel::Nothing);
  EXPECT_EQ(level([](TestRun* run, const Value& x) {
              run->module_input("model.layers.0.mlp", "0", x);
              run->module_output("model.layers.0.mlp", x);
              run->module_output("model.layers.0", x);
            }),
            CaptureLevel::Leaves);
  EXPECT_EQ(level([](TestRun* run, const Value& x) {
              run->module_output("model.layers.0.mlp", x);
              run->module_output("model.layers.0", x);
            }),
            CaptureLevel::Modules);
  EXPECT_EQ(level([](TestRun* run, const Value& x) {
              run->module_output("model.layers.0", x);
              run->module_output("model.layers.1", x);
              run->module_output("", x);
            }),
            CaptureLevel::Layers);
  EXPECT_EQ(level([](TestRun* run, const Value& x) {
              run->module_output("model", x);
              run->run().records[0].bytes.reset();
              run->run().records[0].stats = stats::TensorStats{};
            }),
            CaptureLevel::Statistics);
  // Operators without bytes are no program that can be judged.
  EXPECT_EQ(level([](TestRun* run, const Value& x) {
              run->op("", "aten.neg.default", {{"self", x}}, "", x);
              for (run::TensorRecord& record : run->run().records) record.bytes.reset();
            }),
            CaptureLevel::Nothing);
}

TEST(CaptureLevel, DoesNotTakeAListOfLinearModulesForLayers) {
  TestRun made;
  const Value x = made.value(DType::Float32, {1}, {1});
  made.module_input("0", "0", x);
  made.module_output("0", x);
  EXPECT_EQ(made.program().level, CaptureLevel::Layers);
  made.run().topology = run::TopologyNode{"", "Sequential", {{"0", "Linear", {}}}};
  EXPECT_EQ(made.program().level, CaptureLevel::Leaves);
}

TEST(MakeProgram, KnowsTheTypesOfParametersThatWereNotCaptured) {
  TestRun made;
  run::TopologyNode norm{"model.norm", "RMSNorm", {}};
  norm.parameter_types = {{"weight", "bfloat16"}, {"odd", "float33"}};
  run::TopologyNode root{"", "Model", {norm}};
  root.parameter_types = {{"scale", "float32"}};
  made.run().topology = root;
  const Program program = made.program();
  EXPECT_EQ(program.leaf_types,
            (std::map<std::string, DType>{{"model.norm.weight", DType::BFloat16},
                                          {"scale", DType::Float32}}));
}

TEST(MakeProgram, ReadsModuleCallsOfTheTorchDump) {
  TestRun made;
  const Value x = made.value(DType::Float32, {1}, {1});
  made.module_input("root.model.norm", "0", x);
  made.module_output("root.model.norm", x);
  made.module_output("root", x);
  made.weight("root.model.norm", "weight", x);
  made.run().layout = run::Layout::TorchTree;
  const Program program = made.program();
  EXPECT_EQ(program.level, CaptureLevel::Leaves);
  ASSERT_EQ(program.calls.size(), 2u);
  EXPECT_EQ(program.calls[0].module, "model.norm");
  EXPECT_EQ(program.calls[1].module, "");
  EXPECT_EQ(program.leaves.count("model.norm.weight"), 1u);
}

}  // namespace
}  // namespace assay::locate
