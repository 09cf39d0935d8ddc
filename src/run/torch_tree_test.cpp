// SPDX-License-Identifier: Apache-2.0
// Trees of the torch hook dump in all its versions, built from the tables in
// docs/formats/torch-tree.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/load.hpp"
#include "run/open.hpp"
#include "run/run.hpp"
#include "run/test_folder.hpp"
#include "run/torch_names.hpp"

namespace assay::run {
namespace {

using test::floats_of;
using test::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kTree =
    R"({"name": "root", "type": "Model", "children": [{"name": "root.embed", "type": "Embedding", "children": []},)"
    R"( {"name": "root.blocks", "type": "ModuleList", "children": [{"name": "root.blocks.0", "type": "Block", "children": []}]},)"
    R"( {"name": "root.a_head", "type": "Linear", "children": []}]})";

/// "rank/step/node role slot" of every record, in the order of the run.
std::vector<std::string> listing(const Run& run) {
  std::vector<std::string> lines;
  for (const TensorRecord& record : run.records) {
    lines.push_back(std::to_string(record.rank) + "/" + record.step_name + "/" + record.node + " " +
                    std::string(role_name(record.role)) + " " + record.slot +
                    (record.call ? "#" + std::to_string(record.call) : ""));
  }
  return lines;
}

void put_small_dump(const TestFolder& folder, const std::string& rank_folder) {
  folder.put(rank_folder + "/model_tree.json", kTree);
  folder.put_pth(rank_folder + "/0/root/input_0.pth", {1});
  folder.put_pth(rank_folder + "/0/root.a_head/input_0.pth", {2});
  folder.put_pth(rank_folder + "/0/root.a_head/output.pth", {3});
  folder.put_pth(rank_folder + "/0/root.blocks.0/output_1_0.pth", {4});
  folder.put_pth(rank_folder + "/0/root.blocks.0/output_0.pth", {5});
  folder.put_pth(rank_folder + "/10/root/input_0.pth", {6});
  folder.put_pth(rank_folder + "/2/root/input_0.pth", {7});
}
const std::vector<std::string> kSmallListing = {
    "0/0/root input 0",        "0/0/root.blocks.0 output 0", "0/0/root.blocks.0 output 1.0",
    "0/0/root.a_head input 0",  // tree order, not the order of names
    "0/0/root.a_head output ", "0/2/root input 0",           "0/10/root input 0",
};

TEST(ParseTorchFileName, FollowsTheGrammarOfAllVersions) {
  const auto text = [](const char* name) -> std::string {
    const auto parsed = parse_torch_file_name(name);
    if (!parsed) return "-";
    return std::string(role_name(parsed->role)) + ":" + parsed->slot +
           (parsed->execution ? "@" + std::to_string(*parsed->execution) : "");
  };
  EXPECT_EQ(text("input_0.pth"), "input:0");
  EXPECT_EQ(text("output.pth"), "output:");
  EXPECT_EQ(text("output_1_0.pth"), "output:1.0");
  EXPECT_EQ(text("input_exec7_0.pth"), "input:0@7");
  EXPECT_EQ(text("output_exec12.pth"), "output:@12");
  EXPECT_EQ(text("kwargs_attention_mask.pth"), "input:kwargs.attention_mask");
  EXPECT_EQ(text("output_.pth"), "-");
  EXPECT_EQ(text("outputs.pth"), "-");
  EXPECT_EQ(text("output_x.pth"), "-");
  EXPECT_EQ(text("input_0.npy"), "-");
}

TEST(ParseDeviceFolder, KnowsBothOrders) {
  EXPECT_EQ(parse_device_folder("npu5_7624")->device, "npu5");
  EXPECT_EQ(parse_device_folder("npu5_7624")->process, "7624");
  EXPECT_EQ(parse_device_folder("7624_npu5")->device, "npu5");
  EXPECT_FALSE(parse_device_folder("golden"));
  EXPECT_FALSE(parse_device_folder("_1"));
}

TEST(ParseShapeText, ReadsPythonTuples) {
  EXPECT_EQ(parse_shape_text("(1, 5, 4096)"), (Dims{1, 5, 4096}));
  EXPECT_EQ(parse_shape_text("(5,)"), Dims{5});
  EXPECT_EQ(parse_shape_text("()"), Dims{});
  EXPECT_EQ(parse_shape_text("torch.Size([2, 2])"), (Dims{2, 2}));
  EXPECT_FALSE(parse_shape_text("(-1,)"));
  EXPECT_FALSE(parse_shape_text("[1]"));
  EXPECT_FALSE(parse_shape_text("(1"));
}

TEST(OpenTorchTree, OpensEveryRootOfEveryVersion) {
  for (const std::string root :
       {"msit_dump_20250220_083154/torch_tensors/npu5_7624",
        "ait_dump_20240607_120000/torch_tensors/npu0_1", "msit_dump/torch_tensors/cpu_1",
        "ait_dump/torch_tensors/7624_npu0", "7624_npu0"}) {
    const TestFolder folder;
    put_small_dump(folder, "dump/" + root);
    // The dump path, then every folder on the way down to the rank.
    std::string path = "dump";
    for (std::string rest = "/" + root;;) {
      const auto run = open_run(folder / path);
      ASSERT_TRUE(run) << path << ": " << run.error().describe();
      EXPECT_EQ(run->layout, Layout::TorchTree) << path;
      EXPECT_EQ(listing(*run), kSmallListing) << path;
      EXPECT_THAT(run->warnings, IsEmpty()) << path;
      if (rest.empty()) break;
      const size_t slash = rest.find('/', 1);
      path += rest.substr(0, slash);
      rest = slash == std::string::npos ? "" : rest.substr(slash);
    }
  }
}

TEST(OpenTorchTree, OpensOneStepAndOneModule) {
  const TestFolder folder;
  put_small_dump(folder, "cpu_1");
  EXPECT_THAT(listing(open_run(folder / "cpu_1/10").value()), ElementsAre("0/10/root input 0"));
  const auto module = open_run(folder / "cpu_1/0/root.a_head");
  ASSERT_TRUE(module) << module.error().describe();
  EXPECT_THAT(listing(*module), ElementsAre("0/0/root.a_head input 0", "0/0/root.a_head output "));
  EXPECT_EQ(module->records[0].op_type, "Linear");
  EXPECT_THAT(floats_of(load_tensor(module->records[1]).value()), ElementsAre(3));
}

TEST(OpenTorchTree, DoesNotDependOnTheOrderOfCreation) {
  const TestFolder folder;
  const std::vector<std::string> names = {"0/root.b/input_0.pth",     "0/root.b/output.pth",
                                          "0/root.a.10/output_2.pth", "0/root.a.10/output_10.pth",
                                          "0/root.a.2/output.pth",    "1/root.a.2/output.pth"};
  for (auto it = names.begin(); it != names.end(); ++it) folder.put_pth("one/cpu_1/" + *it, {1});
  for (auto it = names.rbegin(); it != names.rend(); ++it) folder.put_pth("two/cpu_1/" + *it, {1});
  const auto expected = listing(open_run(folder / "one").value());
  EXPECT_THAT(expected, ElementsAre("0/0/root.a.2 output ", "0/0/root.a.10 output 2",
                                    "0/0/root.a.10 output 10", "0/0/root.b input 0",
                                    "0/0/root.b output ", "0/1/root.a.2 output "));
  EXPECT_EQ(listing(open_run(folder / "two").value()), expected);
}

TEST(OpenTorchTree, NumbersRanksByDevice) {
  const TestFolder folder;
  for (const char* rank : {"npu10_3", "npu2_9", "npu2_10"}) {
    folder.put_pth("d/msit_dump/torch_tensors/" + std::string(rank) + "/0/root/output.pth", {1});
  }
  const auto run = open_run(folder / "d");
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 3u);
  EXPECT_THAT(run->records[0].bytes->file, HasSubstr("npu2_9/"));
  EXPECT_THAT(run->records[1].bytes->file, HasSubstr("npu2_10/"));
  EXPECT_THAT(run->records[2].bytes->file, HasSubstr("npu10_3/"));
  EXPECT_EQ(run->records[2].rank, 2);
}

TEST(OpenTorchTree, NamesTheRunsItCannotChooseBetween) {
  const TestFolder folder;
  put_small_dump(folder, "d/msit_dump_20250101_000000/torch_tensors/cpu_1");
  put_small_dump(folder, "d/msit_dump_20250102_000000/torch_tensors/cpu_2");
  const auto run = open_run(folder / "d");
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().code, Errc::Usage);
  EXPECT_EQ(run.error().message,
            "holds 2 runs, name one of them: msit_dump_20250101_000000, msit_dump_20250102_000000");
}

TEST(OpenTorchTree, ReadsTheExecutionCountersOfTheOldestVersion) {
  const TestFolder folder;
  // Two calls in step 3; the hook had been called 7 times before.
  folder.put_pth("99_npu0/3/root.norm/input_exec7_0.pth", {1});
  folder.put_pth("99_npu0/3/root.norm/output_exec7.pth", {2});
  folder.put_pth("99_npu0/3/root.norm/input_exec12_0.pth", {3});
  folder.put_pth("99_npu0/3/root.norm/output_exec12.pth", {4});
  const auto run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(listing(*run), ElementsAre("0/3/root.norm input 0", "0/3/root.norm output ",
                                         "0/3/root.norm input 0#1", "0/3/root.norm output #1"));
}

TEST(OpenTorchTree, ReadsApiFoldersBesideTheirModule) {
  const TestFolder folder;
  put_small_dump(folder, "cpu_1");
  folder.put_pth("cpu_1/2/root.blocks.0.softmax/output.pth", {1});
  folder.put_pth("cpu_1/2/root.blocks.0/output.pth", {1});
  folder.put_pth("cpu_1/2/root.a_head/output.pth", {1});
  const auto run = open_run(folder / "cpu_1/2");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(listing(*run), ElementsAre("0/2/root input 0", "0/2/root.blocks.0.softmax output ",
                                         "0/2/root.blocks.0 output ", "0/2/root.a_head output "));
  EXPECT_EQ(run->records[1].op_type, "");
}

TEST(OpenTorchTree, ReadsTheApiFoldersOfEarly2024) {
  const TestFolder folder;
  folder.put("cpu_1/model_tree.json", kTree);
  folder.put_pth("cpu_1/softmax/1/input_0.pth", {1});
  folder.put_pth("cpu_1/softmax/0/input_0.pth", {1});
  const auto run = open_run(folder / "cpu_1");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(listing(*run),
              ElementsAre("0/softmax/softmax input 0", "0/softmax/softmax input 0#1"));
}

TEST(OpenTorchTree, FollowsRecordedExecutionOrder) {
  const TestFolder folder;
  // Counted when a module returns: children before their parents. root.c never ran.
  folder.put(
      "cpu_1/model_tree.json",
      R"({"name":"root","type":"M","exec_order":2,"children":[{"name":"root.b","type":"B","exec_order":1},)"
      R"({"name":"root.a","type":"A","exec_order":0},{"name":"root.c","type":"C","exec_order":-1}]})");
  for (const char* node : {"root", "root.a", "root.b", "root.b.softmax"}) {
    folder.put_pth("cpu_1/0/" + std::string(node) + "/output.pth", {1});
  }
  EXPECT_THAT(listing(open_run(folder / "cpu_1").value()),
              ElementsAre("0/0/root.a output ", "0/0/root.b.softmax output ", "0/0/root.b output ",
                          "0/0/root output "));
}

TEST(OpenTorchTree, SplitsWeightsIntoModuleAndParameter) {
  const TestFolder folder;
  put_small_dump(folder, "cpu_1");
  folder.put_pth("cpu_1/weights/root.embed.weight.pth", {1, 2});
  const TensorRecord weight = open_run(folder / "cpu_1").value().records[0];
  EXPECT_EQ(weight.step, -1);
  EXPECT_EQ(weight.step_name, "weights");
  EXPECT_EQ(weight.role, Role::Weight);
  EXPECT_EQ(weight.node, "root.embed");
  EXPECT_EQ(weight.slot, "weight");
  EXPECT_EQ(weight.op_type, "Embedding");
}

constexpr const char* kHeader =
    "NodeName,NodeType,InputOutput,Index,DataType,Shape,Max,Min,Mean,L2Norm\r\n";

TEST(OpenTorchTree, MakesRecordsOfStatisticsWithoutFiles) {
  const TestFolder folder;
  // The row of the original's documented example: fp16 [[1,-2],[3,4]].
  folder.put("cpu_1/0/root.norm/statistics.csv",
             std::string(kHeader) +
                 "root.norm,LlamaRMSNorm,Input,0,torch.float16,\"(0,)\",nan,nan,nan,0.0\r\n"
                 "root.norm,LlamaRMSNorm,Output,0,torch.float16,\"(2, "
                 "2)\",4.0,-2.0,1.5,5.4772257804870605\r\n");
  const auto run = open_run(folder / "cpu_1");
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 2u);
  const TensorRecord& output = run->records[1];
  EXPECT_EQ(output.op_type, "LlamaRMSNorm");
  EXPECT_EQ(output.role, Role::Output);
  EXPECT_EQ(output.dtype, DType::Float16);
  EXPECT_EQ(output.shape, (Dims{2, 2}));
  EXPECT_FALSE(output.bytes);
  ASSERT_TRUE(output.stats);
  EXPECT_EQ(output.stats->count, 4);
  EXPECT_EQ(output.stats->max, 4.0);
  EXPECT_EQ(output.stats->min, -2.0);
  EXPECT_EQ(output.stats->mean, 1.5);
  EXPECT_EQ(output.stats->l2_norm, 5.4772257804870605);
  EXPECT_EQ(load_tensor(output).error().code, Errc::NotFound);
  EXPECT_EQ(run->records[0].shape, Dims{0});
}

TEST(OpenTorchTree, JoinsStatisticsWithTheirFiles) {
  const TestFolder folder;
  // output_0 and output_1_0 have the same Index; the rows stand in the order of the files.
  folder.put_pth("cpu_1/0/root.b/output_0.pth", {1});
  folder.put_pth("cpu_1/0/root.b/output_1_0.pth", {2});
  folder.put("cpu_1/0/root.b/statistics.csv",
             std::string(kHeader) +
                 "root.b,B,Output,0,torch.float32,\"(1,)\",1.0,1.0,1.0,1.0\r\n"
                 "root.b,B,Output,0,torch.float32,\"(1,)\",2.0,2.0,2.0,2.0\r\n");
  const auto run = open_run(folder / "cpu_1");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(listing(*run), ElementsAre("0/0/root.b output 0", "0/0/root.b output 1.0"));
  EXPECT_EQ(run->records[0].stats->max, 1.0);
  EXPECT_EQ(run->records[1].stats->max, 2.0);
  EXPECT_TRUE(run->records[0].bytes);
}

TEST(OpenTorchTree, TellsTheCallsOfOneStepApartByTheirRows) {
  const TestFolder folder;
  // Called twice: the file holds the last call, the csv both.
  folder.put_pth("cpu_1/0/root.b/output.pth", {2});
  folder.put("cpu_1/0/root.b/statistics.csv",
             std::string(kHeader) +
                 "root.b,B,Output,0,torch.float32,\"(1,)\",1.0,1.0,1.0,1.0\r\n"
                 "root.b,B,Output,0,torch.float32,\"(1,)\",2.0,2.0,2.0,2.0\r\n");
  const auto run = open_run(folder / "cpu_1");
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 2u);
  EXPECT_EQ(run->records[0].call, 0u);
  EXPECT_FALSE(run->records[0].bytes);
  EXPECT_EQ(run->records[0].stats->max, 1.0);
  EXPECT_EQ(run->records[1].call, 1u);
  EXPECT_TRUE(run->records[1].bytes);
  EXPECT_EQ(run->records[1].stats->max, 2.0);
}

TEST(OpenTorchTree, ReportsWhatItCannotUseAndGoesOn) {
  const TestFolder folder;
  put_small_dump(folder, "d/cpu_1");
  folder.put("d/cpu_1/0/root.embed/output.pth", "PK\x03\x04 cut");
  folder.put_fifo("d/cpu_1/0/root.embed/input_0.pth");
  folder.put_link("d/cpu_1/0/root.embed/input_1.pth", "input_1.pth");
  folder.put_link("d/cpu_1/0/root.embed/input_2.pth", "/etc/hostname");
  folder.put_link("d/cpu_1/0/root.embed/input_3.pth", "../root/input_0.pth");
  folder.put_link("d/cpu_1/0/root.outside", "/etc");
  folder.put("d/cpu_1/0/root.embed/statistics.csv", "a,b\r\n\"cut");
  folder.put("d/cpu_1/0/root.embed/renamed.pth", "x");
  folder.put("d/cpu_1/0/root.embed/output_1.pth.tmp77", "x");
  const auto run = open_run(folder / "d");
  ASSERT_TRUE(run) << run.error().describe();
  std::map<std::string, std::string> problems;
  for (const TensorRecord& record : run->records) {
    if (record.node == "root.embed")
      problems[std::string(role_name(record.role)) + record.slot] = record.problem;
  }
  EXPECT_EQ(problems.size(), 5u);
  EXPECT_THAT(problems["input0"], HasSubstr("is not a regular file"));
  EXPECT_THAT(problems["input1"], HasSubstr("leads nowhere"));
  EXPECT_THAT(problems["input2"], HasSubstr("leaves the run"));
  EXPECT_EQ(problems["input3"], "");
  EXPECT_EQ(problems["output"], "");  // found when it is opened
  for (const TensorRecord& record : run->records) {
    const bool usable = record.node != "root.embed" || record.slot == "3";
    EXPECT_EQ(load_tensor(record).has_value(), usable) << record.node << " " << record.slot;
  }
  EXPECT_FALSE(run->coverage.complete);
  EXPECT_THAT(run->warnings, testing::UnorderedElementsAre(
                                 HasSubstr("root.outside: is a link that leaves the run"),
                                 HasSubstr("rows do not have 10 columns"), HasSubstr("renamed.pth"),
                                 HasSubstr("still being written")));
}

TEST(OpenTorchTree, OpensWithADamagedTree) {
  const TestFolder folder;
  put_small_dump(folder, "cpu_1");
  folder.put("cpu_1/model_tree.json", R"({"name": "ro)");
  const auto run = open_run(folder / "cpu_1");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_FALSE(run->topology);
  EXPECT_EQ(run->records.size(), 7u);
  EXPECT_THAT(run->warnings, ElementsAre(HasSubstr("model_tree.json")));
}

}  // namespace
}  // namespace assay::run
