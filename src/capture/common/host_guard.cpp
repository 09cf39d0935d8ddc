// SPDX-License-Identifier: Apache-2.0
// State of the host that is put back, and lines that go to stderr only while it is the file that it
// was.
#include "capture/common/host_guard.hpp"

#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <string>

#include "writer/fork_guard.hpp"

namespace assay::capture {
namespace {

// Written once before any line is told.
bool stderr_known = false;
dev_t stderr_device = 0;
ino_t stderr_inode = 0;

std::atomic<int> told_level{1};

bool stderr_is_unchanged() {
  struct stat info{};
  return stderr_known && ::fstat(STDERR_FILENO, &info) == 0 && info.st_dev == stderr_device &&
         info.st_ino == stderr_inode;
}

// 0 debug, 1 info, 2 warning, 3 error, 4 fatal, 5 critical: of ours, only the last two of the first
// four exist.
int number_of(LogLevel level) { return static_cast<int>(level); }

}  // namespace

constinit thread_local bool inside_probe = false;

HostState::HostState() noexcept : errno_(errno) {
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
  inside_probe = true;
}

HostState::~HostState() {
  inside_probe = false;
  int ignored = 0;
  pthread_setcancelstate(cancel_state_, &ignored);
  errno = errno_;
}

FileSizeSignalBlocked::FileSizeSignalBlocked() noexcept {
  sigset_t pending;
  sigpending(&pending);
  was_pending_ = sigismember(&pending, SIGXFSZ) == 1;
  sigset_t size_signal;
  sigemptyset(&size_signal);
  sigaddset(&size_signal, SIGXFSZ);
  pthread_sigmask(SIG_BLOCK, &size_signal, &before_);
}

FileSizeSignalBlocked::~FileSizeSignalBlocked() {
  sigset_t pending;
  sigpending(&pending);
  if (!was_pending_ && sigismember(&pending, SIGXFSZ) == 1) {
    sigset_t size_signal;
    sigemptyset(&size_signal);
    sigaddset(&size_signal, SIGXFSZ);
    constexpr timespec kNoWait{};
    sigtimedwait(&size_signal, nullptr, &kNoWait);
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool ForkLock::try_lock() noexcept {
  const uint32_t own = writer::fork_generation() + 1;
  uint32_t holder = holder_.load(std::memory_order_relaxed);
  return holder != own && holder_.compare_exchange_strong(holder, own, std::memory_order_acquire);
}

void ForkLock::lock() noexcept {
  while (!try_lock()) sched_yield();
}

void remember_stderr() noexcept {
  struct stat info{};
  if (::fstat(STDERR_FILENO, &info) != 0) return;
  stderr_device = info.st_dev;
  stderr_inode = info.st_ino;
  stderr_known = true;
}

void set_told_level(int atb_log_level) noexcept {
  told_level.store(atb_log_level, std::memory_order_relaxed);
}

void tell(LogLevel level, std::string_view message) noexcept {
  if (number_of(level) < told_level.load(std::memory_order_relaxed)) return;
  if (stderr_is_unchanged()) log_line(level, message);
}

void tell_switched_off(std::string_view where, std::string_view reason) noexcept {
  try {
    tell(LogLevel::Error,
         std::string(where) + ": " + std::string(reason) + "; capture off, the run continues");
  } catch (const std::exception&) {
    tell(LogLevel::Error, "out of memory; capture off, the run continues");
  }
}

}  // namespace assay::capture
