// SPDX-License-Identifier: Apache-2.0
#include "writer/layouts/atb_tree.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/atomic_file.hpp"

namespace assay::writer {
namespace {

namespace fs = std::filesystem;

class AtbTreeTest : public ::testing::Test {
 protected:
  AtbTreeTest() {
    std::string pattern = (fs::temp_directory_path() / "assay_atb_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
  }
  ~AtbTreeTest() override { fs::remove_all(root_); }

  AtbTreeOptions options() const {
    AtbTreeOptions options;
    options.root = root_;
    options.process = "4711";
    return options;
  }
  std::string text(const std::string& name) const {
    std::ifstream file(root_ + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A record of one attribute; the hash is the record's own.
  AtbTree::Stored store(AtbTree& tree, const std::string& path, std::string_view payload) {
    const formats::AtbAttribute attributes[] = {{"dtype", "4"}};
    const std::string header = formats::atb_bin_header(attributes, payload.size());
    file_ = header + std::string(payload);
    AtbRecord record;
    record.path = path;
    record.file = as_bytes(file_);
    record.hash = atb_record_hash(attributes, as_bytes(payload));
    return tree.write_record(record).value();
  }
  std::string payload(const std::string& name) const {
    const std::string content = text(name);
    const size_t end = content.find("$End=1\n");
    return end == std::string::npos ? "no header" : content.substr(end + 7);
  }
  static AtbRow row(const std::string& folder, uint64_t n = 0) {
    AtbRow row;
    row.execute_count = n;
    row.op_name = "LinearOperation_2_0";
    row.op_param = "{}";
    row.inputs = {{"float16", "nd", "2,3", folder + "/before/intensor0.bin"},
                  {"float16", "nd", "2,3", folder + "/before/intensor1.bin"}};
    row.outputs = {{"float16", "nd", "2,3", folder + "/before/outtensor0.bin"}};
    return row;
  }
  // Columns of a line of a list.
  std::vector<std::string> cells(const std::string& name, size_t line) const {
    std::vector<std::string> lines;
    std::vector<std::string> cells;
    std::string all = text(name);
    for (size_t at = 0; at < all.size();) {
      const size_t end = all.find('\n', at);
      lines.push_back(all.substr(at, end - at));
      at = end + 1;
    }
    std::string rest = lines.at(line) + "|";
    for (size_t at = 0; at < rest.size();) {
      const size_t end = rest.find('|', at);
      cells.push_back(rest.substr(at, end - at));
      at = end + 1;
    }
    return cells;
  }

  std::string root_;
  std::string file_;
};

TEST(AtbRecordHash, AgreesWithTheOriginal) {
  const unsigned char halves[12] = {0x00, 0x3c, 0x00, 0xc0, 0x00, 0x38,
                                    0x00, 0x00, 0x80, 0x42, 0xff, 0x7b};
  const formats::AtbAttribute attributes[] = {{"format", "2"}, {"dtype", "1"}, {"dims", "2,3"}};
  EXPECT_EQ(atb_record_hash(attributes, {reinterpret_cast<const std::byte*>(halves), 12}),
            13619008672072900152u);
}

TEST(AtbRelativePath, StaysBelowItsFolder) {
  EXPECT_EQ(atb_relative_path("0_1/0/2_A/before/intensor0.bin").value(),
            "0_1/0/2_A/before/intensor0.bin");
  EXPECT_EQ(atb_relative_path("0_1//./a b:c*").value(), "0_1/a_b_c_");
  EXPECT_EQ(atb_relative_path("/etc/passwd").error().code, Errc::Invalid);
  EXPECT_EQ(atb_relative_path("0_1/../../x").error().code, Errc::Invalid);
  EXPECT_EQ(atb_relative_path("").error().code, Errc::Invalid);
  EXPECT_EQ(atb_relative_path("0_1" + std::string(5000, '/') + "a").value(), "0_1/a");
  std::string deep = "a";
  for (int i = 0; i < 3000; ++i) deep += "/b";
  EXPECT_EQ(atb_relative_path(deep).error().code, Errc::TooLarge);
}

TEST(AtbRelativePath, LongNamesAreCutAndStayDifferentAndKeepTheirEnding) {
  const std::string a = atb_relative_path(std::string(300, 'x') + "a.bin").value();
  const std::string b = atb_relative_path(std::string(300, 'x') + "b.bin").value();
  EXPECT_LE(a.size(), 200u);
  EXPECT_NE(a, b);
  EXPECT_TRUE(a.ends_with(".bin"));
}

TEST_F(AtbTreeTest, WritesWholeFilesWithTheModesOfTheOriginal) {
  umask(022);
  AtbTree tree(options());
  EXPECT_EQ(store(tree, "0_1/0/2_A/after/outtensor0.bin", "abc"), AtbTree::Stored::File);
  EXPECT_EQ(
      text("tensors/0_1/0/2_A/after/outtensor0.bin"),
      "$Version=1.0\n$Object.Count=1\n$Object.Length=3\ndtype=4\n$Object.data=0,3\n$End=1\nabc");
  struct stat info{};
  stat((root_ + "/tensors/0_1/0/2_A/after/outtensor0.bin").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0640u);
  stat((root_ + "/tensors/0_1").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0750u);
  // The same path again is the new file, not a second record behind the first.
  store(tree, "0_1/0/2_A/after/outtensor0.bin", "de");
  EXPECT_EQ(payload("tensors/0_1/0/2_A/after/outtensor0.bin"), "de");
}

TEST_F(AtbTreeTest, ComesBackAfterSomebodyRemovedItsFolders) {
  AtbTree tree(options());
  store(tree, "0_1/0/2_A/after/outtensor0.bin", "abc");
  fs::remove_all(root_ + "/tensors");
  store(tree, "0_1/0/2_A/after/outtensor1.bin", "abc");
  EXPECT_EQ(payload("tensors/0_1/0/2_A/after/outtensor1.bin"), "abc");
}

TEST_F(AtbTreeTest, LinksIdenticalTensorsRelativelySoThatADumpCanBeMoved) {
  AtbTree tree(options());
  EXPECT_EQ(store(tree, "0_1/0/2_A/after/outtensor0.bin", "abc"), AtbTree::Stored::File);
  EXPECT_EQ(store(tree, "0_1/1/3_B/before/intensor0.bin", "abc"), AtbTree::Stored::Link);
  EXPECT_EQ(store(tree, "0_1/1/3_B/before/intensor1.bin", "abd"), AtbTree::Stored::File);
  EXPECT_EQ(fs::read_symlink(root_ + "/tensors/0_1/1/3_B/before/intensor0.bin"),
            "../../../0/2_A/after/outtensor0.bin");
  const std::string moved = root_ + "_moved";
  fs::rename(root_, moved);
  std::ifstream file(moved + "/tensors/0_1/1/3_B/before/intensor0.bin");
  EXPECT_TRUE(file.good());
  fs::rename(moved, root_);
  // The same bytes to the same place stay a file.
  EXPECT_EQ(store(tree, "0_1/0/2_A/after/outtensor0.bin", "abc"), AtbTree::Stored::File);
  EXPECT_EQ(payload("tensors/0_1/1/3_B/before/intensor0.bin"), "abc");
}

TEST_F(AtbTreeTest, OverwritingAFileThatLinksLeadToLeavesThemTheirBytes) {
  AtbTree tree(options());
  store(tree, "0_1/0/1_A/after/outtensor0.bin", "old");
  store(tree, "0_1/0/2_B/after/outtensor0.bin", "old");
  store(tree, "0_1/0/3_C/after/outtensor0.bin", "old");
  EXPECT_EQ(store(tree, "0_1/0/1_A/after/outtensor0.bin", "new"), AtbTree::Stored::File);
  EXPECT_EQ(payload("tensors/0_1/0/1_A/after/outtensor0.bin"), "new");
  EXPECT_EQ(payload("tensors/0_1/0/2_B/after/outtensor0.bin"), "old");
  EXPECT_EQ(payload("tensors/0_1/0/3_C/after/outtensor0.bin"), "old");
  // A link that gets other bytes becomes a file; a later tensor finds the heir.
  EXPECT_EQ(store(tree, "0_1/0/3_C/after/outtensor0.bin", "own"), AtbTree::Stored::File);
  EXPECT_EQ(store(tree, "0_1/0/4_D/after/outtensor0.bin", "old"), AtbTree::Stored::Link);
  EXPECT_EQ(payload("tensors/0_1/0/2_B/after/outtensor0.bin"), "old");
  EXPECT_EQ(payload("tensors/0_1/0/4_D/after/outtensor0.bin"), "old");
}

TEST_F(AtbTreeTest, WithoutAHashEveryTensorIsAFile) {
  AtbTree tree(options());
  const std::string file = formats::atb_bin_header({}, 3) + "abc";
  for (const char* path : {"0_1/0/1_A/after/outtensor0.bin", "0_1/0/2_B/after/outtensor0.bin"}) {
    EXPECT_EQ(tree.write_record({path, as_bytes(file), {}}).value(), AtbTree::Stored::File);
  }
}

TEST_F(AtbTreeTest, EqualHashesOfDifferentBytesAreNotLinked) {
  AtbTree tree(options());
  const std::string header = formats::atb_bin_header({}, 3);
  const std::string first = header + "abc";
  const std::string second = header + "xyz";
  AtbRecord record;
  record.hash = 42;  // a collision
  record.path = "0_1/0/1_A/after/outtensor0.bin";
  record.file = as_bytes(first);
  ASSERT_TRUE(tree.write_record(record).has_value());
  record.path = "0_1/0/2_B/after/outtensor0.bin";
  record.file = as_bytes(second);
  EXPECT_EQ(tree.write_record(record).value(), AtbTree::Stored::File);
  EXPECT_EQ(payload("tensors/0_1/0/2_B/after/outtensor0.bin"), "xyz");
}

TEST_F(AtbTreeTest, OperationRowsNameTheFilesThatWereReallyWritten) {
  AtbTreeOptions remembering = options();
  remembering.remember_files = true;
  AtbTree tree(remembering);
  const std::string folder = "0_1/0/2_A/0_LinearOperation";
  store(tree, folder + "/before/intensor0_x.bin", "a");  // a parameter's name in the file's
  store(tree, folder + "/after/intensor0_x.bin", "a");
  store(tree, folder + "/after/outtensor0.bin", "b");
  ASSERT_TRUE(tree.append_operation(row(folder)).has_value());
  const auto line = cells("operation_io_tensors/4711/operation_tensors_0.csv", 1);
  EXPECT_EQ(line[1], "LinearOperation_2_01");
  // Input 0 from before, input 1 was not saved, the output from after.
  EXPECT_EQ(line[14], root_ + "/tensors/" + folder + "/before/intensor0_x.bin;");
  EXPECT_EQ(line[15], root_ + "/tensors/" + folder + "/after/outtensor0.bin");
}

TEST_F(AtbTreeTest, KernelRowsWaitForTheirOutputs) {
  AtbTreeOptions remembering = options();
  remembering.remember_files = true;
  AtbTree tree(remembering);
  const std::string folder = "0_1/0/2_A";
  const auto save = [&](uint64_t thread, const std::string& path) {
    ASSERT_TRUE(tree.settle_kernel(thread, path).has_value());
    store(tree, path, "a");
  };
  // Two threads in between each other: the inputs, the report, the outputs, for two kernels.
  save(1, folder + "/0_MatMulKernel/before/intensor0.bin");
  ASSERT_TRUE(tree.append_kernel(1, row(folder)).has_value());
  save(2, "0_1/0/9_Z/before/intensor0.bin");
  save(1, folder + "/0_MatMulKernel/after/outtensor0.bin");
  save(1, folder + "/1_AddKernel/before/intensor0.bin");
  ASSERT_TRUE(tree.append_kernel(1, row(folder)).has_value());
  ASSERT_TRUE(tree.finish().has_value());
  const std::string list = "kernel_io_tensors/4711/kernel_tensors_0.csv";
  const std::string tensors = root_ + "/tensors/" + folder;
  EXPECT_EQ(cells(list, 1)[14], tensors + "/0_MatMulKernel/before/intensor0.bin;");
  EXPECT_EQ(cells(list, 1)[15], tensors + "/0_MatMulKernel/after/outtensor0.bin");
  EXPECT_EQ(cells(list, 2)[14], tensors + "/1_AddKernel/before/intensor0.bin;");
  EXPECT_EQ(cells(list, 2)[15], "");
}

TEST_F(AtbTreeTest, CaseNumbersAreCountedInMemoryAndStopGrowing) {
  AtbTree tree(options());
  for (uint64_t i = 0; i < formats::kMaxOpCsvCases + 5; ++i) {
    ASSERT_TRUE(tree.append_operation(row("0_1/0/2_A")).has_value());
  }
  const std::string list = "operation_io_tensors/4711/operation_tensors_0.csv";
  EXPECT_EQ(cells(list, 0)[0], "CaseNum");
  EXPECT_EQ(cells(list, 1)[0], "1");
  EXPECT_EQ(cells(list, 9999)[0], "9999");
  EXPECT_EQ(cells(list, 10005)[0], "10000");
}

TEST_F(AtbTreeTest, FormulasLeaveAnEmptyLine) {
  AtbTree tree(options());
  AtbRow evil = row("0_1/0/2_A");
  evil.op_name = "=cmd()";
  ASSERT_TRUE(tree.append_operation(evil).has_value());
  ASSERT_TRUE(tree.append_operation(row("0_1/0/2_A")).has_value());
  const std::string list = "operation_io_tensors/4711/operation_tensors_0.csv";
  EXPECT_EQ(cells(list, 1), std::vector<std::string>{""});
  EXPECT_EQ(cells(list, 2)[0], "2");
}

TEST_F(AtbTreeTest, TopologyGoesToTheListOfItsProcess) {
  AtbTreeOptions listed = options();
  listed.subprocess_list = root_ + "/99/subprocess_info.txt";
  AtbTree tree(listed);
  const std::string report =
      R"({"inTensorNum":1,"opName":"WordEmbedding_0","opType":"WordEmbedding","outTensorNum":1,"param":{"a":1}})";
  ASSERT_TRUE(tree.write_layer("WordEmbedding_0", report).has_value());
  ASSERT_TRUE(
      tree.write_model("M", R"({"inTensors":["i"],"modelName":"M","nodes":[{"inTensors":["i"],)"
                            R"("opName":"WordEmbedding","outTensors":["o"]}],"outTensors":["o"]})")
          .has_value());
  EXPECT_NE(text("model/4711/M.json").find("\"opName\":\"WordEmbedding_0\""), std::string::npos);
  EXPECT_TRUE(text("layer/4711/WordEmbedding_0.json").ends_with("}\n"));
  EXPECT_EQ(text("99/subprocess_info.txt"),
            root_ + "/layer/4711/WordEmbedding_0.json\n" + root_ + "/model/4711/M.json\n");
  // A damaged report is an error and no file.
  EXPECT_FALSE(tree.write_layer("X_1", "{").has_value());
  EXPECT_FALSE(fs::exists(root_ + "/layer/4711/X_1.json"));
}

TEST_F(AtbTreeTest, StatisticsParametersTilingAndOverflows) {
  AtbTreeOptions checked = options();
  checked.overflow_file = root_ + "/msit_overflow_res_4711.txt";
  AtbTree tree(checked);
  ASSERT_TRUE(tree.append_statistic(1, "A_0", "totalTime:1\nx").has_value());
  ASSERT_TRUE(tree.append_statistic(1, "B_1", "totalTime:2").has_value());
  EXPECT_EQ(text("cpu_profiling/4711/operation_statistic_1.txt"),
            "[A_0]:totalTime:1 x\n[B_1]:totalTime:2\n");
  ASSERT_TRUE(tree.write_param("0_1/0/2_A/op_param.json", R"({"a":1})").has_value());
  EXPECT_EQ(text("tensors/0_1/0/2_A/op_param.json"), "{\"a\":1}\n");
  ASSERT_TRUE(
      tree.write_tiling("0_1/0/2_A/0_K/kernel_tilingdata.bin", as_bytes("\x01\x02")).has_value());
  EXPECT_EQ(text("tiling/0_1/0/2_A/0_K/kernel_tilingdata.bin"), "\x01\x02");
  ASSERT_TRUE(tree.report_overflow("Linear_1:MatMulKernel").has_value());
  EXPECT_EQ(text("msit_overflow_res_4711.txt"),
            "Overflow detected! Operator name: Linear_1:MatMulKernel");
  struct stat info{};
  stat((root_ + "/msit_overflow_res_4711.txt").c_str(), &info);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  ASSERT_TRUE(tree.report_overflow("Add_2:AddKernel").has_value());
  EXPECT_EQ(text("msit_overflow_res_4711.txt"),
            "Overflow detected! Operator name: Linear_1:MatMulKernel\n"
            "Overflow detected! Operator name: Add_2:AddKernel");
}

TEST_F(AtbTreeTest, AFailedWriteIsAnErrorAndLeavesNoRecord) {
  AtbTreeOptions failing = options();
  int writes = 0;
  failing.write_file = [&writes](const std::string& path, ByteSpan content,
                                 unsigned mode) -> Status {
    if (++writes == 1) return fail(Errc::NoSpace, "full");
    return write_file_atomically(path, content, mode);
  };
  AtbTree tree(failing);
  const std::string header = formats::atb_bin_header({}, 3);
  const std::string file = header + "abc";
  AtbRecord record{"0_1/0/1_A/after/outtensor0.bin", as_bytes(file), 1};
  EXPECT_EQ(tree.write_record(record).error().code, Errc::NoSpace);
  // No link to a file that is not there.
  record.path = "0_1/0/2_B/after/outtensor0.bin";
  EXPECT_EQ(tree.write_record(record).value(), AtbTree::Stored::File);
}

}  // namespace
}  // namespace assay::writer
