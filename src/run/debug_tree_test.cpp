// SPDX-License-Identifier: Apache-2.0
// Trees written by hand after docs/formats/transformers-debug.md; their form was taken from dumps
// of transformers 5.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/open.hpp"
#include "run/run.hpp"
#include "run/sources/debug_tree_list.hpp"
#include "run/test_folder.hpp"

namespace assay::run {
namespace {

using sources::printed_numbers;
using test::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;

std::string tensor(const std::string& value) {
  return R"j({"shape": "torch.Size([2, 2])", "dtype": "torch.float32", "value": )j" + value +
         R"j(, "mean": "tensor(2.5000e+00)", "std": "tensor(1.2910e+00)", "min": "tensor(1.0000e+00)",)j"
         R"j( "max": "tensor(4.0000e+00, device='cuda:0')"})j";
}
std::string call(const std::string& path, const std::string& more) {
  return R"({"module_path": "Net)" + path + R"(", "inputs": {"args": []}, )" + more + "}";
}
std::string leaf(const std::string& path, const std::string& value) {
  return call(path, R"("outputs": )" + tensor(value));
}
std::string parent(const std::string& path, const std::string& children) {
  return call(path, R"("children": [)" + children + "]");
}

/// "node#call role slot" of every record, in the order of the run.
std::vector<std::string> listing(const run::Run& run) {
  std::vector<std::string> lines;
  for (const TensorRecord& record : run.records) {
    lines.push_back(record.node + "#" + std::to_string(record.call) + " " +
                    std::string(role_name(record.role)) + " " + record.slot +
                    (record.value.empty() ? "" : "=" + record.value));
  }
  return lines;
}

const std::string kPrinted =
    R"j(["tensor([[1.0000e+00, 2.0000e+00],", "        [3.0000e+00, ...]])"])j";

TEST(DebugTree, ReadsCallsInTheirOrderWithWhatGoesInFirst) {
  const TestFolder folder;
  const std::string inner = R"({"module_path": "Net.a.b", "inputs": {"args": [)" +
                            tensor(kPrinted) + R"(, "None", "3"], "kwargs": {"mask": [)" +
                            tensor(kPrinted) + R"(]}}, "outputs": [)" + tensor(kPrinted) +
                            R"(, {"aux": )" + tensor(kPrinted) + "}]}";
  folder.put("Net_debug_tree_FULL_TENSORS.json",
             parent("", parent(".a", inner + ", " + inner) + ", " + leaf(".z", kPrinted)));
  folder.put("Net_debug_tree_SUMMARY.json", "{}");
  for (const char* start : {"", "/Net_debug_tree_FULL_TENSORS.json"}) {
    const Result<run::Run> run = open_run(folder.path() + start);
    ASSERT_TRUE(run) << run.error().describe();
    EXPECT_EQ(run->layout, Layout::TransformersDebug);
    EXPECT_TRUE(run->order_known);
    EXPECT_THAT(listing(*run),
                ElementsAre("a.b#0 input 0", "a.b#0 input 2=3", "a.b#0 input kwargs.mask.0",
                            "a.b#0 output 0", "a.b#0 output 1.aux", "a.b#1 input 0",
                            "a.b#1 input 2=3", "a.b#1 input kwargs.mask.0", "a.b#1 output 0",
                            "a.b#1 output 1.aux", "z#0 output "));
    ASSERT_TRUE(run->topology);
    EXPECT_EQ(run->topology->children.size(), 2u);  // a and z; b is below a
    EXPECT_EQ(run->properties.at("model"), "Net");
    EXPECT_THAT(run->warnings, ElementsAre(HasSubstr("use_repr=False"), HasSubstr("whole model")));
  }
}

TEST(DebugTree, TakesStatisticsFromWhatIsPrinted) {
  const TestFolder folder;
  const std::string ids =
      R"j({"shape": "torch.Size([1, 3])", "dtype": "torch.int64", "value": ["tensor([[5, 7, -9]])"]})j";
  const std::string cut =
      R"j({"shape": "torch.Size([2000])", "dtype": "torch.int64", "value": ["tensor([1, 2, ..., 8, 9])"]})j";
  folder.put("Net_debug_tree_SUMMARY.json", R"({"module_path": "Net", "outputs": [)" +
                                                tensor("\"\"") + "," + ids + "," + cut + "]}");
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 3u);
  const auto& stats = run->records[0].stats;
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->mean, 2.5);
  EXPECT_EQ(stats->max, 4);
  EXPECT_NEAR(stats->l2_norm, std::sqrt(30.0), 1e-3);  // of 1 2 3 4, from five digits
  ASSERT_TRUE(run->records[1].stats);
  EXPECT_EQ(run->records[1].stats->min, -9);
  EXPECT_EQ(run->records[1].stats->mean, 1);
  EXPECT_FALSE(run->records[2].stats);  // most numbers were not printed
  EXPECT_EQ(*run->records[2].shape, (Dims{2000}));
}

TEST(DebugTree, NamesFilesOfItsFolderOnlyAndOnce) {
  const TestFolder folder;
  folder.put("Net_debug_tree_FULL_TENSORS.json",
             parent("", leaf(".act", R"("./Net.act_outputs.safetensors")") + "," +
                            leaf(".act", R"("./Net.act_outputs.safetensors")") + "," +
                            leaf(".up", R"("../../secret.safetensors")")));
  folder.put("Net_outputs_logits.safetensors", "");
  folder.put("Net_outputsother.safetensors", "");
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(listing(*run),
              ElementsAre("act#0 output ", "act#1 output ", "up#0 output ", "#0 output logits"));
  EXPECT_FALSE(run->records[0].bytes);
  EXPECT_THAT(run->records[0].problem, HasSubstr("written again by a later call"));
  EXPECT_EQ(run->records[1].bytes->file, folder / "Net.act_outputs.safetensors");
  EXPECT_EQ(run->records[1].bytes->member, "data");
  EXPECT_FALSE(run->records[2].bytes);
  EXPECT_THAT(run->records[2].problem, HasSubstr("no tensor file of its folder"));
}

TEST(DebugTree, SaysWhichLayersWereLeftOut) {
  const TestFolder folder;
  const auto block = [](int i) {
    const std::string path = ".layers." + std::to_string(i);
    return parent(path, leaf(path + ".fc", kPrinted));
  };
  folder.put("Net_debug_tree_FULL_TENSORS.json", parent("", block(0) + "," + block(5)));
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->coverage.missed.size(), 1u);
  EXPECT_EQ(run->coverage.missed[0].node, "layers.1 to 4");
  EXPECT_EQ(run->coverage.missed[0].count, 4u);
}

TEST(DebugTree, RefusesWhatIsNoTreeAndTwoModels) {
  const TestFolder folder;
  folder.put("Net_debug_tree_SUMMARY.json", R"({"module_path": )");
  EXPECT_EQ(open_run(folder.path()).error().code, Errc::Truncated);
  folder.put("Net_debug_tree_SUMMARY.json", "[]");
  EXPECT_EQ(open_run(folder.path()).error().code, Errc::Invalid);
  folder.put("Other_debug_tree_SUMMARY.json", parent("", ""));
  const Result<run::Run> both = open_run(folder.path());
  ASSERT_FALSE(both);
  EXPECT_THAT(both.error().message, HasSubstr("Other_debug_tree_SUMMARY.json"));
  EXPECT_TRUE(open_run(folder / "Other_debug_tree_SUMMARY.json"));
}

TEST(DebugTree, ReadsPrintedNumbers) {
  EXPECT_THAT(*printed_numbers("tensor(7, device='cuda:0')\n"), ElementsAre(7));
  EXPECT_THAT(*printed_numbers("tensor([[True, False],\n        [True, True]])"),
              ElementsAre(1, 0, 1, 1));
  EXPECT_THAT(*printed_numbers("tensor([1., -2.5000e-01, inf], dtype=torch.float16)"),
              ElementsAre(1, -0.25, HUGE_VAL));
  EXPECT_THAT(*printed_numbers("tensor([], size=(0, 4))"), ElementsAre());
  for (const char* text :
       {"", "tensor(", "tensor([1, 2", "tensor([1, ..., 9])", "DTensor(1)", "tensor([a])"})
    EXPECT_FALSE(printed_numbers(text)) << text;
}

}  // namespace
}  // namespace assay::run
