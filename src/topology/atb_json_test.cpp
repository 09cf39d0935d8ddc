// SPDX-License-Identifier: Apache-2.0
#include "topology/atb_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <nlohmann/json.hpp>

#include "topology/atb_names.hpp"

namespace assay::topology {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

// The report and the file of the probe's documentation, with one graph level.
constexpr std::string_view kFlatReport =
    R"({"inTensorNum":3,"internalTensorNum":1,"nodes":[{"inTensorIds":[0,1],"inTensorNum":2,"opName":"LinearOperation_2_0","opType":"LinearOperation","outTensorIds":[4],"outTensorNum":1,"param":{"hasBias":false,"transposeB":true}},{"inTensorIds":[4,2],"inTensorNum":2,"opName":"ElewiseOperation_2_1","opType":"ElewiseOperation","outTensorIds":[3],"outTensorNum":1,"param":{"elewiseType":8}}],"opName":"Decoder_layer_2","opType":"Decoder_layer","outTensorNum":1,"param":""})";
constexpr std::string_view kFlatFile =
    R"({"opName":"Decoder_layer_2","opType":"Decoder_layer","param":"","inTensors":["Decoder_layer_2_input_0","Decoder_layer_2_input_1","Decoder_layer_2_input_2"],"outTensors":["Decoder_layer_2_output_0"],"internalTensors":["Decoder_layer_2_internal_0"],"nodes":[{"opName":"LinearOperation_2_0","opType":"LinearOperation","param":{"hasBias":false,"transposeB":true},"inTensors":["Decoder_layer_2_input_0","Decoder_layer_2_input_1"],"outTensors":["Decoder_layer_2_internal_0"]},{"opName":"ElewiseOperation_2_1","opType":"ElewiseOperation","param":{"elewiseType":8},"inTensors":["Decoder_layer_2_internal_0","Decoder_layer_2_input_2"],"outTensors":["Decoder_layer_2_output_0"]}]})";

// The same with a graph in the graph.
constexpr std::string_view kNestedReport =
    R"({"inTensorNum":3,"internalTensorNum":2,"nodes":[
 {"inTensorIds":[0,1],"inTensorNum":2,"opName":"RmsNormOperation_0_0","opType":"RmsNormOperation","outTensorIds":[4],"outTensorNum":1,"param":{"layerType":1,"normParam":{"epsilon":1e-05,"quantType":0}}},
 {"inTensorIds":[4,2],"inTensorNum":2,"internalTensorNum":1,"nodes":[
   {"inTensorIds":[0,1],"inTensorNum":2,"opName":"LinearOperation_0_1_0","opType":"LinearOperation","outTensorIds":[3],"outTensorNum":1,"param":{"hasBias":false,"transposeA":false,"transposeB":true}},
   {"inTensorIds":[3],"inTensorNum":1,"opName":"ActivationOperation_0_1_1","opType":"ActivationOperation","outTensorIds":[2],"outTensorNum":1,"param":{"activationType":4,"scale":1.0}}],
  "opName":"Mlp_0_1","opType":"Mlp","outTensorIds":[5],"outTensorNum":1,"param":""},
 {"inTensorIds":[0,5],"inTensorNum":2,"opName":"ElewiseOperation_0_2","opType":"ElewiseOperation","outTensorIds":[3],"outTensorNum":1,"param":{"elewiseType":8}}],
"opName":"Decoder_layer_0","opType":"Decoder_layer","outTensorNum":1,"param":""})";
constexpr std::string_view kNestedFile =
    R"({"opName":"Decoder_layer_0","opType":"Decoder_layer","param":"",)"
    R"("inTensors":["Decoder_layer_0_input_0","Decoder_layer_0_input_1","Decoder_layer_0_input_2"],)"
    R"("outTensors":["Decoder_layer_0_output_0"],)"
    R"("internalTensors":["Decoder_layer_0_internal_0","Decoder_layer_0_internal_1"],)"
    R"("nodes":[)"
    R"({"opName":"RmsNormOperation_0_0","opType":"RmsNormOperation","param":{"layerType":1,"normParam":{"epsilon":1e-05,"quantType":0}},)"
    R"("inTensors":["Decoder_layer_0_input_0","Decoder_layer_0_input_1"],"outTensors":["Decoder_layer_0_internal_0"]},)"
    R"({"opName":"Mlp_0_1","opType":"Mlp","param":"",)"
    R"("inTensors":["Decoder_layer_0_internal_0","Decoder_layer_0_input_2"],"outTensors":["Decoder_layer_0_internal_1"],)"
    R"("internalTensors":["Mlp_0_1_internal_0"],)"
    R"("nodes":[)"
    R"({"opName":"LinearOperation_0_1_0","opType":"LinearOperation","param":{"hasBias":false,"transposeA":false,"transposeB":true},)"
    R"("inTensors":["Decoder_layer_0_internal_0","Decoder_layer_0_input_2"],"outTensors":["Mlp_0_1_internal_0"]},)"
    R"({"opName":"ActivationOperation_0_1_1","opType":"ActivationOperation","param":{"activationType":4,"scale":1.0},)"
    R"("inTensors":["Mlp_0_1_internal_0"],"outTensors":["Decoder_layer_0_internal_1"]}]},)"
    R"({"opName":"ElewiseOperation_0_2","opType":"ElewiseOperation","param":{"elewiseType":8},)"
    R"("inTensors":["Decoder_layer_0_input_0","Decoder_layer_0_internal_1"],"outTensors":["Decoder_layer_0_output_0"]}]})";

TEST(LayerFile, IsTheWorkedExampleOfTheProbeByteForByte) {
  const Result<std::string> file = layer_file("Decoder_layer_2", kFlatReport);
  ASSERT_TRUE(file) << file.error().describe();
  EXPECT_EQ(*file, kFlatFile);
}

TEST(LayerFile, IsTheNestedWorkedExampleByteForByte) {
  const Result<std::string> file = layer_file("Decoder_layer_0", kNestedReport);
  ASSERT_TRUE(file) << file.error().describe();
  EXPECT_EQ(*file, kNestedFile);
}

TEST(LayerFile, WritesEmptyListsOfASourceAndASink) {
  const Result<std::string> file = layer_file(
      "Fill_3",
      R"({"inTensorNum":0,"opName":"Fill_3","opType":"Fill","outTensorNum":0,"param":null})");
  ASSERT_TRUE(file);
  EXPECT_EQ(*file,
            R"({"opName":"Fill_3","opType":"Fill","param":null,"inTensors":[],"outTensors":[]})");
}

TEST(LayerFile, KeepsNumbersAndTextsAsTheyWereWritten) {
  const Result<std::string> file = layer_file(
      "A_0",
      R"({"inTensorNum":0,"opName":"A_0","opType":"A","outTensorNum":0,"param":{ "big" : 18446744073709551616, "tiny":1e-05, "t":"a \" b\\", "nan": NaN, "minus":-Infinity }})");
  ASSERT_TRUE(file);
  EXPECT_THAT(
      *file,
      HasSubstr(
          R"("param":{"big":18446744073709551616,"tiny":1e-05,"t":"a \" b\\","nan":null,"minus":null},)"));
}

TEST(LayerFile, NamesAPluginByItsPlace) {
  // ATB reports a user's operation with a name and its wires only.
  const Result<std::string> file = layer_file(
      "L_7",
      R"({"inTensorNum":1,"nodes":[{"name":"PluginOperation","inTensorIds":[0],"outTensorIds":[1]}],"opName":"L_7","opType":"L","outTensorNum":1})");
  ASSERT_TRUE(file) << file.error().describe();
  EXPECT_THAT(
      *file,
      HasSubstr(
          R"({"opName":"PluginOperation_7_0","opType":"PluginOperation","inTensors":["L_7_input_0"],"outTensors":["L_7_output_0"]})"));
}

TEST(LayerFile, MarksANodeWhoseIdsNameNothingAndKeepsItsChildren) {
  const Result<std::string> file = layer_file(
      "L_0",
      R"({"inTensorNum":1,"nodes":[{"inTensorIds":[9],"inTensorNum":1,"nodes":[{"inTensorIds":[0,1],"opName":"B_0_0_0","opType":"B","outTensorIds":[]}],"opName":"G_0_0","opType":"G","outTensorIds":[1],"outTensorNum":1}],"opName":"L_0","opType":"L","outTensorNum":1})");
  ASSERT_TRUE(file);
  const Json json = Json::parse(*file);
  const Json& graph = json["nodes"][0];
  EXPECT_EQ(graph["inTensors"], Json({"G_0_0_lost_9"}));
  EXPECT_EQ(graph["outTensors"], Json({"L_0_output_0"}));
  EXPECT_EQ(graph["truncated"], true);
  // The child's second id is the graph's output, whatever became of its input.
  EXPECT_EQ(graph["nodes"][0]["inTensors"], Json({"G_0_0_lost_9", "L_0_output_0"}));
  EXPECT_FALSE(graph["nodes"][0].contains("truncated"));
}

TEST(LayerFile, RefusesWhatIsNoReport) {
  const auto error = [](std::string_view report) {
    const Result<std::string> file = layer_file("A_0", report);
    return file ? Error{} : file.error();
  };
  EXPECT_EQ(error("").code, Errc::Truncated);
  EXPECT_EQ(error("[]").code, Errc::Invalid);
  EXPECT_EQ(error(R"({"opName":"A_0")").code, Errc::Truncated);
  EXPECT_EQ(error(R"({"opName":"A_0"})").code, Errc::Invalid);
  EXPECT_EQ(error(R"({"opName":1,"opType":"A","inTensorNum":0,"outTensorNum":0})").offset, 10u);
  EXPECT_THAT(error(R"({"opName":"A_0","opType":"A","inTensorNum":0})").message,
              HasSubstr("outTensorNum"));
  EXPECT_THAT(error(R"({"opName":"B_0","opType":"B","inTensorNum":0,"outTensorNum":0})").message,
              HasSubstr("calls itself B_0"));
  EXPECT_EQ(error(R"({"opName":"A_0","opType":"A","inTensorNum":-1,"outTensorNum":0})").code,
            Errc::Invalid);
  EXPECT_EQ(
      error(R"({"opName":"A_0","opType":"A","inTensorNum":99999999999,"outTensorNum":0})").code,
      Errc::TooLarge);
  EXPECT_EQ(
      error(R"({"opName":"A_0","opType":"A","inTensorNum":0,"outTensorNum":0,"nodes":[7]})").code,
      Errc::Invalid);
}

std::string nested_report(size_t depth) {
  std::string report;
  for (size_t i = 0; i < depth; ++i)
    report += R"({"opName":"G_0","opType":"G","inTensorNum":0,"outTensorNum":0,"nodes":[)";
  for (size_t i = 0; i < depth; ++i) report += "]}";
  return report;
}

TEST(LayerFile, TakesAThousandLevelsAndRefusesTenThousandOnASmallStack) {
  // The levels are converted in a thread as a host might have it, with 256 KiB of stack.
  struct Outcome {
    bool deep_is_refused = false;
    bool flat_is_taken = false;
  } outcome;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 * 1024);
  pthread_t thread;
  const auto body = [](void* argument) -> void* {
    auto* result = static_cast<Outcome*>(argument);
    const Result<std::string> deep = layer_file("G_0", nested_report(10'000));
    result->deep_is_refused = !deep && deep.error().code == Errc::TooLarge;
    result->flat_is_taken = layer_file("G_0", nested_report(kMaxNesting)).has_value();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &outcome), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  EXPECT_TRUE(outcome.deep_is_refused);
  EXPECT_TRUE(outcome.flat_is_taken);
}

// ---- model files --------------------------------------------------------------------------------

constexpr std::string_view kModelReport =
    R"({"inTensors":["M_input_0"],"internalTensors":["M_internal_0"],"modelName":"M","nodes":[{"inTensors":["M_input_0","M_weight_0"],"opName":"WordEmbedding","outTensors":["M_internal_0"]},{"inTensors":["M_internal_0","M_weight_1"],"opName":"Decoder_layer","outTensors":["M_output_0"]}],"outTensors":["M_output_0"],"weightTensors":["M_weight_0","M_weight_1"]})";
constexpr std::string_view kModelFile =
    R"({"inTensors":["M_input_0"],"internalTensors":["M_internal_0"],"modelName":"M","nodes":[{"inTensors":["M_input_0","M_weight_0"],"opName":"WordEmbedding_0","outTensors":["M_internal_0"],"opType":"WordEmbedding"},{"inTensors":["M_internal_0","M_weight_1"],"opName":"Decoder_layer_1","outTensors":["M_output_0"],"opType":"Decoder_layer","internalTensors":["Decoder_layer_1_internal_0"],"nodes":[{"opName":"LinearOperation_1_0","opType":"LinearOperation","param":{"transposeB":true},"inTensors":["M_internal_0","M_weight_1"],"outTensors":["Decoder_layer_1_internal_0"]}]}],"outTensors":["M_output_0"],"weightTensors":["M_weight_0","M_weight_1"]})";

LayerReport decoder(int id) {
  const std::string n = std::to_string(id);
  return {
      "Decoder_layer_" + n, "Decoder_layer",
      R"({"inTensorNum":2,"internalTensorNum":1,"nodes":[{"inTensorIds":[0,1],"opName":"LinearOperation_)" +
          n +
          R"(_0","opType":"LinearOperation","outTensorIds":[3],"param":{"transposeB":true}}],"opName":"Decoder_layer_)" +
          n + R"(","opType":"Decoder_layer","outTensorNum":1,"param":""})"};
}

TEST(ModelFile, IsTheWorkedExampleByteForByte) {
  const LayerReport layers[] = {decoder(1)};
  ModelMerge merge;
  const Result<std::string> file = model_file(kModelReport, layers, &merge);
  ASSERT_TRUE(file) << file.error().describe();
  EXPECT_EQ(*file, kModelFile);
  EXPECT_EQ(merge.node_count, 2u);
}

TEST(ModelFile, GivesTheKthNodeOfATypeTheKthLayerOfThatType) {
  // Another operation ran alone before, so the ids are not the nodes' numbers.
  const LayerReport layers[] = {decoder(4), {"Other_5", "Other", "{}"}, decoder(6)};
  constexpr std::string_view kTwo =
      R"({"modelName":"M","nodes":[{"opName":"Decoder_layer","inTensors":["a","w"],"outTensors":["b"]},{"opName":"Decoder_layer","inTensors":["b","w"],"outTensors":["c"]}]})";
  ModelMerge merge;
  const Result<std::string> file = model_file(kTwo, layers, &merge);
  ASSERT_TRUE(file);
  const Json nodes = Json::parse(*file)["nodes"];
  EXPECT_EQ(nodes[0]["opName"], "Decoder_layer_4");
  EXPECT_EQ(nodes[1]["opName"], "Decoder_layer_6");
  EXPECT_EQ(nodes[1]["nodes"][0]["inTensors"], Json({"b", "w"}));

  // A second model of the process goes on behind the first; there is no third layer of the type.
  const Result<std::string> second = model_file(kTwo, layers, &merge);
  ASSERT_TRUE(second);
  EXPECT_EQ(Json::parse(*second)["nodes"][0]["opName"], "Decoder_layer_2");
  EXPECT_THAT(*second, Not(HasSubstr("internalTensors")));
}

TEST(ModelFile, CopiesALayersParametersWhenItHasSome) {
  LayerReport layer = decoder(0);
  layer.report.replace(layer.report.rfind("\"param\":\"\""), 10, R"("param":{"rank": 8})");
  const LayerReport layers[] = {layer};
  ModelMerge merge;
  const Result<std::string> file = model_file(
      R"({"modelName":"M","nodes":[{"opName":"Decoder_layer","inTensors":["a","w"],"outTensors":["b"]}]})",
      layers, &merge);
  ASSERT_TRUE(file);
  EXPECT_THAT(*file, HasSubstr(R"("opType":"Decoder_layer","param":{"rank":8},"internalTensors")"));
}

TEST(ModelFile, MarksALayerThatGetsAnotherNumberOfTensorsThanItTakes) {
  const LayerReport layers[] = {decoder(0)};
  ModelMerge merge;
  const Result<std::string> file = model_file(
      R"({"modelName":"M","nodes":[{"opName":"Decoder_layer","inTensors":["a"],"outTensors":["b"]}]})",
      layers, &merge);
  ASSERT_TRUE(file);
  const Json node = Json::parse(*file)["nodes"][0];
  EXPECT_EQ(node["truncated"], true);
  EXPECT_EQ(node["nodes"][0]["outTensors"], Json({"Decoder_layer_0_internal_0"}));
}

TEST(ModelFile, RefusesWhatIsNoModelAndLeavesTheMergeAlone) {
  ModelMerge merge{.used_by_type = {{"Decoder_layer", 3}}, .node_count = 7};
  for (const std::string_view report :
       {"7", "{}", R"({"modelName":"M","nodes":[{"opName":"Decoder_layer"},{}]})",
        R"({"modelName":"M","nodes":[)"}) {
    EXPECT_FALSE(model_file(report, {}, &merge)) << report;
    EXPECT_EQ(merge.node_count, 7u);
    EXPECT_EQ(merge.used_by_type.at("Decoder_layer"), 3u);
  }
}

TEST(AtbNames, SplitTypeAndIds) {
  EXPECT_EQ(ids_of("LinearOperation_0_1_0"), "0_1_0");
  EXPECT_EQ(type_of("LinearOperation_0_1_0"), "LinearOperation");
  EXPECT_EQ(ids_of("Decoder_layer"), "");
  EXPECT_EQ(ids_of("Layer_2_0"), "2_0");
  EXPECT_EQ(ids_of("Layer_2_0", "Layer_2"), "0");
  EXPECT_EQ(ids_of("A_", "A"), "");
}

}  // namespace
}  // namespace assay::topology
