// SPDX-License-Identifier: Apache-2.0
// Dumps of graph mode: the folders of GE and FX in all their versions, and CANN dump files as such.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "run/container.hpp"
#include "run/load.hpp"
#include "run/test_dump.hpp"
#include "run/test_folder.hpp"

namespace assay::run {
namespace {

using test::dump_file;
using test::floats_of;
using test::Lines;
using test::open;
using test::summary;
using test::TestFolder;

// ---- one file -----------------------------------------------------------------------------------

TEST(CannDumpFile, IsAFileOfInputsAndOutputs) {
  TestFolder folder;
  folder.put("Add.Add_1.12.3.1735786845123456", dump_file("Add_1", {{1, 2}, {3, 4}}, {{4, 6}}));
  const auto run = open(folder / "Add.Add_1.12.3.1735786845123456");
  EXPECT_EQ(run.layout, Layout::File);
  ASSERT_EQ(run.records.size(), 3u);
  EXPECT_EQ(run.records[1].slot, "inputs.1");
  EXPECT_EQ(run.records[2].slot, "outputs.0");
  EXPECT_EQ(run.records[2].shape, Dims{2});
  EXPECT_EQ(floats_of(load_tensor(run.records[2]).value()), (std::vector<float>{4, 6}));
}

TEST(CannDumpFile, RefusesMembersItDoesNotHave) {
  TestFolder folder;
  const std::string name = "Add.Add_1.12.3.1735786845123456";
  folder.put(name, dump_file("Add_1", {{1}}, {{2}}));
  const auto container = open_container(folder / name).value();
  for (const std::string member : {"", "inputs", "inputs.", "inputs.1", "inputs.-1", "nothing.0",
                                   "buffers.0", "inputs.99999999999999999999"})
    EXPECT_EQ(container->tensor(member).error().code, Errc::NotFound) << member;
}

// ---- GE -----------------------------------------------------------------------------------------

const std::string kText = "dynamo_original_graph_1_rank_0_pid_7_ts_20250102030405000000.txt";

TEST(ReadGeTree, ReadsTheCurrentLayout) {
  TestFolder folder;
  folder.put(kText, "");
  const std::string token = "worldsize1_global_rank0/20250102030405/0/graph_1/1/0/";
  folder.put(token + "Mul.Mul.13.3.1735786845000020", dump_file("Mul", {{1}}, {{2}}));
  folder.put(token + "Add.Add_1.12.3.1735786845000010", dump_file("Add_1", {{3}, {4}}, {{7}}));
  folder.put(
      "worldsize1_global_rank0/20250102030405/0/graph_1/1/10/Add.Add_1.12.3.1735786846000010",
      dump_file("Add_1", {{5}}, {}));

  const auto run = open(folder.path());
  EXPECT_EQ(run.layout, Layout::GeTree);
  // By time, not by name.
  EXPECT_EQ(summary(run),
            (Lines{"0/0/0 Add_1 input 0", "0/0/0 Add_1 input 1", "0/0/0 Add_1 output 0",
                   "0/0/0 Mul input 0", "0/0/0 Mul output 0", "0/0/10 Add_1 input 0"}));
  EXPECT_EQ(run.records[0].op_type, "Add");
  EXPECT_EQ(floats_of(load_tensor(run.records[2]).value()), std::vector<float>{7});
  ASSERT_EQ(run.graph_files.size(), 1u);
  EXPECT_EQ(run.graph_files[0].rank, 0);
  EXPECT_EQ(run.graph_files[0].graph, 0u);
  EXPECT_TRUE(run.warnings.empty());
}

TEST(ReadGeTree, GivesEachRankItsTexts) {
  TestFolder folder;
  for (const std::string rank : {"0", "10"}) {
    folder.put("dynamo_original_graph_1_rank_" + rank + "_pid_7_ts_2.txt", "");
    folder.put("worldsize16_global_rank" + rank +
                   "/20250102030405/0/graph_1/1/0/Add.A.1.1.1735786845000010",
               dump_file("A", {}, {{1}}));
  }
  const auto run = open(folder.path());
  EXPECT_EQ(summary(run), (Lines{"0/0/0 A output 0", "10/0/0 A output 0"}));
  ASSERT_EQ(run.graph_files.size(), 2u);
  EXPECT_EQ(run.graph_files[0].rank, 0);
  EXPECT_EQ(run.graph_files[1].rank, 10);
  EXPECT_TRUE(run.graph_files[1].path.find("rank_10_") != std::string::npos);
}

TEST(ReadGeTree, TellsGraphsApartByTheirModelIds) {
  // 7.1.0: no worldsize level; the ids are no numbers of graphs, so they are counted.
  TestFolder folder;
  for (const std::string number : {"1", "2"})
    folder.put("dynamo_original_graph_" + number + "_rank_0_pid_7_ts_1.txt", "");
  for (const std::string id : {"3", "21"})
    folder.put("20250102030405/0/model/" + id + "/0/Add.A" + id + ".1.1.1735786845000010",
               dump_file("A" + id, {}, {{1}}));
  const auto run = open(folder.path());
  EXPECT_EQ(summary(run), (Lines{"0/0/0 A3 output 0", "0/1/0 A21 output 0"}));
  ASSERT_EQ(run.graph_files.size(), 2u);
  EXPECT_EQ(run.graph_files[0].rank, -1);
  EXPECT_EQ(run.graph_files[1].graph, 1u);
  EXPECT_NE(run.graph_files[1].path.find("graph_2_"), std::string::npos);
}

TEST(ReadGeTree, FindsTheTextOfAGraphByItsNumber) {
  TestFolder folder;
  for (const std::string number : {"1", "2", "10"})
    folder.put("dynamo_original_graph_" + number + "_rank_0_pid_7_ts_1.txt", "");
  for (const std::string number : {"2", "10"})
    folder.put("worldsize1_global_rank0/20250102030405/0/graph_" + number + "/" + number +
                   "/0/Add.A.1.1.1735786845000010",
               dump_file("A", {}, {{1}}));
  const auto run = open(folder.path());
  EXPECT_EQ(summary(run), (Lines{"0/1/0 A output 0", "0/9/0 A output 0"}));
  ASSERT_EQ(run.graph_files.size(), 2u);
  EXPECT_EQ(run.graph_files[0].graph, 1u);
  EXPECT_EQ(run.graph_files[1].graph, 9u);
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_NE(run.warnings[0].find("graph_1_"), std::string::npos);
}

TEST(ReadGeTree, CountsDevicesAsGraphsWhereThereAreNoRanks) {
  TestFolder folder;
  folder.put(kText, "");
  for (const std::string device : {"0", "1"})
    folder.put("20250102030405/" + device + "/model/1/0/Add.A.1.1.1735786845000010",
               dump_file("A", {}, {{1}}));
  EXPECT_EQ(summary(open(folder.path())), (Lines{"0/0/0 A output 0", "0/1/0 A output 0"}));
}

TEST(ReadGeTree, ReadsTheFirstVersions) {
  TestFolder folder;
  folder.put("dump_20240302_101112/20240302101112/0/graph/1/2/Add.A.1.1.1709374272000010",
             dump_file("A", {}, {{1}}));
  folder.put(kText, "");
  const auto run = open(folder.path());
  EXPECT_EQ(summary(run), Lines{"0/0/2 A output 0"});
}

TEST(ReadGeTree, ReadsATokenFolderByItself) {
  TestFolder folder;
  const std::string token = "worldsize4_global_rank3/20250102030405/0/graph_1/1/6";
  folder.put(token + "/Add.A.1.1.1735786845000010", dump_file("A", {}, {{1}}));
  EXPECT_EQ(summary(open(folder / token)), Lines{"3/0/6 A output 0"});
}

TEST(ReadGeTree, ReadsNamesOfEveryLength) {
  TestFolder folder;
  const std::string at = "20250102030405/0/m/1/0/";
  folder.put(at + "Add.A.1.1735786845000001", dump_file("A", {}, {{1}}));  // no stream
  folder.put(at + "Add.B.1.1.1735786845000002", dump_file("B", {}, {{1}}));
  folder.put(at + "Add.C.9.1.1.1735786845000003", dump_file("C", {}, {{1}}));        // dump number
  folder.put(at + "Add.D.1.1.1735786845000004.0.1.2.3", dump_file("D", {}, {{1}}));  // fused task
  folder.put(at + "Add.block_0_add.1.1.1735786845000005", dump_file("block/0.add", {}, {{1}}));
  folder.put(at + "12345678901234567890", dump_file("long", {}, {{1}}));
  folder.put(at + "mapping.csv", "12345678901234567890,Add.long.1.1.1735786845000006\n");
  folder.put(at + "Add.A.1.1735786845000001.csv", "Input/Output,Index\n");
  EXPECT_EQ(summary(open(folder.path())),
            (Lines{"0/0/0 A output 0", "0/0/0 B output 0", "0/0/0 C output 0", "0/0/0 D output 0",
                   "0/0/0 block/0.add output 0", "0/0/0 long output 0"}));
}

TEST(ReadGeTree, KeepsTheLargerOfTwoFilesOfOneOperator) {
  TestFolder folder;
  const std::string at = "20250102030405/0/m/1/0/";
  folder.put(at + "Add.A.1.1.1735786845000001", dump_file("A", {}, {{1}}));
  folder.put(at + "Add.A.1.1.1735786845000002", dump_file("A", {}, {{1, 2}}));
  const auto run = open(folder.path());
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(run.records[0].shape, Dims{2});
  ASSERT_EQ(run.warnings.size(), 1u);
  EXPECT_EQ(run.warnings[0],
            "duplicated op name: A. [Add.A.1.1.1735786845000002, Add.A.1.1.1735786845000001]. Will "
            "keep the larger one Add.A.1.1.1735786845000002.");
}

TEST(ReadGeTree, GoesOnPastFilesThatCannotBeRead) {
  TestFolder folder;
  const std::string at = "20250102030405/0/m/1/0/";
  folder.put(at + "Add.A.1.1.1735786845000001", "damaged, and no dump at all");
  folder.put(at + "Add.B.1.1.1735786845000002", dump_file("B", {}, {{1}}));
  folder.put(at + "stray", "x");
  folder.put_link(at + "Add.C.1.1.1735786845000003", "/nowhere");
  const auto run = open(folder.path());
  ASSERT_EQ(run.records.size(), 2u);
  EXPECT_FALSE(run.records[0].problem.empty());
  EXPECT_EQ(run.records[0].node, "A");
  EXPECT_TRUE(run.records[1].problem.empty());
  ASSERT_EQ(run.warnings.size(), 2u);
  EXPECT_NE(run.warnings[1].find("should contain at least 4 '.'"), std::string::npos);
}

// ---- FX -----------------------------------------------------------------------------------------

const std::string kTime = "20240125031118787351";

TEST(ReadFxTree, ReadsTheCurrentLayout) {
  TestFolder folder;
  const std::string at = "msit_fx_dump/worldsize2_global_rank1/graph_1/0/";
  folder.put_npy(at + "mm-aten.mm.default.INPUT.0." + kTime + ".npy", {1});
  folder.put_npy(at + "mm-aten.mm.default.INPUT.10." + kTime + ".npy", {2});
  folder.put_npy(at + "mm-aten.mm.default.INPUT.2.1." + kTime + ".npy", {3});
  folder.put_npy(at + "mm-aten.mm.default.OUTPUT.0." + kTime + ".npy", {4});
  folder.put_npy(at + "arange-aten.arange.default.OUTPUT.0.20240125031118000000.npy", {5});
  const auto run = open(folder.path());
  EXPECT_EQ(run.layout, Layout::FxTree);
  EXPECT_EQ(summary(run),
            (Lines{"1/0/0 arange-aten.arange.default output 0", "1/0/0 mm-aten.mm.default input 0",
                   "1/0/0 mm-aten.mm.default input 2.1", "1/0/0 mm-aten.mm.default input 10",
                   "1/0/0 mm-aten.mm.default output 0"}));
  EXPECT_EQ(run.records[1].op_type, "aten.mm.default");
  EXPECT_EQ(floats_of(load_tensor(run.records[4]).value()), std::vector<float>{4});
}

TEST(ReadFxTree, CountsTokensOfOldDumpsFromZero) {
  TestFolder folder;
  const std::string file = "mm-aten.mm.default.OUTPUT.0." + kTime + ".npy";
  for (const std::string token : {"1", "2", "10"}) {
    folder.put_npy("data_dump/" + token + "/gm_20240101000000_dump/" + file, {1});
    folder.put_npy("data_dump/" + token + "/gm_20240101000001_dump/" + file, {2});
  }
  EXPECT_EQ(summary(open(folder.path())),
            (Lines{"0/0/0 mm-aten.mm.default output 0", "0/1/0 mm-aten.mm.default output 0",
                   "0/0/1 mm-aten.mm.default output 0", "0/1/1 mm-aten.mm.default output 0",
                   "0/0/9 mm-aten.mm.default output 0", "0/1/9 mm-aten.mm.default output 0"}));
}

TEST(ReadFxTree, TakesOldDumpsThatStartAtZeroByTheirNumbers) {
  TestFolder folder;
  for (const std::string token : {"0", "1"})
    folder.put_npy(token + "/gm_20240101000000_dump/mm-aten.mm.default.OUTPUT.0." + kTime + ".npy",
                   {1});
  EXPECT_EQ(summary(open(folder.path())),
            (Lines{"0/0/0 mm-aten.mm.default output 0", "0/0/1 mm-aten.mm.default output 0"}));
}

TEST(ReadFxTree, ReadsTheFirstVersions) {
  TestFolder folder;
  folder.put_npy("gm_20240101000000_dump/3/mm-aten.mm.default.OUTPUT.0." + kTime + ".npy", {1});
  EXPECT_EQ(summary(open(folder.path())), Lines{"0/0/3 mm-aten.mm.default output 0"});
}

TEST(ReadFxTree, LeavesOtherArraysToOtherLayouts) {
  TestFolder folder;
  folder.put_npy("a.npy", {1});
  EXPECT_EQ(open(folder.path()).layout, Layout::Flat);
}

}  // namespace
}  // namespace assay::run
