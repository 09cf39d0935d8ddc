// SPDX-License-Identifier: Apache-2.0
#include "writer/layouts/ge_tree.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace assay::writer {
namespace {

namespace fs = std::filesystem;

class GeTreeTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "ge_tree_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  Status write(GeTree& tree, const std::string& folder, const std::string& name,
               std::string_view text) {
    const FilePiece piece{as_bytes(text)};
    return tree.write(folder, name, std::span(&piece, 1));
  }
  std::vector<std::string> names(const std::string& folder) {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(folder))
      result.push_back(entry.path().filename());
    std::sort(result.begin(), result.end());
    return result;
  }

  std::string folder_;
};

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(GeFileName, IsTheVendorsWithDotsSlashesAndBlanksReplaced) {
  EXPECT_EQ(ge_file_name("Add", "model/add", 3, 7, 1760000000123456),
            "Add.model_add.3.7.1760000000123456");
  EXPECT_EQ(ge_file_name("aten.mm", "a b\\c", 0, 0, 1), "aten_mm.a_b_c.0.0.1");
}

TEST(GeFileName, HasNoCharacterThatWindowsRefuses) {
  EXPECT_EQ(ge_name_part("a<b>c:d\"e|f?g*h\ti\x7Fj"), "a_b_c_d_e_f_g_h_i_j");
  EXPECT_EQ(ge_name_part(""), "_");
  EXPECT_EQ(ge_name_part("\xC3\xA4"), "\xC3\xA4");  // UTF-8 stays
}

TEST(GeFileName, IsADigestBeyond255Bytes) {
  const std::string fits(255, 'x');
  EXPECT_EQ(ge_stored_name(fits), fits);
  const std::string stored = ge_stored_name(fits + "y");
  EXPECT_EQ(stored.size(), 32u);
  EXPECT_NE(stored, ge_stored_name(fits + "z"));
  EXPECT_EQ(ge_stored_name(fits + ".csv").size(), 36u);
  EXPECT_TRUE(ge_stored_name(fits + ".csv").ends_with(".csv"));
}

TEST(UniqueTime, NeverRepeatsAcrossThreads) {
  constexpr size_t kThreads = 4, kEach = 20000;
  std::vector<std::vector<uint64_t>> times(kThreads);
  std::vector<std::thread> threads;
  for (std::vector<uint64_t>& mine : times) {
    threads.emplace_back([&mine] {
      for (size_t i = 0; i < kEach; ++i) mine.push_back(unique_time_us());
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint64_t> all;
  for (const auto& mine : times) all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), kThreads * kEach);
  EXPECT_EQ(std::to_string(*all.begin()).size(), 16u);  // what readers anchor at
}

TEST_F(GeTreeTest, WritesAllPiecesInOrderAndNothingElse) {
  GeTree tree;
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};  // [2, 3], read as its transpose
  const ByteSpan storage = std::as_bytes(std::span(values));
  const TensorView view{.dtype = DType::Float32,
                        .shape = Dims{3, 2},
                        .strides = Dims{1, 3},
                        .storage = storage,
                        .negative = true};
  const FilePiece pieces[] = {{as_bytes("head")}, {storage.first(4)}, {{}, &view}, {as_bytes("!")}};

  ASSERT_TRUE(tree.write(folder_ + "/graph_1/1/0", "Add.Add.1.0.1", pieces));

  const std::string content = read_text(folder_ + "/graph_1/1/0/Add.Add.1.0.1");
  ASSERT_EQ(content.size(), 4 + 4 + 24 + 1u);
  EXPECT_EQ(content.substr(0, 4), "head");
  EXPECT_EQ(load<float>(content.data() + 4), 1.0F);
  const float expected[] = {-1, -4, -2, -5, -3, -6};
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(load<float>(content.data() + 8 + 4 * i), expected[i]);
  EXPECT_EQ(content.back(), '!');
  EXPECT_EQ(names(folder_ + "/graph_1/1/0"), std::vector<std::string>{"Add.Add.1.0.1"});
  EXPECT_EQ(tree.files(), 1u);
  EXPECT_EQ(tree.bytes(), 33u);
}

TEST_F(GeTreeTest, WritesPiecesLargerThanItsBuffer) {
  GeTree tree;
  const std::string small(100, 's'), large(200'000, 'l');
  const FilePiece pieces[] = {{as_bytes(small)}, {as_bytes(large)}, {as_bytes(small)}};

  ASSERT_TRUE(tree.write(folder_, "file", pieces));

  EXPECT_EQ(read_text(folder_ + "/file"), small + large + small);
}

TEST_F(GeTreeTest, ListsLongNamesQuoted) {
  GeTree tree;
  const std::string first = "Add.a,\"b\"" + std::string(300, 'x') + ".1.0.1";
  const std::string second = std::string(256, 'y') + ".csv";

  ASSERT_TRUE(write(tree, folder_, first, "1"));
  ASSERT_TRUE(write(tree, folder_, second, "2"));

  EXPECT_EQ(read_text(folder_ + "/" + ge_stored_name(first)), "1");
  EXPECT_EQ(read_text(folder_ + "/mapping.csv"),
            "file,name\n" + ge_stored_name(first) + ",\"Add.a,\"\"b\"\"" + std::string(300, 'x') +
                ".1.0.1\"\n" + ge_stored_name(second) + "," + second + "\n");
}

TEST_F(GeTreeTest, ComesBackToAFolderThatWasDeleted) {
  GeTree tree;
  ASSERT_TRUE(write(tree, folder_ + "/step", "a", "1"));
  fs::remove_all(folder_ + "/step");

  ASSERT_TRUE(write(tree, folder_ + "/step", "b", "2"));

  EXPECT_EQ(names(folder_ + "/step"), std::vector<std::string>{"b"});
}

TEST_F(GeTreeTest, KeepsManyFoldersApart) {
  GeTree tree;
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 10; ++i) {
      ASSERT_TRUE(write(tree, folder_ + "/" + std::to_string(i), std::to_string(round), "x"));
    }
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(names(folder_ + "/" + std::to_string(i)), (std::vector<std::string>{"0", "1"}));
  }
}

TEST_F(GeTreeTest, AFullDiskLeavesNoHalfFileAndStopsTheDump) {
  // The disk takes 10 bytes, then it is full.
  static size_t room;
  room = 10;
  GeTreeOptions options;
  options.io.write = [](int fd, const void* bytes, size_t size) -> ssize_t {
    if (room == 0) {
      errno = ENOSPC;
      return -1;
    }
    const size_t part = std::min(size, room);
    room -= part;
    return ::write(fd, bytes, part);
  };
  GeTree tree(options);
  ASSERT_TRUE(write(tree, folder_, "first", "12345"));

  const Status status = write(tree, folder_, "second", "123456789");

  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Errc::NoSpace);
  EXPECT_EQ(status.error().path, folder_ + "/second");
  EXPECT_TRUE(tree.stopped());
  EXPECT_EQ(names(folder_), std::vector<std::string>{"first"});
}

TEST_F(GeTreeTest, AFileInTheFoldersPlaceIsAnErrorOfThatFileAlone) {
  GeTree tree;
  ASSERT_TRUE(write(tree, folder_, "file", "x"));

  const Status status = write(tree, folder_ + "/file/0", "Add.Add.1.0.1", "y");

  ASSERT_FALSE(status);
  EXPECT_FALSE(tree.stopped());
  EXPECT_TRUE(write(tree, folder_, "next", "z"));
}

}  // namespace
}  // namespace assay::writer
