// SPDX-License-Identifier: Apache-2.0
// Metadata written by hand after docs/formats/torch-tree.md, "Manual pairs".
#include "run/manual_mapping.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/folder.hpp"
#include "run/load.hpp"
#include "run/test_folder.hpp"

namespace assay::run {
namespace {

using test::floats_of;
using test::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A path that ends like no file in any folder around the test's own, which are searched, too.
std::string absent(const TestFolder& folder, const std::string& name) {
  return base_name(folder.path()) + "_" + name;
}

/// "data_id/token_id golden-file mine-file" of every pair, paths from the folder on.
std::vector<std::string> listing(const ManualMapping& mapping, const std::string& root) {
  std::vector<std::string> lines;
  const std::string front = base_name(root) + "_";
  const auto path = [&](const TensorRecord& record) {
    const std::string& file = record.bytes->file;
    if (file.starts_with(front)) return file.substr(front.size());
    return file.starts_with(root) ? file.substr(root.size() + 1) : file;
  };
  for (const ManualMapping::Pair& pair : mapping.pairs) {
    const TensorRecord& golden = mapping.golden.records[pair.golden];
    const TensorRecord& mine = mapping.mine.records[pair.mine];
    EXPECT_EQ(golden.step, mine.step);
    lines.push_back(std::to_string(pair.data_id) + "/" + std::to_string(golden.step) + " " +
                    path(golden) + " " + path(mine));
  }
  return lines;
}

TEST(ManualMapping, PairsEveryTokenOfEveryIdInFileOrder) {
  const TestFolder folder;
  folder.put_pth("run/golden_tensor/0/2_tensor.pth", {1});
  folder.put_pth("run/golden_tensor/0/1_tensor.pth", {2});
  folder.put_npy("run/golden_tensor/7/1_tensor.npy", {3});
  folder.put_npy("mine/a.npy", {4, 5});
  const std::string golden = folder.path() + "/run/golden_tensor/";
  const std::string mine = folder.path() + "/mine/a.npy";
  folder.put("run/golden_tensor/metadata.json",
             R"({"2": {"0": [")" + golden + R"(0/2_tensor.pth", ")" + mine +
                 R"("]}, "1": {"0": [")" + golden + R"(0/1_tensor.pth", ")" + mine +
                 R"("], "7": [")" + golden + R"(7/1_tensor.npy", ")" + mine + R"("]}})");

  for (const char* start : {"/run", "/run/", "/run/golden_tensor"}) {
    ASSERT_TRUE(is_manual_mapping(folder.path() + start)) << start;
    const Result<ManualMapping> mapping = read_manual_mapping(folder.path() + start);
    ASSERT_TRUE(mapping) << mapping.error().describe();
    EXPECT_THAT(listing(*mapping, folder.path()),
                ElementsAre("2/0 run/golden_tensor/0/2_tensor.pth mine/a.npy",
                            "1/0 run/golden_tensor/0/1_tensor.pth mine/a.npy",
                            "1/7 run/golden_tensor/7/1_tensor.npy mine/a.npy"));
    EXPECT_EQ(mapping->golden.layout, Layout::Manual);
    EXPECT_THAT(mapping->golden.warnings, IsEmpty());
    EXPECT_THAT(floats_of(*load_tensor(mapping->golden.records[2])), ElementsAre(3));
    EXPECT_THAT(floats_of(*load_tensor(mapping->mine.records[2])), ElementsAre(4, 5));
  }
  EXPECT_FALSE(is_manual_mapping(folder.path()));
  EXPECT_FALSE(is_manual_mapping(folder.path() + "/mine"));
}

TEST(ManualMapping, MergesAnIdThatStandsTwice) {
  // The original kept the id it had read back as text beside the same id as a number, and json.dump
  // wrote both.
  const TestFolder folder;
  const auto pair = [&](const std::string& golden, const std::string& mine) {
    return "[\"" + absent(folder, golden) + "\", \"" + absent(folder, mine) + "\"]";
  };
  folder.put("golden_tensor/metadata.json",
             R"({"1": {"0": )" + pair("a", "b") + R"(, "1": )" + pair("c", "d") +
                 R"(}, "1": {"1": )" + pair("e", "f") + R"(, "2": )" + pair("g", "h") + "}}");
  const Result<ManualMapping> mapping = read_manual_mapping(folder.path());
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_THAT(listing(*mapping, folder.path()), ElementsAre("1/0 a b", "1/1 e f", "1/2 g h"));
}

TEST(ManualMapping, SaysWhichEntriesAreNoPairs) {
  const TestFolder folder;
  folder.put("golden_tensor/metadata.json",
             R"({"1": {"0": ["only one"]}, "2": {"5": "text"}, "3": [], "4": {"0": [1, 2]},)"
             R"( "5": {"0": [")" +
                 absent(folder, "a") + R"(", ")" + absent(folder, "b") +
                 R"(", "a third counts for nothing"]}})");
  const Result<ManualMapping> mapping = read_manual_mapping(folder.path());
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_THAT(listing(*mapping, folder.path()), ElementsAre("5/0 a b"));
  EXPECT_THAT(mapping->golden.warnings,
              ElementsAre("Invalid data in golden metadata.json, data_id: 1, token_id: 0",
                          "Invalid data in golden metadata.json, data_id: 2, token_id: 5",
                          "Invalid data in golden metadata.json, data_id: 3, token_id: None",
                          "Invalid data in golden metadata.json, data_id: 4, token_id: 0"));
}

TEST(ManualMapping, KeepsThePathOfAMissingFile) {
  const TestFolder folder;
  folder.put_pth("golden_tensor/0/1_tensor.pth", {1});
  folder.put("golden_tensor/metadata.json",
             R"({"1": {"0": [")" + folder.path() +
                 R"(/golden_tensor/0/1_tensor.pth", "/nowhere/outtensor0.bin"]}})");
  const Result<ManualMapping> mapping = read_manual_mapping(folder.path());
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_EQ(mapping->golden.records[0].problem, "");
  ASSERT_TRUE(mapping->mine.records[0].bytes);
  EXPECT_EQ(mapping->mine.records[0].bytes->file, "/nowhere/outtensor0.bin");
  EXPECT_EQ(mapping->mine.records[0].problem, "/nowhere/outtensor0.bin is not a file");
}

TEST(ManualMapping, FindsTheFilesOfAMovedDump) {
  const TestFolder folder;
  folder.put_pth("ait_dump/4242_0/golden_tensor/0/1_tensor.pth", {1});
  folder.put_npy("ait_dump/tensors/0_5555/0/0_Embedding/after/outtensor0.npy", {2});
  folder.put_npy("outtensor0.npy", {3});  // a name alone proves nothing
  folder.put("ait_dump/4242_0/golden_tensor/metadata.json",
             R"({"1": {"0": ["/d/ait_dump/4242_0/golden_tensor/0/1_tensor.pth",)"
             R"( "/d/ait_dump/tensors/0_5555/0/0_Embedding/after/outtensor0.npy"]},)"
             R"( "2": {"0": ["/d/../secret/1_tensor.pth", "/x/y/outtensor0.npy"]}})");
  folder.put_npy("here.npy", {4});
  folder.put("run/9_0/golden_tensor/metadata.json",
             R"({"1": {"0": ["./here.npy", "x/here.npy"]}})");  // written in the folder of here.npy
  const Result<ManualMapping> relative = read_manual_mapping(folder.path() + "/run/9_0");
  ASSERT_TRUE(relative) << relative.error().describe();
  EXPECT_THAT(floats_of(*load_tensor(relative->golden.records[0])), ElementsAre(4));
  EXPECT_EQ(relative->mine.records[0].bytes->file, "x/here.npy");

  const Result<ManualMapping> mapping = read_manual_mapping(folder.path() + "/ait_dump/4242_0");
  ASSERT_TRUE(mapping) << mapping.error().describe();
  EXPECT_THAT(floats_of(*load_tensor(mapping->golden.records[0])), ElementsAre(1));
  EXPECT_THAT(floats_of(*load_tensor(mapping->mine.records[0])), ElementsAre(2));
  EXPECT_EQ(mapping->golden.records[1].bytes->file, "/d/../secret/1_tensor.pth");
  EXPECT_EQ(mapping->mine.records[1].bytes->file, "/x/y/outtensor0.npy");
}

TEST(ManualMapping, RefusesWhatIsNoObject) {
  const TestFolder folder;
  folder.put("golden_tensor/metadata.json", "{\"1\": {\"0\": [\"a\", ");
  const Result<ManualMapping> cut = read_manual_mapping(folder.path());
  ASSERT_FALSE(cut);
  EXPECT_EQ(cut.error().code, Errc::Truncated);
  EXPECT_TRUE(cut.error().offset);
  folder.put("golden_tensor/metadata.json", " []");
  const Result<ManualMapping> list = read_manual_mapping(folder.path());
  ASSERT_FALSE(list);
  EXPECT_EQ(list.error().code, Errc::Invalid);
  EXPECT_EQ(list.error().offset, 1);
  EXPECT_THAT(list.error().describe(), HasSubstr("metadata.json"));
  const Result<ManualMapping> none = read_manual_mapping(folder.path() + "/golden_tensor/0");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Errc::NotFound);
}

}  // namespace
}  // namespace assay::run
