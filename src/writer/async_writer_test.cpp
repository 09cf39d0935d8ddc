// SPDX-License-Identifier: Apache-2.0
#include "writer/async_writer.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

namespace assay::writer {
namespace {

TEST(AsyncWriter, RunsJobsInOrder) {
  std::vector<int> seen;  // touched by the writer thread only, read after close()
  AsyncWriter writer;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(writer.admit(1));
    ASSERT_TRUE(writer.submit(1, [&seen, i]() -> Status {
      seen.push_back(i);
      return {};
    }));
  }
  writer.close();
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(writer.counters().jobs_done, 1000u);
  EXPECT_EQ(writer.counters().bytes_done, 1000u);
}

TEST(AsyncWriter, HoldsNoMoreBytesThanTheBound) {
  std::atomic<int64_t> held{0};
  std::atomic<int64_t> most{0};
  AsyncWriter writer({.queue_bytes = 100});
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(writer.admit(30));
    const int64_t now = held += 30;
    most = std::max(most.load(), now);
    writer.submit(30, [&held]() -> Status {
      held -= 30;
      return {};
    });
  }
  writer.close();
  EXPECT_LE(most.load(), 100);
  EXPECT_EQ(held.load(), 0);
}

TEST(AsyncWriter, AdmitsOneJobLargerThanTheQueueWhenItIsEmpty) {
  AsyncWriter writer({.queue_bytes = 10});
  ASSERT_TRUE(writer.admit(1000));
  EXPECT_TRUE(writer.would_wait(1));
  EXPECT_EQ(writer.held_bytes(), 1000u);
  writer.submit(1000, []() -> Status { return {}; });
  writer.flush();
  EXPECT_EQ(writer.held_bytes(), 0u);
  EXPECT_FALSE(writer.would_wait(1000));
}

TEST(AsyncWriter, WaitsWhenFullAndCountsTheTime) {
  std::promise<void> gate;
  AsyncWriter writer({.queue_bytes = 10});
  ASSERT_TRUE(writer.admit(10));
  writer.submit(10, [opened = gate.get_future().share()]() -> Status {
    opened.wait();
    return {};
  });
  std::thread opener([&] {
    while (!writer.would_wait(1)) std::this_thread::yield();
    gate.set_value();
  });
  EXPECT_TRUE(writer.admit(5));  // returns only because the opener let the first job end
  writer.release(5);
  opener.join();
  writer.close();
  EXPECT_GE(writer.counters().waited_ms, 0.0);
  EXPECT_EQ(writer.counters().dropped, 0u);
}

TEST(AsyncWriter, DropsAndCountsWhenToldSo) {
  std::promise<void> gate;
  AsyncWriter writer({.queue_bytes = 10, .on_full = FullPolicy::Drop});
  ASSERT_TRUE(writer.admit(8));
  writer.submit(8, [opened = gate.get_future().share()]() -> Status {
    opened.wait();
    return {};
  });
  EXPECT_FALSE(writer.would_wait(4));
  EXPECT_FALSE(writer.admit(4));
  EXPECT_FALSE(writer.admit(3));
  gate.set_value();
  writer.close();
  EXPECT_EQ(writer.counters().dropped, 2u);
  EXPECT_EQ(writer.counters().dropped_bytes, 7u);
}

TEST(AsyncWriter, KeepsTheFirstErrorAndRunsOn) {
  int ran = 0;
  AsyncWriter writer;
  writer.submit(0, []() -> Status { return fail(Errc::NoSpace, "full"); });
  writer.submit(0, []() -> Status { throw std::runtime_error("thrown in a job"); });
  writer.submit(0, [&ran]() -> Status {
    ++ran;
    return {};
  });
  writer.close();
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(writer.counters().jobs_failed, 2u);
  ASSERT_TRUE(writer.counters().first_error.has_value());
  EXPECT_EQ(writer.counters().first_error->code, Errc::NoSpace);
}

TEST(AsyncWriter, SurvivesJobsThatHaveNoMemory) {
  AsyncWriter writer;
  writer.submit(0, []() -> Status { throw std::bad_alloc(); });
  writer.submit(0, []() -> Status { throw 7; });
  writer.submit(0, []() -> Status { return fail(Errc::NoSpace, "full"); });
  writer.close();
  EXPECT_EQ(writer.counters().jobs_failed, 3u);
  ASSERT_TRUE(writer.counters().first_error.has_value());
  EXPECT_EQ(writer.counters().first_error->message, "out of memory in the writer");
}

TEST(AsyncWriter, RefusesAfterClose) {
  AsyncWriter writer;
  writer.close();
  writer.close();
  EXPECT_FALSE(writer.admit(1));
  EXPECT_FALSE(writer.submit(0, []() -> Status { return {}; }));
}

TEST(AsyncWriter, IsDeadInAForkedChildAndAliveInTheParent) {
  AsyncWriter writer;
  std::promise<void> gate;
  writer.submit(0, [opened = gate.get_future().share()]() -> Status {
    opened.wait();
    return {};
  });
  const pid_t child = fork();
  if (child == 0) {
    // Every call must return at once although the thread does not exist and the mutex may be
    // locked.
    const bool silent =
        !writer.alive() && !writer.admit(1) && !writer.submit(0, [] { return Status{}; });
    writer.flush();
    writer.close();
// TSan ends a forked child that starts a thread; ASan of g++ 12 can deadlock in its own allocator
// there, whose locks the fork may have copied in the middle of another thread's allocation.
#if !defined(ASSAY_SANITIZED)
    {
      AsyncWriter own;  // a writer of the child's own works
      own.submit(0, [] { return Status{}; });
    }
#endif
    _exit(silent ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  gate.set_value();
  writer.flush();
  EXPECT_EQ(writer.counters().jobs_done, 1u);
}

TEST(AsyncWriter, RunsWithAllSignalsBlockedAndAName) {
  sigset_t seen;
  sigemptyset(&seen);
  char name[16] = {};
  AsyncWriter writer({.thread_name = "assay-test"});
  writer.submit(0, [&]() -> Status {
    pthread_sigmask(SIG_BLOCK, nullptr, &seen);
    pthread_getname_np(pthread_self(), name, sizeof(name));
    return {};
  });
  writer.close();
  EXPECT_EQ(sigismember(&seen, SIGINT), 1);
  EXPECT_EQ(sigismember(&seen, SIGTERM), 1);
  EXPECT_STREQ(name, "assay-test");
}

}  // namespace
}  // namespace assay::writer
