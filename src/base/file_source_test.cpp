// SPDX-License-Identifier: Apache-2.0
#include "base/file_source.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <map>

#include "base/bytes.hpp"
#include "base/file_changes.hpp"
#include "base/mapped_file.hpp"
#include "base/paths.hpp"

namespace assay {
namespace {

/// A file in memory whose bytes come when they are asked for.
class TestFile : public PartialFile {
 public:
  explicit TestFile(std::string content)
      : content_(std::move(content)), fd_(::memfd_create("test", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(fd_, static_cast<off_t>(content_.size())), 0);
  }
  ~TestFile() override { ::close(fd_); }
  int descriptor() const override { return fd_; }
  uint64_t size_bytes() const override { return content_.size(); }
  Result<std::shared_ptr<const void>> fetch(uint64_t offset, uint64_t size_bytes) override {
    const std::string part = content_.substr(offset, size_bytes);
    EXPECT_EQ(::pwrite(fd_, part.data(), part.size(), static_cast<off_t>(offset)),
              static_cast<ssize_t>(part.size()));
    fetched_bytes += part.size();
    return std::make_shared<const int>(0);
  }
  uint64_t fetched_bytes = 0;

 private:
  std::string content_;
  int fd_;
};

class TestSource : public FileSource {
 public:
  Status prepare(const std::string&) override { return {}; }
  Result<FileFacts> facts(const std::string& path) override {
    const auto found = files.find(path);
    if (found == files.end()) return fail(errno_error(ENOENT, "open", path));
    FileFacts facts;
    facts.size_bytes = found->second->size_bytes();
    return facts;
  }
  Result<std::vector<ListedFile>> list(const std::string&) override {
    return std::vector<ListedFile>();
  }
  Result<std::shared_ptr<PartialFile>> open(const std::string& path) override {
    ASSAY_TRY_STATUS(facts(path));
    return files.at(path);
  }
  std::map<std::string, std::shared_ptr<TestFile>> files;
};

/// 100 000 bytes, each the last digits of its offset.
std::string counting_bytes() {
  std::string bytes(100'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i % 251);
  return bytes;
}

class FileSourceTest : public ::testing::Test {
 protected:
  FileSourceTest() {
    source->files["test://files/a"] = std::make_shared<TestFile>(counting_bytes());
    register_file_source("test://files", source);
  }
  std::shared_ptr<TestSource> source = std::make_shared<TestSource>();
};

TEST_F(FileSourceTest, PathsThatLookLocalAreElsewhereWhereTheyAreRegistered) {
  source->files["/run/rank1/a"] = std::make_shared<TestFile>("abc");
  source->files["b"] = std::make_shared<TestFile>("abcd");
  register_elsewhere({"/run/rank1/", "./b"}, source);
  EXPECT_TRUE(is_elsewhere("/run/rank1"));
  EXPECT_TRUE(is_elsewhere("/run/rank1/a"));
  EXPECT_TRUE(is_elsewhere("b"));
  EXPECT_TRUE(is_elsewhere("./b"));
  EXPECT_FALSE(is_elsewhere("/run/rank10/a"));
  EXPECT_FALSE(is_elsewhere("/run"));
  EXPECT_EQ(file_facts("/run/rank1/a")->size_bytes, 3u);
  EXPECT_EQ(file_facts("b")->size_bytes, 4u);
  EXPECT_EQ(file_facts("/run/rank10/a").error().code, Errc::NotFound);
  register_elsewhere({}, nullptr);
  EXPECT_FALSE(is_elsewhere("/run/rank1/a"));
  EXPECT_EQ(file_source("/run/rank1/a"), nullptr);
}

TEST_F(FileSourceTest, AHeadIsFetchedAlone) {
  EXPECT_EQ(*source->head("test://files/a", 10), counting_bytes().substr(0, 10));
  EXPECT_EQ(source->files["test://files/a"]->fetched_bytes, 10u);
  EXPECT_EQ(source->head("test://files/a", 1'000'000)->size(), 100'000u);
  EXPECT_EQ(source->head("test://files/none", 10).error().code, Errc::NotFound);
}

TEST(NormalPath, IsOfPathsAndUrls) {
  EXPECT_EQ(normal_path("/a/./b/../c/"), "/a/c");
  EXPECT_EQ(normal_path("./a"), "a");
  EXPECT_EQ(normal_path("/"), "/");
  EXPECT_EQ(normal_path("s3://b/a/../c/"), "s3://b/c");
}

TEST(IsUrl, TellsASchemeFromAPath) {
  EXPECT_TRUE(is_url("s3://bucket/key"));
  EXPECT_TRUE(is_url("file:///tmp"));
  EXPECT_FALSE(is_url("/a/b://c"));
  EXPECT_FALSE(is_url("./s3://bucket"));
  EXPECT_FALSE(is_url("a/b://c"));
  EXPECT_FALSE(is_url("C:/x"));
  EXPECT_FALSE(is_url("://x"));
  EXPECT_FALSE(is_url(""));
}

TEST(NormalUrl, RemovesDotsAndStaysBelowTheFirstComponent) {
  EXPECT_EQ(normal_url("s3://b/a/./c/../d//e/"), "s3://b/a/d/e");
  EXPECT_EQ(normal_url("s3://b/../../x"), "s3://b/x");
  EXPECT_EQ(normal_url("s3://b"), "s3://b");
  EXPECT_EQ(normal_url("file:///tmp/x/"), "file:///tmp/x");
}

TEST_F(FileSourceTest, OpenBringsAllOfAFile) {
  const auto file = MappedFile::open("test://files/a");
  ASSERT_TRUE(file);
  EXPECT_EQ(as_text(file->bytes()), counting_bytes());
  EXPECT_EQ(file->path(), "test://files/a");
}

TEST_F(FileSourceTest, ARangeBringsNoMore) {
  // Small ranges are read, others mapped from a page on.
  for (const uint64_t size : {uint64_t{10}, uint64_t{50'000}}) {
    source->files["test://files/a"]->fetched_bytes = 0;
    const auto file = MappedFile::open_range("test://files/a", 4'099, size);
    ASSERT_TRUE(file);
    EXPECT_EQ(as_text(file->bytes()), counting_bytes().substr(4'099, size));
    EXPECT_EQ(source->files["test://files/a"]->fetched_bytes, size);
  }
  EXPECT_EQ(MappedFile::open_range("test://files/a", 99'990, 100)->bytes().size(), 10u);
  EXPECT_EQ(MappedFile::open_range("test://files/a", 200'000, 1)->bytes().size(), 0u);
}

TEST_F(FileSourceTest, AnUnfetchedFileIsZerosUntilItIsFetched) {
  const auto file = MappedFile::open_unfetched("test://files/a");
  ASSERT_TRUE(file);
  ASSERT_EQ(file->bytes().size(), 100'000u);
  EXPECT_EQ(as_text(file->bytes())[10], 0);
  ASSERT_TRUE(file->fetch(10, 1));
  EXPECT_EQ(as_text(file->bytes())[10], 10);
  EXPECT_EQ(as_text(file->bytes())[11], 0);
}

TEST_F(FileSourceTest, QuestionsAboutPathsReachTheSource) {
  EXPECT_TRUE(exists("test://files/a"));
  EXPECT_FALSE(exists("test://files/b"));
  EXPECT_EQ(file_facts("test://files/a")->size_bytes, 100'000u);
  EXPECT_EQ(MappedFile::open("test://files/b").error().describe(),
            "test://files/b: cannot open: No such file or directory");
}

TEST_F(FileSourceTest, TheLongestPrefixCounts) {
  const auto inner = std::make_shared<TestSource>();
  register_file_source("test://files/inner", inner);
  EXPECT_EQ(file_source("test://files/inner/x"), inner);
  EXPECT_EQ(file_source("test://files/a"), source);
  EXPECT_EQ(file_source("/test://files/a"), nullptr);
}

TEST(OpenRange, OfALocalFileIsThatPart) {
  const std::string path = ::testing::TempDir() + "/assay_open_range";
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const std::string bytes = counting_bytes();
  ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ::close(fd);
  EXPECT_EQ(as_text(MappedFile::open_range(path, 7, 50'000)->bytes()), bytes.substr(7, 50'000));
  EXPECT_EQ(MappedFile::open_range(path, 200'000, 1)->bytes().size(), 0u);
  ::unlink(path.c_str());
}

TEST(ReadingScope, TellsAFailureToReadOnce) {
  const ReadingScope reading;
  EXPECT_TRUE(reading.finish());
  note_failed_reading(Error{Errc::Io, "s3://b/x", std::nullopt, "the line is dead"});
  EXPECT_EQ(reading.take_failure().error().message, "the line is dead");
  EXPECT_TRUE(reading.finish());
}

}  // namespace
}  // namespace assay
