// SPDX-License-Identifier: Apache-2.0
// Dumps of the ATB acceleration library in all versions of the layout, built from the tables in
// docs/formats/atb-tree.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>

#include "formats/atb_bin.hpp"
#include "formats/op_csv.hpp"
#include "formats/probe_status.hpp"
#include "run/atb_part.hpp"
#include "run/atb_record.hpp"
#include "run/load.hpp"
#include "run/open.hpp"
#include "run/run.hpp"
#include "run/test_folder.hpp"

namespace assay::run {
namespace {

using formats::AtbAttribute;
using test::floats_of;
using test::TestFolder;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A float32 tensor of one dimension.
std::string tensor_file(const std::vector<float>& values) {
  const std::string dims = std::to_string(values.size());
  const AtbAttribute attributes[] = {{"format", "2"}, {"dtype", "0"}, {"dims", dims}};
  return formats::atb_bin_header(attributes, values.size() * 4) +
         std::string(as_text(std::as_bytes(std::span(values))));
}

std::string statistics_file(std::string_view max) {
  const AtbAttribute attributes[] = {{"format", "2"}, {"dtype", "1"},  {"dims", "2,3"},
                                     {"max", max},    {"min", "-2.5"}, {"mean", "0.25"},
                                     {"l2norm", "3"}};
  return formats::atb_bin_header(attributes, std::nullopt);
}

std::string reference_file(std::string_view target) {
  const AtbAttribute attributes[] = {
      {"format", "2"}, {"dtype", "0"}, {"dims", "1"}, {"data", target}};
  return formats::atb_bin_header(attributes, std::nullopt);
}

/// "rank/step/node role slot" of every record, in the order of the run.
std::vector<std::string> listing(const Run& run) {
  std::vector<std::string> lines;
  for (const TensorRecord& record : run.records) {
    lines.push_back(std::to_string(record.rank) + "/" + record.step_name + "/" + record.node + " " +
                    std::string(role_name(record.role)) + " " + record.slot +
                    (record.call ? "#" + std::to_string(record.call) : "") +
                    (record.problem.empty() ? "" : " !"));
  }
  return lines;
}

Run open(const std::string& path) {
  Result<Run> run = open_run(path);
  if (!run) {
    ADD_FAILURE() << run.error().describe();
    return {};
  }
  EXPECT_EQ(run->layout, Layout::AtbTree);
  return *std::move(run);
}

float first_value(const TensorRecord& record) {
  const Result<Tensor> tensor = load_tensor(record);
  if (!tensor) {
    ADD_FAILURE() << tensor.error().describe();
    return NAN;
  }
  return floats_of(*tensor).at(0);
}

/// A graph with an operation in it, its kernel, and a second layer; -time 3.
void put_run(const TestFolder& folder, const std::string& step, float base = 0) {
  const auto put = [&](const std::string& name, float value) {
    folder.put(step + "/" + name, tensor_file({base + value}));
  };
  put("10_LmHead/after/outtensor0.bin", 6);
  put("2_Layer/before/intensor0.bin", 1);
  put("2_Layer/after/outtensor0.bin", 5);
  put("2_Layer/0_LinearOperation/before/intensor0.bin", 2);
  put("2_Layer/0_LinearOperation/after/outtensor0.bin", 4);
  put("2_Layer/0_LinearOperation/0_MatMulKernel/before/intensor0.bin", 3);
  folder.put(step + "/2_Layer/0_LinearOperation/op_param.json", "{\"transposeB\":true}\n");
}
const std::vector<std::string> kRunListing = {
    "0/0/2_Layer input 0",
    "0/0/2_Layer/0_LinearOperation input 0",
    "0/0/2_Layer/0_LinearOperation/0_MatMulKernel input 0",
    "0/0/2_Layer/0_LinearOperation output 0",
    "0/0/2_Layer output 0",
    "0/0/10_LmHead output 0",  // by number: 10 behind 2
};

TEST(AtbTree, OpensEveryVersionAtEveryLevel) {
  struct Layout {
    std::string process_folder;
    std::vector<std::string> opened;
  };
  const Layout layouts[] = {
      {"d/msit_dump_20260105_020000/tensors/0_39943",
       {"d", "d/msit_dump_20260105_020000", "d/msit_dump_20260105_020000/tensors"}},
      {"d/ait_dump/tensors/0_39943", {"d", "d/ait_dump"}},
      {"d/ait_dump_20240101_000000/tensors/0_39943", {"d", "d/ait_dump_20240101_000000/"}},
      {"d/my_own_name/tensors/0_39943", {"d/my_own_name", "d/my_own_name/tensors"}},
      {"d/0_39943", {"d"}},
      {"d/atb_temp/tensors/39943_4711", {"d"}},
      {"d/atb_dump_data/data/0_39943", {"d", "d/atb_dump_data", "d/atb_dump_data/data"}},
  };
  for (const Layout& layout : layouts) {
    const TestFolder folder;
    put_run(folder, layout.process_folder + "/0");
    std::vector<std::string> paths = layout.opened;
    paths.push_back(layout.process_folder);
    paths.push_back(layout.process_folder + "/0");
    for (const std::string& path : paths) {
      const auto run = open(folder / path);
      EXPECT_EQ(listing(run), kRunListing) << path;
      EXPECT_THAT(run.warnings, IsEmpty()) << path;
    }
  }
}

/// This process on one core while the object lives.
class OneCore {
 public:
  OneCore() {
    EXPECT_EQ(::sched_getaffinity(0, sizeof(before_), &before_), 0);
    int core = 0;
    while (!CPU_ISSET(core, &before_)) ++core;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    EXPECT_EQ(::sched_setaffinity(0, sizeof(one), &one), 0);
  }
  ~OneCore() { ::sched_setaffinity(0, sizeof(before_), &before_); }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

 private:
  cpu_set_t before_{};
};

TEST(AtbTree, ReadsLayersSideBySideIntoExecutionOrder) {
  const TestFolder folder;
  std::vector<std::string> expected;
  std::vector<std::string> nodes;  // with parameters
  for (int layer = 0; layer < 30; ++layer) {
    const std::string node = std::to_string(layer) + "_Layer";
    const std::string inner = node + "/0_LinearOperation";
    const std::string at = "tensors/0_7/0/";
    folder.put(at + node + "/before/intensor0.bin", tensor_file({1}));
    folder.put(at + inner + "/before/intensor0.bin", tensor_file({2}));
    folder.put(at + inner + "/after/outtensor0.bin", layer == 17 ? "broken" : tensor_file({3}));
    folder.put(at + inner + "/after/outtensor1.bin.tmp", "unfinished");
    folder.put(at + inner + "/op_param.json", "{\"layer\":" + std::to_string(layer) + "}");
    folder.put(at + node + "/after/outtensor0.bin", tensor_file({4}));
    if (layer % 10 == 5) folder.put(at + node + "/no_number/x", "");
    expected.push_back("0/0/" + node + " input 0");
    expected.push_back("0/0/" + inner + " input 0");
    expected.push_back("0/0/" + inner + " output 0" + (layer == 17 ? " !" : ""));
    expected.push_back("0/0/" + node + " output 0");
    nodes.push_back(inner);
  }
  const auto run = open(folder.path());
  EXPECT_EQ(listing(run), expected);
  ASSERT_EQ(run.operations.size(), nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    EXPECT_EQ(run.operations[i].node, nodes[i]);
    EXPECT_EQ(run.operations[i].parameters, "{\"layer\":" + std::to_string(i) + "}");
  }
  EXPECT_THAT(run.warnings,
              ElementsAre(HasSubstr("/5_Layer/no_number"), HasSubstr("/15_Layer/no_number"),
                          HasSubstr("/25_Layer/no_number"), HasSubstr("30 unfinished files")));

  const OneCore one_core;
  const auto again = open(folder.path());
  EXPECT_EQ(listing(again), expected);
  EXPECT_EQ(again.warnings, run.warnings);
}

TEST(AtbTree, SaysWhatIsWrongWithAFileThatChangedSince) {
  const TestFolder folder;
  const std::string file = "tensors/0_7/0/0_Layer/after/outtensor0.bin";
  const std::string content = tensor_file({1, 2, 3});
  folder.put(file, content);
  const TensorRecord record = open(folder.path()).records.at(0);
  const auto reason = [&record] {
    const Result<Tensor> tensor = load_tensor(record);
    return tensor ? std::string("none") : tensor.error().describe();
  };
  EXPECT_EQ(reason(), "none");

  folder.put(file, content.substr(0, content.size() - 1));
  EXPECT_THAT(reason(), HasSubstr("the record says 12 bytes, the file ends at " +
                                  std::to_string(content.size() - 1)));

  std::filesystem::remove(folder / file);
  EXPECT_THAT(reason(), HasSubstr(file));

  folder.put_fifo(file);  // without a writer: reading it must not wait
  EXPECT_THAT(reason(), HasSubstr("is not a regular file"));

  std::filesystem::remove(folder / file);
  folder.put_link(file, "/dev/zero");
  EXPECT_THAT(reason(), HasSubstr("is not a regular file"));
}

TEST(AtbTree, RecordsSayWhatAndWhere) {
  const TestFolder folder;
  put_run(folder, "msit_dump/tensors/3_77/0");
  put_run(folder, "msit_dump/tensors/3_77/12", 100);
  put_run(folder, "msit_dump/tensors/10_5/0", 200);
  const auto run = open(folder / "msit_dump");
  ASSERT_EQ(run.records.size(), 18u);
  // Ranks are numbered by device, then process: 3_77 before 10_5.
  EXPECT_EQ(run.properties.at("rank0.device"), "3");
  EXPECT_EQ(run.properties.at("rank0.pid"), "77");
  EXPECT_EQ(run.properties.at("rank1.device"), "10");
  const TensorRecord& linear = run.records[7];
  EXPECT_EQ(linear.rank, 0);
  EXPECT_EQ(linear.step, 12);
  EXPECT_EQ(linear.node, "2_Layer/0_LinearOperation");
  EXPECT_EQ(linear.op_type, "LinearOperation");
  EXPECT_EQ(linear.dtype, DType::Float32);
  EXPECT_EQ(linear.shape, Dims{1});
  EXPECT_EQ(first_value(linear), 102);
  EXPECT_EQ(first_value(run.records[12]), 201);
  ASSERT_EQ(run.operations.size(), 3u);
  EXPECT_EQ(run.operations[1].step, 12);
  EXPECT_EQ(run.operations[1].node, "2_Layer/0_LinearOperation");
  EXPECT_EQ(run.operations[1].op_type, "LinearOperation");
  EXPECT_EQ(run.operations[1].parameters, "{\"transposeB\":true}");
}

TEST(AtbTree, TellsInputsAfterAndOutputsBeforeTheOperation) {
  const TestFolder folder;
  const std::string node = "msit_dump/tensors/0_1/0/0_Op";
  for (const char* moment : {"before", "after"}) {
    for (const char* file : {"intensor0.bin", "outtensor0.bin"})
      folder.put(node + "/" + moment + "/" + file, tensor_file({1}));
  }
  EXPECT_THAT(listing(open(folder / "msit_dump")),
              ElementsAre("0/0/0_Op input 0", "0/0/0_Op output 0.before", "0/0/0_Op input 0.after",
                          "0/0/0_Op output 0"));
}

TEST(AtbTree, TakesInputsFromAfterWhenThereIsNoBefore) {
  const TestFolder folder;
  const std::string node = "msit_dump/tensors/0_1/0/0_Op";
  folder.put(node + "/after/intensor10.bin", tensor_file({1}));
  folder.put(node + "/after/intensor2_x.bin", tensor_file({1}));
  folder.put(node + "/after/outtensor0.bin", tensor_file({1}));
  EXPECT_THAT(listing(open(folder / "msit_dump")),
              ElementsAre("0/0/0_Op input 2", "0/0/0_Op input 10", "0/0/0_Op output 0"));
}

TEST(AtbTree, KeepsDescriptionsAndStatisticsWithoutData) {
  const TestFolder folder;
  const std::string node = "msit_dump/tensors/0_1/0/0_Op";
  folder.put(node + "/before/intensor0.bin", statistics_file("65504"));
  folder.put(node + "/before/intensor1.bin", statistics_file("N/A"));
  const AtbAttribute nz[] = {{"format", "29"}, {"dtype", "27"}, {"dims", "1,2,16,16"}};
  folder.put(node + "/after/outtensor0.bin", formats::atb_bin_header(nz, std::nullopt));
  const auto run = open(folder / "msit_dump");
  ASSERT_EQ(run.records.size(), 3u);
  ASSERT_TRUE(run.records[0].stats.has_value());
  EXPECT_EQ(run.records[0].stats->max, 65504);
  EXPECT_EQ(run.records[0].stats->min, -2.5);
  EXPECT_EQ(run.records[0].stats->mean, 0.25);
  EXPECT_EQ(run.records[0].stats->l2_norm, 3);
  EXPECT_EQ(run.records[0].stats->count, 6);
  EXPECT_FALSE(run.records[0].bytes.has_value());
  EXPECT_TRUE(std::isnan(run.records[1].stats->max));
  EXPECT_EQ(run.records[2].dtype, DType::BFloat16);
  EXPECT_EQ(run.records[2].shape, (Dims{1, 2, 16, 16}));
  EXPECT_EQ(run.records[2].memory_format, "fractal_nz");
  EXPECT_EQ(run.records[2].problem, "");
  EXPECT_EQ(load_tensor(run.records[2]).error().code, Errc::NotFound);
}

TEST(StatsOf, TurnsComplexNumbersIntoMagnitudes) {
  // |3 - 4i| = 5; the mean of complex numbers says nothing about the mean of their magnitudes.
  const formats::AtbStatistics statistics{formats::AtbNumber{3, -4},
                                          formats::AtbNumber{0, 1},
                                          formats::AtbNumber{1, 1},
                                          formats::AtbNumber{6, 0},
                                          1,
                                          2};
  const stats::TensorStats stats = stats_of(statistics, 10);
  EXPECT_EQ(stats.max, 5);
  EXPECT_EQ(stats.min, 1);
  EXPECT_TRUE(std::isnan(stats.mean));
  EXPECT_EQ(stats.l2_norm, 6);
  EXPECT_EQ(stats.finite_count(), 7);
}

TEST(AtbTree, FollowsLinksInsideTheDump) {
  const TestFolder folder;
  const std::string tensors = "d/msit_dump/tensors/0_1/0";
  folder.put(tensors + "/0_A/after/outtensor0.bin", tensor_file({7}));
  folder.put_link(tensors + "/1_B/before/intensor0.bin", "../../0_A/after/outtensor0.bin");
  folder.put_link(tensors + "/1_B/before/intensor1.bin",
                  folder / (tensors + "/0_A/after/outtensor0.bin"));
  // The dump was moved: the absolute link names where it was.
  folder.put_link(tensors + "/1_B/before/intensor2.bin",
                  "/gone/msit_dump/tensors/0_1/0/0_A/after/outtensor0.bin");
  const auto run = open(folder / "d");
  ASSERT_EQ(run.records.size(), 4u);
  for (const TensorRecord& record : run.records) EXPECT_EQ(first_value(record), 7) << record.slot;
}

TEST(AtbTree, NamesLinksThatLeadNowhereOrOutside) {
  const TestFolder folder;
  const std::string node = "msit_dump/tensors/0_1/0/0_A/before";
  folder.put("secret.bin", tensor_file({7}));
  folder.put_link(node + "/intensor0.bin", "/gone/somewhere.bin");
  folder.put_link(node + "/intensor1.bin", "intensor1.bin");
  folder.put_link(node + "/intensor2.bin", folder / "secret.bin");
  folder.put_link(node + "/intensor3.bin", "/gone/tensors/../../secret.bin");
  folder.put_fifo(node + "/intensor4.bin");
  const auto run = open(folder / "msit_dump");
  ASSERT_EQ(run.records.size(), 5u);
  for (const TensorRecord& record : run.records) {
    EXPECT_THAT(record.problem, HasSubstr("intensor" + record.slot + ".bin: is "));
    EXPECT_FALSE(load_tensor(record).has_value());
  }
}

TEST(AtbTree, KeepsAFileItCannotReadAsARecord) {
  const TestFolder folder;
  const std::string node = "msit_dump/tensors/0_1/0/0_A/before";
  folder.put(node + "/intensor0.bin", tensor_file({1, 2, 3}).substr(0, 100));
  folder.put(node + "/intensor1.bin", "");
  const AtbAttribute text[] = {{"format", "2"}, {"dtype", "13"}, {"dims", "2"}};
  folder.put(node + "/intensor2.bin", formats::atb_bin_header(text, 2) + "ab");
  const auto run = open(folder / "msit_dump");
  ASSERT_EQ(run.records.size(), 3u);
  EXPECT_THAT(run.records[0].problem, HasSubstr("intensor0.bin: at byte"));
  EXPECT_THAT(run.records[1].problem, HasSubstr("does not begin with $Version="));
  EXPECT_THAT(run.records[2].problem, HasSubstr("ATB element type 13 (string)"));
  EXPECT_EQ(run.records[2].shape, Dims{2});
  EXPECT_EQ(load_tensor(run.records[2]).error().code, Errc::Unsupported);
}

TEST(AtbTree, ReadsTheFirstOfAppendedRecordsAndSaysSo) {
  const TestFolder folder;
  folder.put("msit_dump/tensors/0_1/0/0_A/before/intensor0.bin",
             tensor_file({1}) + tensor_file({2}));
  const auto run = open(folder / "msit_dump");
  EXPECT_EQ(first_value(run.records.at(0)), 1);
  EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("1 files hold more than one record")));
}

TEST(AtbTree, NamesWhatAKilledWriterLeft) {
  const TestFolder folder;
  put_run(folder, "msit_dump/tensors/0_1/0");
  folder.put("msit_dump/tensors/0_1/0/2_Layer/before/intensor1.bin.tmp", "half");
  folder.put("msit_dump/tensors/0_1/0/2_Layer/before/strange.bin", "x");
  folder.put("msit_dump/tensors/0_1/0/2_Layer/kernel_tilingdata.bin", "tiling of old probes");
  const auto run = open(folder / "msit_dump");
  EXPECT_EQ(listing(run), kRunListing);
  EXPECT_FALSE(run.coverage.complete);
  EXPECT_THAT(run.warnings,
              ElementsAre(HasSubstr("1 unfinished files (.tmp)"), HasSubstr("before/strange.bin")));
}

TEST(AtbTree, ListsOperationsOfAProcessWithoutTensors) {
  const TestFolder folder;
  const std::vector<formats::OpCsvTensor> inputs = {{"float16", "nd", "1,4096", ""},
                                                    {"bf16", "fractal_nz", "", ""}};
  const std::vector<formats::OpCsvTensor> outputs = {{"float", "nd", "2", ""}};
  const std::string text =
      std::string(formats::op_csv_header()) + "\n" +
      formats::op_csv_row(1, "LinearOperation_2_0", R"({"a":1})", inputs, outputs) + "\n" +
      formats::op_csv_row(2, "AddOperation_10", "{}", {}, outputs) + "\n" +
      formats::op_csv_row(3, "AddOperation_10", "{}", {}, outputs) + "\n";
  folder.put("msit_dump/operation_io_tensors/39943/operation_tensors_4.csv", text);
  const auto run = open(folder / "msit_dump");
  EXPECT_THAT(listing(run),
              ElementsAre("0/4/LinearOperation_2_0 input 0", "0/4/LinearOperation_2_0 input 1",
                          "0/4/LinearOperation_2_0 output 0", "0/4/AddOperation_10 output 0",
                          "0/4/AddOperation_10 output 0#1"));
  EXPECT_EQ(run.records[0].op_type, "LinearOperation");
  EXPECT_EQ(run.records[0].dtype, DType::Float16);
  EXPECT_EQ(run.records[0].shape, (Dims{1, 4096}));
  EXPECT_EQ(run.records[1].memory_format, "fractal_nz");
  EXPECT_EQ(run.records[1].shape, Dims{});
  EXPECT_EQ(run.operations.at(0).op_type, "AddOperation");
  EXPECT_EQ(run.properties.at("rank0.pid"), "39943");
  EXPECT_FALSE(run.properties.contains("rank0.device"));
}

TEST(AtbTree, TakesParametersFromTheListWhereTheirFileIsMissing) {
  const TestFolder folder;
  folder.put("msit_dump/tensors/0_9/0/2_Layer/0_LinearOperation/after/outtensor0.bin",
             tensor_file({1}));
  folder.put("msit_dump/operation_io_tensors/9/operation_tensors_0.csv",
             std::string(formats::op_csv_header()) + "\n" +
                 formats::op_csv_row(1, "LinearOperation_2_0", R"({"a":1})", {}, {}) + "\n");
  const auto run = open(folder / "msit_dump");
  ASSERT_EQ(run.operations.size(), 1u);
  EXPECT_EQ(run.operations[0].node, "2_Layer/0_LinearOperation");
  EXPECT_EQ(run.operations[0].parameters, R"({"a":1})");
  EXPECT_EQ(run.records.size(), 1u) << "a process with tensors is described by them";
}

TEST(AtbTree, BuildsTheTopologyFromModelsAndLayers) {
  const TestFolder folder;
  put_run(folder, "msit_dump/tensors/0_9/0");
  folder.put("msit_dump/model/9/M_Decoder.json",
             R"({"inTensors":["M_input_0"],"modelName":"M_Decoder","nodes":[)"
             R"({"inTensors":["M_input_0"],"opName":"Layer_2","outTensors":["M_internal_0"],)"
             R"("opType":"Layer","nodes":[{"opName":"LinearOperation_2_0",)"
             R"("opType":"LinearOperation","param":null,"inTensors":["M_input_0"],)"
             R"("outTensors":["M_internal_0"]}]}],"outTensors":["M_internal_0"]})");
  folder.put("msit_dump/layer/9/Layer_2.json", "not read, the model has it");
  folder.put("msit_dump/layer/9/PluginOperation_10.json",
             R"({"opName":"PluginOperation_10","opType":"PluginOperation","param":"",)"
             R"("inTensors":[],"outTensors":["PluginOperation_10_output_0"]})");
  const auto run = open(folder / "msit_dump");
  EXPECT_THAT(run.warnings, IsEmpty());
  ASSERT_TRUE(run.topology.has_value());
  EXPECT_EQ(run.topology->type, "M_Decoder");
  ASSERT_EQ(run.topology->children.size(), 2u);
  const TopologyNode& layer = run.topology->children[0];
  EXPECT_EQ(layer.name, "2_Layer");
  ASSERT_EQ(layer.children.size(), 1u);
  EXPECT_EQ(layer.children[0].name, "2_Layer/0_LinearOperation");
  EXPECT_EQ(layer.children[0].type, "LinearOperation");
  // A plugin has its own name in its folder; the ids say that it is the same operation.
  EXPECT_EQ(run.topology->children[1].name, "10_LmHead");
  EXPECT_EQ(run.topology->children[1].type, "PluginOperation");
}

TEST(AtbTree, KeepsTheNamesOfTensorsThatOperationsReadAndWrite) {
  const TestFolder folder;
  put_run(folder, "msit_dump/tensors/0_9/0");
  folder.put("msit_dump/model/9/M_Decoder.json",
             R"({"inTensors":["x"],"weightTensors":["cache"],"modelName":"M_Decoder","nodes":[)"
             R"({"inTensors":["x","cache"],"opName":"Layer_2","outTensors":["y"],)"
             R"("opType":"Layer"}],"outTensors":["y"]})");
  // The model only names its layer, whose own file has the operations.
  folder.put("msit_dump/layer/9/Layer_2.json",
             R"({"opName":"Layer_2","opType":"Layer","param":"",)"
             R"("inTensors":["Layer_2_input_0","Layer_2_input_1"],)"
             R"("outTensors":["Layer_2_output_0"],"nodes":[)"
             R"({"opName":"SetValueOperation_2_0","opType":"SetValueOperation","param":null,)"
             R"("inTensors":["Layer_2_input_1","Layer_2_input_0"],"outTensors":[]},)"
             R"({"opName":"LinearOperation_2_1","opType":"LinearOperation","param":null,)"
             R"("inTensors":["Layer_2_input_0","Layer_2_input_1"],)"
             R"("outTensors":["Layer_2_output_0"]}]})");
  const auto run = open(folder / "msit_dump");
  ASSERT_TRUE(run.topology.has_value());
  ASSERT_EQ(run.topology->children.size(), 1u);
  const TopologyNode& layer = run.topology->children[0];
  EXPECT_THAT(layer.inputs, ElementsAre("x", "cache"));
  EXPECT_THAT(layer.outputs, ElementsAre("y", "cache"));
  ASSERT_EQ(layer.children.size(), 2u);
  EXPECT_THAT(layer.children[0].outputs, ElementsAre("cache")) << "it writes its first input";
  EXPECT_THAT(layer.children[1].inputs, ElementsAre("x", "cache"));
  EXPECT_THAT(layer.children[1].outputs, ElementsAre("y"));
  ASSERT_EQ(run.models.size(), 1u);
  EXPECT_THAT(run.models[0].weights, ElementsAre("cache"));
}

TEST(AtbTree, ReadsOnWhenATopologyIsBroken) {
  const TestFolder folder;
  put_run(folder, "msit_dump/tensors/0_9/0");
  folder.put("msit_dump/model/9/M.json", R"({"modelName":"M","nodes":[{"opName":)");
  const auto run = open(folder / "msit_dump");
  EXPECT_EQ(listing(run), kRunListing);
  EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("model/9/M.json: at byte")));
  EXPECT_FALSE(run.topology.has_value());
}

// ---- msprobe ------------------------------------------------------------------------------------

constexpr const char* kTable =
    "Device and PID,Execution Count,Op Name,Op Type,Op Id,Input/Output,Index,Dtype,Format,Shape,"
    "Max,Min,Mean,Norm,Tensor Path\n";

TEST(AtbTree, ResolvesReferencesOfMsprobe) {
  const TestFolder folder;
  const std::string run_folder = "atb_dump_data/data/0_9/0";
  folder.put(run_folder + "/0_Layer/0_A/before/intensor0.bin", tensor_file({3}));
  folder.put(run_folder + "/0_Layer/1_B/before/intensor0.bin", reference_file("0_0_intensor0.bin"));
  folder.put(run_folder + "/0_Layer/1_B/before/intensor1.bin", reference_file("0_1_intensor0.bin"));
  folder.put(run_folder + "/0_Layer/1_B/after/outtensor0.bin",
             reference_file("0_7_outtensor0.bin"));
  folder.put(run_folder + "/0_Layer/1_B/0_K/before/intensor0.bin", reference_file("intensor0.bin"));
  const auto run = open(folder / "atb_dump_data");
  EXPECT_THAT(listing(run), ElementsAre("0/0/0_Layer/0_A input 0", "0/0/0_Layer/1_B input 0",
                                        "0/0/0_Layer/1_B input 1", "0/0/0_Layer/1_B/0_K input 0 !",
                                        "0/0/0_Layer/1_B output 0 !"));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(first_value(run.records[i]), 3) << i;
  EXPECT_THAT(run.records[4].problem, HasSubstr("0_7_outtensor0.bin"));
  // Where a tensor is stored says nothing of the operation that had it.
  EXPECT_EQ(run.records[1].bytes->file,
            folder / (run_folder + "/0_Layer/0_A/before/intensor0.bin"));
  EXPECT_EQ(run.records[1].moment, Moment::Before);
  EXPECT_EQ(run.node_folder(run.records[1]), folder / (run_folder + "/0_Layer/1_B"));
}

TEST(AtbPart, IsTheRunCountAndWhatWasNamedBelowIt) {
  const TestFolder folder;
  const std::string run_folder = "msit_dump_20260105_020000/tensors/0_9/3";
  for (const char* node : {"/0_Layer/1_B", "/0_Layer/1_B/0_K", "/0_Layer/10_B"})
    folder.put(run_folder + node + "/after/outtensor0.bin", tensor_file({1}));
  const auto part = open_atb_part(folder / (run_folder + "/0_Layer/1_B"));
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->below, "0_Layer/1_B");
  EXPECT_EQ(part->dump_folder, folder / "msit_dump_20260105_020000/tensors");
  std::vector<std::string> held;
  for (const TensorRecord& record : part->run.records) {
    if (part->holds(record)) held.push_back(record.step_name + " " + record.node);
  }
  EXPECT_THAT(held, testing::UnorderedElementsAre("3 0_Layer/1_B", "3 0_Layer/1_B/0_K"));
}

TEST(AtbTree, ResolvesReferencesBetweenFoldersThatAreReadByDifferentThreads) {
  const TestFolder folder;
  const std::string run_folder = "atb_dump_data/data/0_9/0/";
  for (int layer = 0; layer < 20; ++layer) {
    const std::string place = run_folder + std::to_string(layer) + "_Layer/before/intensor0.bin";
    // The first layer refers to the last, and the others to the one behind the first.
    const std::string target = layer == 0 ? "19_intensor0.bin" : "1_intensor0.bin";
    const bool has_data = layer == 1 || layer == 19;
    folder.put(place, has_data ? tensor_file({100.0f + static_cast<float>(layer)})
                               : reference_file(target));
  }
  const auto run = open(folder / "atb_dump_data");
  ASSERT_EQ(run.records.size(), 20u);
  EXPECT_EQ(first_value(run.records[0]), 119);
  for (size_t i = 1; i < 19; ++i) EXPECT_EQ(first_value(run.records[i]), 101) << i;
}

TEST(AtbTree, ReferencesInACircleAreNoTensor) {
  const TestFolder folder;
  const std::string node = "atb_dump_data/data/0_9/0/0_A/before";
  folder.put(node + "/intensor0.bin", reference_file("0_intensor1.bin"));
  folder.put(node + "/intensor1.bin", reference_file("0_intensor0.bin"));
  EXPECT_THAT(listing(open(folder / "atb_dump_data")),
              ElementsAre("0/0/0_A input 0 !", "0/0/0_A input 1 !"));
}

TEST(AtbTree, ReadsRunsThatAreOnlyATable) {
  const TestFolder folder;
  folder.put("atb_dump_data/data/0_9/2/statistic.csv",
             std::string(kTable) +
                 "0_9,2,Embedding/GatherOperation,GatherOperation,0_0,input,1_x,float16,nd,36x128,"
                 "1.5,-2,0.25,3,N/A\n"
                 "0_9,2,Embedding/GatherOperation,GatherOperation,0_0,output,0,bf16,nd,4,"
                 "N/A,N/A,N/A,N/A,N/A\n"
                 "0_9,2,A/B,B,0,output,0,bf16,nd,4,N/A,N/A,N/A,N/A,N/A\n"
                 "cut off,2\n");
  const auto run = open(folder / "atb_dump_data");
  EXPECT_THAT(listing(run), ElementsAre("0/2/0_Embedding/0_GatherOperation input 1",
                                        "0/2/0_Embedding/0_GatherOperation output 0"));
  ASSERT_TRUE(run.records[0].stats.has_value());
  EXPECT_EQ(run.records[0].stats->max, 1.5);
  EXPECT_EQ(run.records[0].stats->count, 36 * 128);
  EXPECT_EQ(run.records[0].shape, (Dims{36, 128}));
  EXPECT_EQ(run.records[1].dtype, DType::BFloat16);
  EXPECT_FALSE(run.records[1].stats.has_value());
  EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("2 rows")));
}

TEST(AtbTree, JoinsTheTableWithTheTensors) {
  const TestFolder folder;
  const std::string run_folder = "atb_dump_data/data/0_9/0";
  folder.put(run_folder + "/0_A/after/outtensor0_y.bin", tensor_file({3}));
  folder.put(run_folder + "/statistic.csv",
             std::string(kTable) +
                 "0_9,0,A,A,0,input,0_x,float,nd,1,9,8,7,6,N/A\n"
                 "0_9,0,A,A,0,output,0_y,float,nd,1,3,3,3,3,/d/0_A/after/outtensor0_y.bin\n");
  const auto run = open(folder / "atb_dump_data/data/0_9");
  EXPECT_THAT(listing(run), ElementsAre("0/0/0_A input 0", "0/0/0_A output 0"));
  EXPECT_EQ(run.records[0].stats->max, 9);
  EXPECT_EQ(run.records[1].stats->max, 3);
  EXPECT_EQ(first_value(run.records[1]), 3);
}

// ---- what the dump says about itself ------------------------------------------------------------

formats::ProbeStatus killed_process() {
  formats::ProbeStatus status;
  status.pid = 4711;
  status.counters.tensors_accepted = 5;
  status.counters.tensors_written = 2;
  status.counters.tensors_linked = 1;
  status.counters.skipped_disk = 4;
  formats::set_status_text(status.first_error, sizeof(status.first_error), "disk full");
  formats::set_status_text(status.notes[0], sizeof(status.notes[0]), "no id matched");
  return status;
}

TEST(AtbTree, TellsWhatAKilledProcessLost) {
  const TestFolder folder;
  put_run(folder, "msit_dump/tensors/0_4711/0");
  const formats::ProbeStatus status = killed_process();
  folder.put("msit_dump/probe_status_4711", as_text(std::as_bytes(std::span(&status, 1))));
  const auto run = open(folder / "msit_dump");
  EXPECT_FALSE(run.coverage.complete);
  EXPECT_EQ(run.coverage.planned, 5u);
  EXPECT_EQ(run.coverage.captured, 3u);
  ASSERT_EQ(run.coverage.missed.size(), 2u);
  EXPECT_EQ(run.coverage.missed[0].node, "process 4711");
  EXPECT_EQ(run.coverage.missed[0].count, 2u) << "5 accepted, 2 written, 1 linked";
  EXPECT_EQ(run.coverage.missed[1].count, 4u);
  EXPECT_THAT(run.warnings, ElementsAre(HasSubstr("3 of 5 tensors are on disk"),
                                        HasSubstr("disk full"), "process 4711: no id matched"));
}

TEST(AtbTree, BelievesTheSummaryOfAProcessThatEnded) {
  const TestFolder folder;
  put_run(folder, "msit_dump/tensors/0_4711/0");
  formats::ProbeStatus status = killed_process();
  status.counters.tensors_written = 4;
  status.counters.skipped_disk = 0;
  formats::set_status_text(status.first_error, sizeof(status.first_error), "");
  folder.put("msit_dump/probe_summary_4711.json",
             formats::probe_summary_json(status, true, 1767225600));
  const auto run = open(folder / "msit_dump");
  EXPECT_TRUE(run.coverage.complete);
  EXPECT_EQ(run.coverage.captured, 5u);
  EXPECT_THAT(run.coverage.missed, IsEmpty());
  EXPECT_THAT(run.warnings, ElementsAre("process 4711: no id matched"));
}

TEST(AtbTree, ReadsTheManifestOfTheCommand) {
  const TestFolder folder;
  put_run(folder, "own_name/tensors/0_9/0");
  folder.put("own_name/manifest.json",
             R"({"format":"assay-atb-dump","version":1,"tool":"assay 0.1.0","command":["./host"],)"
             R"("options":{"type":["tensor"]},"exit_status":137,"planned":9,"captured":6,)"
             R"("processes":[{"pid":9,"complete":false,"notes":["no id matched",3]}],)"
             R"("missed":[{"node":"process 9","reason":"lost","count":3}]})");
  folder.put("own_name/probe_summary_9.json", "the manifest has it");
  const auto run = open(folder.path());
  EXPECT_EQ(listing(run), kRunListing);
  EXPECT_EQ(run.coverage.planned, 9u);
  EXPECT_EQ(run.coverage.captured, 6u);
  EXPECT_FALSE(run.coverage.complete);
  ASSERT_EQ(run.coverage.missed.size(), 1u);
  EXPECT_EQ(run.coverage.missed[0].reason, "lost");
  EXPECT_EQ(run.properties.at("tool"), "assay 0.1.0");
  EXPECT_EQ(run.properties.at("command"), R"(["./host"])");
  EXPECT_THAT(run.warnings,
              ElementsAre("process 9 did not come to its end", "process 9: no id matched"));
}

TEST(AtbTree, ReadsOnWithAManifestThatIsNone) {
  for (const char* text : {"", "[]", R"({"format":"assay-atb-dump","missed":3,"processes":{}})",
                           R"({"format":"assay-atb-dump","processes":[{"complete":"x"}, 3]})"}) {
    const TestFolder folder;
    put_run(folder, "msit_dump/tensors/0_9/0");
    folder.put("msit_dump/manifest.json", text);
    EXPECT_EQ(listing(open(folder / "msit_dump")), kRunListing) << text;
  }
}

// ---- what is no ATB dump, and what is not clear -------------------------------------------------

TEST(AtbTree, AsksWhichOfSeveralDumpsIsMeant) {
  const TestFolder folder;
  put_run(folder, "msit_dump_20260105_020000/tensors/0_9/0");
  put_run(folder, "msit_dump_20260105_030000/tensors/0_9/0");
  folder.put_pth("msit_dump_20260105_040000/torch_tensors/cpu_1/0/root/output.pth", {1});
  const auto run = open_run(folder.path());
  ASSERT_FALSE(run.has_value());
  EXPECT_EQ(run.error().code, Errc::Usage);
  EXPECT_THAT(run.error().message, HasSubstr("holds 3 runs, name one of them"));
}

TEST(AtbTree, LeavesTorchDumpsToTheirReader) {
  const TestFolder folder;
  folder.put_pth("d/msit_dump_1/torch_tensors/0_1/0/root/output.pth", {1});
  for (const char* path : {"d", "d/msit_dump_1", "d/msit_dump_1/torch_tensors/0_1"}) {
    const auto run = open_run(folder / path);
    ASSERT_TRUE(run.has_value()) << path;
    EXPECT_EQ(run->layout, Layout::TorchTree) << path;
  }
}

TEST(AtbTree, LeavesFoldersWithNumbersToTheFlatReader) {
  const TestFolder folder;
  folder.put_npy("2024_05/1/2_photo/x.npy", {1});
  const auto run = open_run(folder.path());
  ASSERT_TRUE(run.has_value());
  EXPECT_EQ(run->layout, Layout::Flat);
  EXPECT_EQ(run->records.size(), 1u);
}

TEST(AtbTree, OpensADumpWithNothingInIt) {
  const TestFolder folder;
  folder.put_folder("msit_dump/tensors");
  const auto run = open(folder / "msit_dump");
  EXPECT_THAT(run.records, IsEmpty());
  EXPECT_THAT(run.warnings, ElementsAre("the dump holds no tensors"));
}

TEST(AtbFile, IsARunByItself) {
  const TestFolder folder;
  folder.put("intensor0.bin", tensor_file({1, 2}));
  folder.put("stats.bin", statistics_file("4"));
  folder.put("link.bin", reference_file("0_intensor0.bin"));
  const auto data = open_run(folder / "intensor0.bin");
  ASSERT_TRUE(data.has_value()) << data.error().describe();
  EXPECT_EQ(floats_of(load_tensor(data->records.at(0)).value()), (std::vector<float>{1, 2}));
  const auto statistics = open_run(folder / "stats.bin");
  ASSERT_TRUE(statistics.has_value());
  EXPECT_EQ(statistics->records.at(0).stats->max, 4);
  const auto reference = open_run(folder / "link.bin");
  ASSERT_TRUE(reference.has_value());
  EXPECT_THAT(reference->records.at(0).problem, HasSubstr("0_intensor0.bin"));
}

}  // namespace
}  // namespace assay::run
