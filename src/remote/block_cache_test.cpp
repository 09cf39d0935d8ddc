// SPDX-License-Identifier: Apache-2.0
#include "remote/block_cache.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/bytes.hpp"
#include "base/mapped_file.hpp"

namespace assay::remote {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20;

MATCHER_P2(IsRange, offset, size_bytes, "") {
  return arg.offset == static_cast<uint64_t>(offset) &&
         arg.size_bytes == static_cast<uint64_t>(size_bytes);
}

class BlockCacheTest : public ::testing::Test {
 protected:
  BlockCacheTest() {
    std::string name = ::testing::TempDir() + "/assay_cache_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }
  ~BlockCacheTest() override { std::filesystem::remove_all(folder_); }

  std::shared_ptr<BlockCache> cache(uint64_t limit_bytes = 64 * kMiB) const {
    return std::make_shared<BlockCache>(folder_, limit_bytes);
  }

  /// Writes the number of each MiB, from 1 on, into all its bytes, and notes what was asked for.
  CachedFile::Fetch numbers() {
    return [this](const std::string& local_file, const std::vector<ByteRange>& ranges) -> Status {
      const int fd = ::open(local_file.c_str(), O_WRONLY);
      if (fd < 0) return fail(errno_error(errno, "open", local_file));
      for (const ByteRange& range : ranges) {
        fetched_.push_back(range);
        for (uint64_t at = range.offset; at < range.offset + range.size_bytes; at += kMiB) {
          const std::string block(std::min(kMiB, range.offset + range.size_bytes - at),
                                  static_cast<char>(at / kMiB + 1));
          EXPECT_EQ(::pwrite(fd, block.data(), block.size(), static_cast<off_t>(at)),
                    static_cast<ssize_t>(block.size()));
        }
      }
      ::close(fd);
      return {};
    };
  }

  static int byte_at(const CachedFile& file, uint64_t offset) {
    char byte = 0;
    EXPECT_EQ(::pread(file.descriptor(), &byte, 1, static_cast<off_t>(offset)), 1);
    return byte;
  }

  std::string folder_;
  std::vector<ByteRange> fetched_;
};

TEST_F(BlockCacheTest, FetchesTheBlocksOfARangeOnceAndNeighboursAsOne) {
  const auto file = cache()->file("s3://b/x", 5 * kMiB + 7, "1");
  ASSERT_TRUE(file);
  ASSERT_TRUE((*file)->hold(kMiB + 1, kMiB, numbers()));
  EXPECT_THAT(fetched_, ElementsAre(IsRange(kMiB, 2 * kMiB)));
  EXPECT_EQ(byte_at(**file, kMiB), 2);
  EXPECT_EQ(byte_at(**file, 3 * kMiB), 0);
  fetched_.clear();
  ASSERT_TRUE((*file)->hold(0, 10 * kMiB, numbers()));
  EXPECT_THAT(fetched_, ElementsAre(IsRange(0, kMiB), IsRange(3 * kMiB, 2 * kMiB + 7)));
  EXPECT_THAT((*file)->missing(0, 10 * kMiB), ElementsAre());
}

TEST_F(BlockCacheTest, AnotherProcessFindsWhatWasFetched) {
  ASSERT_TRUE((*cache()->file("s3://b/x", 3 * kMiB, "1"))->hold(0, kMiB, numbers()));
  const auto again = cache()->file("s3://b/x", 3 * kMiB, "1");
  EXPECT_THAT((*again)->missing(0, 3 * kMiB), ElementsAre(IsRange(kMiB, 2 * kMiB)));
  EXPECT_EQ(byte_at(**again, 5), 1);
}

TEST_F(BlockCacheTest, AnotherVersionHasNoneOfTheBlocks) {
  const auto old = cache()->file("s3://b/x", kMiB, "1");
  ASSERT_TRUE((*old)->hold(0, kMiB, numbers()));
  const auto shared = cache();
  const auto replaced = shared->file("s3://b/x", kMiB, "2");
  EXPECT_THAT((*replaced)->missing(0, kMiB), ElementsAre(IsRange(0, kMiB)));
  EXPECT_EQ(byte_at(**old, 0), 1);  // whoever reads it goes on
  EXPECT_EQ(shared->used_bytes(), 0u);
}

TEST_F(BlockCacheTest, AFailedFetchLeavesNothing) {
  const auto file = cache()->file("s3://b/x", kMiB, "1");
  const auto held = (*file)->hold(
      0, 1, [](const auto&, const auto&) -> Status { return fail(Errc::Io, "the line is dead"); });
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().message, "the line is dead");
  EXPECT_THAT((*file)->missing(0, kMiB), ElementsAre(IsRange(0, kMiB)));
  EXPECT_TRUE((*file)->hold(0, 1, numbers()));
}

TEST_F(BlockCacheTest, ATableThatWasNotFinishedIsStartedAnew) {
  ASSERT_TRUE((*cache()->file("s3://b/x", 2 * kMiB, "1"))->hold(0, kMiB, numbers()));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    if (entry.path().extension() == ".blocks") std::filesystem::resize_file(entry.path(), 9);
  }
  const auto file = cache()->file("s3://b/x", 2 * kMiB, "1");
  ASSERT_TRUE(file);
  EXPECT_THAT((*file)->missing(0, 2 * kMiB), ElementsAre(IsRange(0, 2 * kMiB)));
  EXPECT_EQ(byte_at(**file, 0), 0);
}

TEST_F(BlockCacheTest, GivesUpWhatWasUsedLongestAgo) {
  const auto small = cache(4 * kMiB);
  const auto file = small->file("s3://b/x", 8 * kMiB, "1");
  for (const uint64_t block : {0, 1, 2, 3}) ASSERT_TRUE((*file)->hold(block * kMiB, 1, numbers()));
  ASSERT_TRUE((*file)->hold(0, 1, numbers()));  // used again: 1 is the oldest now
  ASSERT_TRUE((*file)->hold(4 * kMiB, 1, numbers()));
  EXPECT_THAT((*file)->missing(0, 2 * kMiB), ElementsAre(IsRange(kMiB, kMiB)));
  EXPECT_LE(small->used_bytes(), 4 * kMiB);
  EXPECT_EQ(byte_at(**file, kMiB), 0);
  EXPECT_EQ(byte_at(**file, 0), 1);
}

TEST_F(BlockCacheTest, NeverGivesUpWhatIsInUseHereOrInAnotherProcess) {
  const auto small = cache(2 * kMiB);
  const auto file = small->file("s3://b/x", 8 * kMiB, "1");
  auto here = (*file)->hold(0, 1, numbers());
  ASSERT_TRUE(here);
  // The other process holds block 1 until the pipe is closed.
  int pipe_ends[2];
  int ready[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe_ends[1]);
    const auto own = cache(8 * kMiB)->file("s3://b/x", 8 * kMiB, "1");
    const auto there = (*own)->hold(kMiB, 1, numbers());
    char byte = there ? 'y' : 'n';
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(pipe_ends[0], &byte, 1);
    ::_exit(0);
  }
  ::close(pipe_ends[0]);
  ::close(ready[1]);
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  const auto later = cache(2 * kMiB)->file("s3://b/x", 8 * kMiB, "1");
  const auto refused = (*later)->hold(2 * kMiB, 1, numbers());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::NoSpace);
  EXPECT_THAT(refused.error().message, HasSubstr("what it holds is in use"));
  EXPECT_EQ(byte_at(**file, 0), 1);
  EXPECT_EQ(byte_at(**file, kMiB), 2);
  ::close(pipe_ends[1]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE((*later)->hold(2 * kMiB, 1, numbers()));
  EXPECT_EQ(byte_at(**file, 0), 1);  // still in use here
}

TEST_F(BlockCacheTest, ThreadsThatWantTheSameFetchItOnce) {
  const auto file = *cache()->file("s3://b/x", 4 * kMiB, "1");
  std::atomic<int> fetches{0};
  const CachedFile::Fetch slow = [&](const std::string&,
                                     const std::vector<ByteRange>& ranges) -> Status {
    fetches += static_cast<int>(ranges.size());
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return {};
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { EXPECT_TRUE(file->hold(0, 4 * kMiB, slow)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fetches, 1);
}

TEST_F(BlockCacheTest, ARangeLargerThanTheLimitIsRefused) {
  const auto file = *cache(kMiB)->file("s3://b/x", 4 * kMiB, "1");
  const auto held = file->hold(0, 2 * kMiB, numbers());
  ASSERT_FALSE(held);
  EXPECT_EQ(held.error().message,
            "2.1 MB are needed at once, the cache may hold 1.0 MB (ASSAY_CACHE_LIMIT)");
  EXPECT_THAT(fetched_, ElementsAre());
}

TEST_F(BlockCacheTest, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(folder_ + "/file").put('x');
  const auto file = std::make_shared<BlockCache>(folder_ + "/file", kMiB)->file("s3://b/x", 1, "1");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().describe(), HasSubstr(folder_ + "/file"));
}

TEST_F(BlockCacheTest, AFileWithoutBytesNeedsNone) {
  const auto file = cache()->file("s3://b/x", 0, "1");
  ASSERT_TRUE(file);
  EXPECT_TRUE((*file)->hold(0, 100, numbers()));
  EXPECT_THAT(fetched_, ElementsAre());
}

}  // namespace
}  // namespace assay::remote
