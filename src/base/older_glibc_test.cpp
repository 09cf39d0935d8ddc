// SPDX-License-Identifier: Apache-2.0
// What stands in for functions of a newer glibc, beside those of this machine's. The object of
// older_glibc.cpp is linked into the test, so plain names mean ours.
#include "base/older_glibc.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

extern "C" uint32_t arc4random() noexcept;

namespace {

/// The C library's own function of that name.
template <typename Function>
Function* glibc(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

bool is_same(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_mode == b.st_mode &&
         a.st_size == b.st_size && a.st_nlink == b.st_nlink && a.st_uid == b.st_uid &&
         a.st_blocks == b.st_blocks && a.st_mtim.tv_sec == b.st_mtim.tv_sec &&
         a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

TEST(OlderGlibc, StatsAsGlibcDoes) {
  auto* const real_stat = glibc(&::stat, "stat");
  auto* const real_lstat = glibc(&::lstat, "lstat");
  if (real_stat == nullptr) GTEST_SKIP() << "this glibc has no stat() either";
  ASSERT_NE(real_stat, &::stat);  // ours is another one
  for (const char* path : {"/", "/proc/self/exe", "/proc/self/fd", "/dev/null"}) {
    struct stat ours{};
    struct stat theirs{};
    EXPECT_EQ(::stat(path, &ours), real_stat(path, &theirs)) << path;
    EXPECT_TRUE(is_same(ours, theirs)) << path;
    EXPECT_EQ(::lstat(path, &ours), real_lstat(path, &theirs)) << path;
    EXPECT_TRUE(is_same(ours, theirs)) << path;
  }
  struct stat named{};
  struct stat opened{};
  const int fd = ::open("/bin/sh", O_RDONLY | O_CLOEXEC);
  EXPECT_EQ(::fstat(fd, &opened), 0);
  EXPECT_EQ(::fstatat(AT_FDCWD, "/bin/sh", &named, 0), 0);
  EXPECT_TRUE(is_same(named, opened));
  ::close(fd);
  errno = 0;
  EXPECT_EQ(::stat("/nonexistent/file", &named), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(OlderGlibc, FindsTheUnwindingTablesThatGlibcFinds) {
  auto* const real = glibc(&::_dl_find_object, "_dl_find_object");
  if (real == nullptr) GTEST_SKIP() << "this glibc has no _dl_find_object()";
  ASSERT_NE(real, &::_dl_find_object);
  // Code of this program, of the C library, and of what was loaded with it.
  void* const places[] = {reinterpret_cast<void*>(&is_same), dlsym(RTLD_DEFAULT, "malloc"),
                          dlsym(RTLD_DEFAULT, "sqrt")};
  for (void* const place : places) {
    dl_find_object ours{};
    dl_find_object theirs{};
    ASSERT_EQ(::_dl_find_object(place, &ours), 0);
    ASSERT_EQ(real(place, &theirs), 0);
    EXPECT_EQ(ours.dlfo_eh_frame, theirs.dlfo_eh_frame);
  }
  dl_find_object none{};
  EXPECT_EQ(::_dl_find_object(nullptr, &none), -1);
}

TEST(OlderGlibc, ThrowsThroughOurUnwindingTables) {
  EXPECT_THROW(throw std::runtime_error("x"), std::runtime_error);
}

TEST(OlderGlibc, WaitsByTheClockOfTheDay) {
  using namespace std::chrono;
  pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  const auto in = [](int64_t milliseconds) {
    struct timespec end{};
    clock_gettime(CLOCK_MONOTONIC, &end);
    const int64_t all = end.tv_sec * 1'000'000'000 + end.tv_nsec + milliseconds * 1'000'000;
    return timespec{.tv_sec = all / 1'000'000'000, .tv_nsec = all % 1'000'000'000};
  };
  pthread_mutex_lock(&mutex);
  const timespec past = in(-5);
  EXPECT_EQ(assay_wait_by_clock_of_day(&condition, &mutex, CLOCK_MONOTONIC, &past), ETIMEDOUT);
  const timespec soon = in(30);
  const auto begin = steady_clock::now();
  while (assay_wait_by_clock_of_day(&condition, &mutex, CLOCK_MONOTONIC, &soon) == 0) {
  }
  EXPECT_GE(steady_clock::now() - begin, 29ms);
  // Woken long before the end.
  const timespec late = in(60'000);
  bool is_done = false;
  std::thread other([&] {
    pthread_mutex_lock(&mutex);
    is_done = true;
    pthread_cond_signal(&condition);
    pthread_mutex_unlock(&mutex);
  });
  while (!is_done)
    EXPECT_EQ(assay_wait_by_clock_of_day(&condition, &mutex, CLOCK_MONOTONIC, &late), 0);
  pthread_mutex_unlock(&mutex);
  other.join();
}

TEST(OlderGlibc, WaitsOfTheStandardLibraryEnd) {
  std::mutex mutex;
  std::condition_variable condition;
  std::unique_lock lock(mutex);
  EXPECT_FALSE(condition.wait_for(lock, std::chrono::milliseconds(5), [] { return false; }));
}

TEST(OlderGlibc, RandomNumbersDiffer) {
  std::set<uint32_t> numbers;
  for (int i = 0; i < 100; ++i) numbers.insert(arc4random());
  EXPECT_EQ(numbers.size(), 100u);  // equal ones: once in 870000 times
}

}  // namespace
