// SPDX-License-Identifier: Apache-2.0
// Lists written by hand after docs/formats/msprobe.md; their form was taken from runs of
// mindstudio-probe 26.2.0.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/load.hpp"
#include "run/open.hpp"
#include "run/run.hpp"
#include "run/test_folder.hpp"

namespace assay::run {
namespace {

using test::floats_of;
using test::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// "rank/step/node#call role slot" of every record, in the order of the run.
std::vector<std::string> listing(const Run& run) {
  std::vector<std::string> lines;
  for (const TensorRecord& record : run.records) {
    std::string line = std::to_string(record.rank) + "/" + record.step_name + "/" + record.node +
                       "#" + std::to_string(record.call) + " " +
                       std::string(role_name(record.role)) + " " + record.slot;
    if (!record.value.empty()) line += "=" + record.value;
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string tensor(const std::string& more = "") {
  return R"({"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2, 2], "Max": 4.0, "Min": -1.5,)"
         R"( "Mean": 1.25, "Norm": 5.0, "requires_grad": false)" +
         more + "}";
}
std::string list_of(const std::string& data) {
  return R"({"task": "tensor", "level": "mix", "framework": "pytorch", "dump_data_dir": null, "data": {)" +
         data + "}}";
}
std::string small_list() {
  return list_of(R"("Functional.linear.0.forward": {"input_args": [)" + tensor() +
                 R"(, {"type": "int", "value": 3}, null], "input_kwargs": {"bias": )" + tensor() +
                 R"(}, "output": [)" + tensor() +
                 R"(]}, "Module.layers.0.fc.Linear.forward.0": {"input_args": [)" +
                 tensor(R"(, "data_name": "Module.layers.0.fc.Linear.forward.0.input.0.pt")") +
                 R"(], "input_kwargs": {}, "output": [[)" + tensor() + R"(], {"aux": )" + tensor() +
                 R"(}], "parameters": {"weight": )" + tensor() +
                 R"(}}, "Functional.linear.1.forward": {"output": [)" + tensor() +
                 R"(]}, "Module.layers.0.fc.Linear.backward.1": {"input": [)" + tensor() +
                 R"(], "output": [null]})");
}
const std::vector<std::string> kSmallListing = {
    "0/0/Functional.linear.forward#0 input 0",
    "0/0/Functional.linear.forward#0 input 1=3",
    "0/0/Functional.linear.forward#0 input kwargs.bias",
    "0/0/Functional.linear.forward#0 output 0",
    "0/0/layers.0.fc#0 input 0",
    "0/0/layers.0.fc#0 weight weight",
    "0/0/layers.0.fc#0 output 0.0",
    "0/0/layers.0.fc#0 output 1.aux",
    "0/0/Functional.linear.forward#1 output 0",
    "0/0/layers.0.fc.backward#1 input 0",
};

TEST(Msprobe, ReadsCallsInTheOrderTheyReturned) {
  const TestFolder folder;
  folder.put("dump.json", small_list());
  folder.put_pth("dump_tensor_data/Module.layers.0.fc.Linear.forward.0.input.0.pt", {1, 2, 3, 4});
  for (const char* start : {"", "/", "/dump.json"}) {
    const Result<run::Run> run = open_run(folder.path() + start);
    ASSERT_TRUE(run) << run.error().describe();
    EXPECT_EQ(run->layout, Layout::Msprobe);
    EXPECT_EQ(listing(*run), kSmallListing);
    EXPECT_EQ(run->properties.at("task"), "tensor");
    EXPECT_EQ(run->records[0].op_type, "linear");
    EXPECT_EQ(run->records[4].op_type, "Linear");
    EXPECT_EQ(run->coverage.captured, 3u);
    EXPECT_THAT(floats_of(*load_tensor(run->records[4])), ElementsAre(1, 2, 3, 4));
    EXPECT_FALSE(run->records[0].bytes);
  }
}

TEST(Msprobe, TakesStatisticsAsTheyWereWritten) {
  const TestFolder folder;
  folder.put(
      "dump.json",
      list_of(
          R"("Tensor.a.0.forward": {"output": [)" + tensor() +
          R"(, {"type": "torch.Tensor", "dtype": "torch.int64", "shape": [3], "Max": 7, "Min": 1,)"
          R"( "Mean": null, "Norm": null}, {"type": "torch.Tensor", "dtype": "torch.float16",)"
          R"( "shape": [], "Max": NaN, "Min": -Infinity, "Mean": Infinity, "Norm": "inf", "md5": "00c0ffee"},)"
          R"( {"type": "torch.Tensor", "dtype": "torch.float8_e4m3fn", "shape": [0], "Max": null,)"
          R"( "Min": null, "Mean": null, "Norm": null, "md5": "00c0ffee"},)"
          R"( {"type": "mindspore.Tensor", "dtype": "BFloat16", "shape": [1], "md5": "0x00000000000000ff"}]})"));
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 5u);
  const auto& stats = [&](size_t i) { return *run->records[i].stats; };
  EXPECT_EQ(stats(0).max, 4.0);
  EXPECT_EQ(stats(0).min, -1.5);
  EXPECT_EQ(stats(0).mean, 1.25);
  EXPECT_EQ(stats(0).l2_norm, 5.0);
  EXPECT_EQ(stats(0).count, 4);
  EXPECT_EQ(stats(1).max, 7.0);
  EXPECT_TRUE(std::isnan(stats(1).mean));
  EXPECT_TRUE(std::isnan(stats(1).l2_norm));
  EXPECT_TRUE(std::isnan(stats(2).max));
  EXPECT_EQ(stats(2).min, -HUGE_VAL);
  EXPECT_EQ(stats(2).mean, HUGE_VAL);
  EXPECT_EQ(stats(2).l2_norm, HUGE_VAL);
  EXPECT_EQ(stats(2).count, 1);
  EXPECT_FALSE(run->records[2].digest);
  EXPECT_FALSE(run->records[3].stats);
  EXPECT_EQ(run->records[3].dtype, DType::Float8E4M3FN);
  ASSERT_TRUE(run->records[3].digest);
  EXPECT_EQ(run->records[3].digest->low, 0x00c0ffeeu);
  EXPECT_FALSE(run->records[4].digest);  // xor: another order of the words has the same sum
  EXPECT_EQ(run->records[4].dtype, DType::BFloat16);
}

TEST(Msprobe, ReadsStepsAndRanksByNumber) {
  const TestFolder folder;
  const std::string list = list_of(R"("Tensor.a.0.forward": {"output": [)" + tensor() + "]}");
  for (const char* place : {"step10/rank0", "step2/rank10", "step2/rank9", "step2/proc77"})
    folder.put(std::string(place) + "/dump.json", list);
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(
      listing(*run),
      ElementsAre("0/step10/Tensor.a.forward#0 output 0", "9/step2/Tensor.a.forward#0 output 0",
                  "10/step2/Tensor.a.forward#0 output 0", "11/step2/Tensor.a.forward#0 output 0"));
  EXPECT_EQ(run->records[0].step, 10);

  const Result<run::Run> step = open_run(folder.path() + "/step2");
  ASSERT_TRUE(step) << step.error().describe();
  EXPECT_EQ(step->records.size(), 3u);
  EXPECT_EQ(step->records[0].step, 2);
  const Result<run::Run> rank = open_run(folder.path() + "/step2/rank9");
  ASSERT_TRUE(rank) << rank.error().describe();
  EXPECT_THAT(listing(*rank), ElementsAre("9/step2/Tensor.a.forward#0 output 0"));
}

TEST(Msprobe, BuildsTheModuleTreeFromTheConstruction) {
  const TestFolder folder;
  folder.put("dump.json", small_list());
  folder.put("construct.json",
             R"({"Module.layers.0.Block.forward.0": null, "Module.layers.0.fc.Linear.forward.0":)"
             R"( "Module.layers.0.Block.forward.0", "Functional.linear.0.forward":)"
             R"( "Module.layers.0.fc.Linear.forward.0", "Module.layers.0.fc.Linear.forward.1":)"
             R"( "Module.layers.0.Block.forward.0", "Module.head.Linear.forward.0": null})");
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_TRUE(run->topology);
  const TopologyNode& root = *run->topology;
  ASSERT_EQ(root.children.size(), 2u);
  EXPECT_EQ(root.children[0].name, "layers.0");
  EXPECT_EQ(root.children[0].type, "Block");
  ASSERT_EQ(root.children[0].children.size(), 1u);
  EXPECT_EQ(root.children[0].children[0].name, "layers.0.fc");
  EXPECT_EQ(root.children[1].name, "head");
}

TEST(Msprobe, KeepsTheRanksThatCanBeRead) {
  const TestFolder folder;
  const std::string list = small_list();
  folder.put("step0/rank0/dump.json", list.substr(0, list.size() / 2));
  folder.put("step0/rank1/dump.json", list);
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_EQ(run->records.size(), kSmallListing.size());
  EXPECT_FALSE(run->coverage.complete);
  ASSERT_EQ(run->warnings.size(), 1u);
  EXPECT_THAT(run->warnings[0], HasSubstr("rank0/dump.json"));

  const Result<run::Run> half = open_run(folder.path() + "/step0/rank0");
  ASSERT_FALSE(half);
  EXPECT_EQ(half.error().code, Errc::Truncated);
  folder.put("other/dump.json", R"({"model": 1})");
  const Result<run::Run> other = open_run(folder.path() + "/other");
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Errc::Invalid);
}

TEST(Msprobe, StaysInsideItsFolder) {
  const TestFolder folder;
  folder.put("dump.json", list_of(R"("Tensor.a.0.forward": {"output": [)" +
                                  tensor(R"(, "data_name": "../../secret.pt")") + ", " +
                                  tensor(R"(, "data_name": "gone.pt")") + ", " +
                                  tensor(R"(, "data_name": "-1")") + "]}"));
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 3u);
  EXPECT_FALSE(run->records[0].bytes);
  EXPECT_THAT(run->records[0].problem, HasSubstr("../../secret.pt"));
  ASSERT_TRUE(run->records[1].bytes);
  EXPECT_EQ(load_tensor(run->records[1]).error().code, Errc::NotFound);
  EXPECT_FALSE(run->records[2].bytes);
  EXPECT_THAT(run->records[2].problem, IsEmpty());
}

TEST(Msprobe, ReadsSinglePointSaves) {
  const TestFolder folder;
  folder.put("debug.json", R"({"task": "tensor", "level": "debug", "data": {"hidden.0.debug": )" +
                               tensor() + R"(, "states.1.debug": [)" + tensor() + R"(, {"k": )" +
                               tensor() + R"(}]}})");
  const Result<run::Run> run = open_run(folder.path());
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(listing(*run),
              ElementsAre("0/0/hidden.0.debug#0 output ", "0/0/states.1.debug#0 output 0",
                          "0/0/states.1.debug#0 output 1.k"));
}

}  // namespace
}  // namespace assay::run
