// SPDX-License-Identifier: Apache-2.0
#include "writer/layouts/torch_tree.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>

#include "base/mapped_file.hpp"
#include "formats/pth.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::writer {
namespace {

namespace fs = std::filesystem;

class TorchTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "torch_tree_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string folder_;
};

TorchTreeTensor tensor_of(std::string stem, std::vector<float> values) {
  TorchTreeTensor tensor;
  tensor.stem = std::move(stem);
  tensor.dtype_name = "float32";
  tensor.dtype = DType::Float32;
  tensor.shape = Dims{static_cast<int64_t>(values.size())};
  tensor.content = TorchTreeTensor::Content::Payload;
  const auto owner = std::make_shared<std::vector<float>>(std::move(values));
  tensor.payload = std::as_bytes(std::span(*owner));
  tensor.payload_owner = owner;
  return tensor;
}

TorchTreeTensor link_to(std::string stem, std::string source) {
  TorchTreeTensor tensor = tensor_of(std::move(stem), {});
  tensor.content = TorchTreeTensor::Content::Link;
  tensor.link_source = std::move(source);
  return tensor;
}

TorchTreeVisit visit_of(int64_t token, std::string folder, std::vector<TorchTreeTensor> tensors) {
  TorchTreeVisit visit;
  visit.token = token;
  visit.folder = std::make_shared<const std::string>(std::move(folder));
  visit.node_type = std::make_shared<const std::string>("Linear");
  visit.tensors = std::move(tensors);
  return visit;
}

template <typename... Tensors>
std::vector<TorchTreeTensor> list(Tensors... tensors) {
  std::vector<TorchTreeTensor> result;
  (result.push_back(std::move(tensors)), ...);
  return result;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<float> read_floats(const std::string& path) {
  auto file = MappedFile::open(path);
  EXPECT_TRUE(file) << path;
  if (!file) return {};
  const auto entries = formats::read_pth_file(*file);
  EXPECT_TRUE(entries && entries->size() == 1);
  if (!entries) return {};
  const ByteSpan bytes = (*entries)[0].tensor.view.contiguous_bytes();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

size_t file_count(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(StatisticsRow, EqualsTheExampleOfTheDocument) {
  // fp16 [[1, -2], [3, 4]]: mean 6 / 4, sqrt(1 + 4 + 9 + 16) = sqrt(30)
  TorchTreeTensor tensor;
  tensor.stem = "output";
  tensor.dtype_name = "float16";
  tensor.shape = Dims{2, 2};
  tensor.statistics = stats::TensorStats{
      .count = 4, .min = -2, .max = 4, .mean = 1.5, .l2_norm = std::sqrt(30.0), .sketch = {}};
  EXPECT_EQ(statistics_row("root.model.norm", "LlamaRMSNorm", tensor),
            "root.model.norm,LlamaRMSNorm,Output,0,torch.float16,\"(2, "
            "2)\",4.0,-2.0,1.5,5.4772257804870605\r\n");
}

TEST(StatisticsRow, TakesDirectionAndIndexFromTheStem) {
  TorchTreeTensor tensor;
  tensor.dtype_name = "int64";
  tensor.shape = Dims{5};
  tensor.statistics =
      stats::TensorStats{.count = 5, .min = 0, .max = 1, .mean = 0.1, .l2_norm = 1, .sketch = {}};
  tensor.stem = "input_3";
  EXPECT_EQ(statistics_row("root", "M", tensor),
            "root,M,Input,3,torch.int64,\"(5,)\",1.0,0.0,0.10000000149011612,1.0\r\n");
  tensor.stem = "output_1_0";  // nested: indistinguishable from output_0, as in the original
  tensor.shape = Dims{};
  EXPECT_EQ(statistics_row("root", "M", tensor),
            "root,M,Output,0,torch.int64,(),1.0,0.0,0.10000000149011612,1.0\r\n");
}

TEST(StatisticsRow, NanPoisonsAllFourAndInfinityWins) {
  TorchTreeTensor tensor;
  tensor.stem = "output";
  tensor.dtype_name = "float32";
  tensor.shape = Dims{2};
  tensor.statistics = stats::TensorStats{
      .count = 2, .nan_count = 1, .min = 1, .max = 1, .mean = 1, .l2_norm = 1, .sketch = {}};
  EXPECT_EQ(statistics_row("root", "M", tensor),
            "root,M,Output,0,torch.float32,\"(2,)\",nan,nan,nan,nan\r\n");
  tensor.statistics = stats::TensorStats{.count = 2,
                                         .positive_inf_count = 1,
                                         .min = -1,
                                         .max = -1,
                                         .mean = -1,
                                         .l2_norm = 1,
                                         .sketch = {}};
  EXPECT_EQ(statistics_row("root", "M", tensor),
            "root,M,Output,0,torch.float32,\"(2,)\",inf,-1.0,inf,inf\r\n");
}

TEST(UnbiasedVariance, DividesByOneLess) {
  const float values[] = {1, -2, 3, 4};  // mean 1.5: 0.25 + 12.25 + 2.25 + 6.25 = 21, over 3
  const auto view = make_view(DType::Float32, Dims{4}, std::as_bytes(std::span(values)));
  ASSERT_TRUE(view);
  EXPECT_DOUBLE_EQ(unbiased_variance(*view, stats::compute_stats(*view)), 7.0);
  const auto single = make_view(DType::Float32, Dims{1}, std::as_bytes(std::span(values, 1)));
  EXPECT_TRUE(std::isnan(unbiased_variance(*single, stats::compute_stats(*single))));
}

TEST_F(TorchTreeTest, WritesFoldersFilesAndLinks) {
  TorchTree tree({.dump_dir = folder_, .dump_dir_text = folder_, .analyze_path = ""});
  ASSERT_TRUE(tree.write(
      visit_of(3, "root.a", list(tensor_of("input_0", {1, 2}), tensor_of("output", {3})))));
  ASSERT_TRUE(tree.write(visit_of(3, "root.b", list(link_to("input_0", "root.a/output.pth")))));
  ASSERT_TRUE(tree.write(visit_of(4, "root.c", {})));
  EXPECT_EQ(read_floats(folder_ + "/3/root.a/input_0.pth"), (std::vector<float>{1, 2}));
  EXPECT_EQ(read_floats(folder_ + "/3/root.b/input_0.pth"), (std::vector<float>{3}));
  EXPECT_TRUE(fs::equivalent(folder_ + "/3/root.a/output.pth", folder_ + "/3/root.b/input_0.pth"));
  EXPECT_EQ(file_count(folder_ + "/3/root.a"), 2u);  // no temporary name, no csv
  EXPECT_TRUE(fs::is_empty(folder_ + "/4/root.c"));
}

TEST_F(TorchTreeTest, StopsWithoutATraceOfTheVisitThatTheDiskBudgetRefuses) {
  TorchTree tree({.dump_dir = folder_,
                  .dump_dir_text = folder_,
                  .analyze_path = "",
                  .disk = {.limit_bytes = 10'000}});
  ASSERT_TRUE(tree.write(visit_of(0, "root.a", list(tensor_of("output", {1})))));  // 4096 + 1204
  EXPECT_FALSE(tree.stopped());
  const Status second = tree.write(visit_of(0, "root.b", list(tensor_of("output", {2}))));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Errc::NoSpace);
  EXPECT_EQ(second.error().message, "the disk limit of 10.0 kB is used up");
  EXPECT_TRUE(tree.stopped());
  EXPECT_FALSE(fs::exists(folder_ + "/0/root.b"));
  EXPECT_EQ(read_floats(folder_ + "/0/root.a/output.pth"), (std::vector<float>{1}));
}

TEST_F(TorchTreeTest, SecondVisitReplacesFilesAndLeavesEarlierLinksAlone) {
  TorchTree tree({.dump_dir = folder_, .dump_dir_text = folder_, .analyze_path = ""});
  ASSERT_TRUE(tree.write(visit_of(0, "root.a", list(tensor_of("output", {1})))));
  ASSERT_TRUE(tree.write(visit_of(0, "root.b", list(link_to("input_0", "root.a/output.pth")))));
  ASSERT_TRUE(tree.write(visit_of(0, "root.a", list(tensor_of("output", {2})))));
  ASSERT_TRUE(tree.write(visit_of(0, "root.b", list(link_to("input_0", "root.a/output.pth")))));
  ASSERT_TRUE(tree.write(
      visit_of(0, "root.b", list(link_to("input_0", "root.a/output.pth")))));  // a link to itself
  EXPECT_EQ(read_floats(folder_ + "/0/root.a/output.pth"), (std::vector<float>{2}));
  EXPECT_EQ(read_floats(folder_ + "/0/root.b/input_0.pth"), (std::vector<float>{2}));
  EXPECT_EQ(file_count(folder_ + "/0/root.b"), 1u);
}

TEST_F(TorchTreeTest, TablesHaveOneHeaderAndGrow) {
  TorchTree tree({.dump_dir = folder_,
                  .dump_dir_text = "shown",
                  .analyze_path = folder_ + "/all.csv",
                  .statistics = true});
  for (int i = 0; i < 2; ++i) {
    TorchTreeTensor tensor = tensor_of("output", {2});
    tensor.statistics =
        stats::TensorStats{.count = 1, .min = 2, .max = 2, .mean = 2, .l2_norm = 2, .sketch = {}};
    ASSERT_TRUE(tree.write(visit_of(0, "root", list(std::move(tensor)))));
  }
  const std::string row = "root,Linear,Output,0,torch.float32,\"(1,)\",2.0,2.0,2.0,2.0\r\n";
  EXPECT_EQ(read_text(folder_ + "/0/root/statistics.csv"), statistics_header() + row + row);
  const std::string analysis =
      "root,Linear,shown/0/root/output.pth,torch.float32,torch.Size([1]),2.0,2.0,nan,2.0\r\n";
  EXPECT_EQ(read_text(folder_ + "/all.csv"), analyze_header() + analysis + analysis);
}

TEST_F(TorchTreeTest, ComesBackAfterAScriptRemovedTheFolder) {
  TorchTree tree({.dump_dir = folder_, .dump_dir_text = folder_, .analyze_path = ""});
  ASSERT_TRUE(tree.write(visit_of(0, "root.a", list(tensor_of("output", {1})))));
  fs::remove_all(folder_ + "/0");
  ASSERT_TRUE(tree.write(visit_of(0, "root.a", list(tensor_of("output", {1})))));
  EXPECT_EQ(read_floats(folder_ + "/0/root.a/output.pth"), (std::vector<float>{1}));
}

TEST_F(TorchTreeTest, NestsNamesWithSlashesAndCutsLongOnes) {
  TorchTree tree({.dump_dir = folder_, .dump_dir_text = folder_, .analyze_path = ""});
  EXPECT_TRUE(tree.write(visit_of(0, "root.a/b", list(tensor_of("output", {1})))));
  EXPECT_EQ(read_floats(folder_ + "/0/root.a/b/output.pth"), (std::vector<float>{1}));
  const std::string name(300, 'x');
  ASSERT_TRUE(tree.write(visit_of(0, name, list(tensor_of("output", {1})))));
  EXPECT_EQ(read_floats(folder_ + "/0/" + torch_tree_folder(name) + "/output.pth"),
            (std::vector<float>{1}));
}

TEST_F(TorchTreeTest, WritesTheSameWhereAFileMustHaveAName) {
  TorchTree named({.dump_dir = folder_ + "/named",
                   .dump_dir_text = "",
                   .analyze_path = "",
                   .nameless_files = false});
  TorchTree nameless({.dump_dir = folder_ + "/nameless", .dump_dir_text = "", .analyze_path = ""});
  for (TorchTree* tree : {&named, &nameless}) {
    ASSERT_TRUE(tree->write(visit_of(0, "root.a", list(tensor_of("output", {1})))));
    ASSERT_TRUE(tree->write(visit_of(0, "root.b", list(link_to("input_0", "root.a/output.pth")))));
    ASSERT_TRUE(tree->write(visit_of(0, "root.a", list(tensor_of("output", {2})))));  // replaced
  }
  for (const char* file : {"/0/root.a/output.pth", "/0/root.b/input_0.pth"}) {
    EXPECT_EQ(read_text(folder_ + "/named" + file), read_text(folder_ + "/nameless" + file))
        << file;
    EXPECT_EQ(fs::status(folder_ + "/named" + file).permissions(),
              fs::status(folder_ + "/nameless" + file).permissions());
  }
  EXPECT_EQ(read_floats(folder_ + "/nameless/0/root.a/output.pth"), (std::vector<float>{2}));
  EXPECT_EQ(read_floats(folder_ + "/nameless/0/root.b/input_0.pth"), (std::vector<float>{1}));
  EXPECT_EQ(file_count(folder_ + "/named/0/root.a"), 1u);
  EXPECT_EQ(file_count(folder_ + "/nameless/0/root.a"), 1u);
}

TEST_F(TorchTreeTest, WritesBorrowedPayloadsAtOnceAndTheRestOfTheVisitLater) {
  TorchTree tree({.dump_dir = folder_,
                  .dump_dir_text = folder_,
                  .analyze_path = folder_ + "/all.csv",
                  .statistics = true});
  ASSERT_TRUE(tree.write(visit_of(0, "root.a", list(tensor_of("output", {1})))));
  const std::vector<float> values = {3, 4};
  TorchTreeTensor borrowed = tensor_of("output", {0, 0});
  borrowed.payload = std::as_bytes(std::span(values));
  borrowed.payload_owner = nullptr;
  borrowed.statistics =
      stats::TensorStats{.count = 2, .min = 3, .max = 4, .mean = 3.5, .l2_norm = 5, .sketch = {}};
  TorchTreeVisit visit =
      visit_of(0, "root.b", list(link_to("input_0", "root.a/output.pth"), std::move(borrowed)));

  ASSERT_TRUE(tree.write_files(visit));

  EXPECT_EQ(read_floats(folder_ + "/0/root.b/output.pth"), values);
  EXPECT_EQ(file_count(folder_ + "/0/root.b"), 1u);
  EXPECT_TRUE(visit.tensors[1].payload.empty());  // nothing refers to `values` any more
  fs::remove(folder_ + "/0/root.b/output.pth");
  ASSERT_TRUE(tree.write(visit));
  EXPECT_FALSE(fs::exists(folder_ + "/0/root.b/output.pth"));  // not written twice
  EXPECT_EQ(read_floats(folder_ + "/0/root.b/input_0.pth"), (std::vector<float>{1}));
  EXPECT_EQ(
      read_text(folder_ + "/0/root.b/statistics.csv"),
      statistics_header() + "root.b,Linear,Output,0,torch.float32,\"(2,)\",4.0,3.0,3.5,5.0\r\n");
  EXPECT_NE(read_text(folder_ + "/all.csv").find("/0/root.b/output.pth,"), std::string::npos);
}

TEST_F(TorchTreeTest, AFileThatCannotBeWrittenWholeHasNoName) {
  for (const bool nameless : {true, false}) {
    TorchTree tree(
        {.dump_dir = folder_, .dump_dir_text = "", .analyze_path = "", .nameless_files = nameless});
    const auto before = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit small{.rlim_cur = 2048, .rlim_max = limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    const Status status =
        tree.write(visit_of(0, "root",
                            list(tensor_of("output", std::vector<float>(1000)),  // 5 KB
                                 tensor_of("output_1", {2}))));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    std::signal(SIGXFSZ, before);
    EXPECT_FALSE(status) << nameless;
    EXPECT_EQ(read_floats(folder_ + "/0/root/output_1.pth"), (std::vector<float>{2}));
    EXPECT_EQ(file_count(folder_ + "/0/root"), 1u) << nameless;
  }
}

TEST_F(TorchTreeTest, FullDiskStopsItAndLeavesNoHalfFile) {
  TorchTree tree(
      {.dump_dir = folder_, .dump_dir_text = "", .analyze_path = "", .nameless_files = false});
  fs::create_directories(folder_ + "/0/root");
  fs::create_symlink("/dev/full", folder_ + "/0/root/.output.pth.tmp");
  const Status status =
      tree.write(visit_of(0, "root", list(tensor_of("output", {1}), tensor_of("output_1", {2}))));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::NoSpace);
  EXPECT_TRUE(tree.stopped());
  EXPECT_FALSE(fs::exists(folder_ + "/0/root/output.pth"));
  EXPECT_EQ(read_floats(folder_ + "/0/root/output_1.pth"),
            (std::vector<float>{2}));  // the rest of the visit
}

TEST(TorchTreeName, CutsWhatAFileSystemCannotHoldAndKeepsNamesApart) {
  const std::string longest(255, 'a');
  EXPECT_EQ(torch_tree_name(longest), longest);
  const std::string one = torch_tree_name(longest + "b"), other = torch_tree_name(longest + "c");
  EXPECT_EQ(one.size(), 255u);
  EXPECT_NE(one, other);
  EXPECT_TRUE(one.starts_with(std::string(222, 'a') + "~"));
  EXPECT_EQ(torch_tree_name(longest, 8).size(), 247u);
  // Two bytes a character: none is cut in half.
  std::string umlauts;
  for (int i = 0; i < 200; ++i) umlauts += "\xc3\xa4";
  EXPECT_EQ(torch_tree_name(umlauts).size(), 255u);
  EXPECT_EQ(torch_tree_name("x" + umlauts).size(), 254u);
  EXPECT_EQ(torch_tree_folder("root/" + longest + "b"), "root/" + one);
}

}  // namespace
}  // namespace assay::writer
