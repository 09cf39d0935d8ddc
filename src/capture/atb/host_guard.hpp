// SPDX-License-Identifier: Apache-2.0
// What keeps a host from noticing the probe: state it finds again as it left it, locks that a fork
// does not leave locked, lines on stderr only where stderr still is.
#pragma once
#include <cstdint>
#include <string_view>

#include <atomic>
#include <cfenv>
#include <csignal>

#include "base/log.hpp"

namespace assay::capture::atb {

/// Set while a call of ours runs on this thread: what it calls must not come back into us, and an
/// exit() from a signal handler in the middle of it must not wait for locks that it holds.
/// initial-exec: the library is preloaded, so its block is there in every thread from the start.
extern constinit thread_local bool inside_probe __attribute__((tls_model("initial-exec")));

/// errno, cancellation and the recursion flag around the body of an exported function.
class HostState {
 public:
  HostState() noexcept;
  ~HostState();
  HostState(const HostState&) = delete;
  HostState& operator=(const HostState&) = delete;

 private:
  int errno_;
  int cancel_state_ = 0;
};

/// The default floating-point environment around our arithmetic, the host's afterwards: a host with
/// traps on must not stop at the NaN of a tensor, nor its rounding mode change a statistic.
class FloatingPointState {
 public:
  FloatingPointState() noexcept {
    std::feholdexcept(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatingPointState() { std::fesetenv(&before_); }
  FloatingPointState(const FloatingPointState&) = delete;
  FloatingPointState& operator=(const FloatingPointState&) = delete;

 private:
  std::fenv_t before_{};
};

/// A write beyond RLIMIT_FSIZE raises SIGXFSZ, which ends a host that does not expect it. On the
/// writer's thread all signals are blocked; this is for writes on the host's own threads.
class FileSizeSignalBlocked {
 public:
  FileSizeSignalBlocked() noexcept;
  ~FileSizeSignalBlocked();
  FileSizeSignalBlocked(const FileSizeSignalBlocked&) = delete;
  FileSizeSignalBlocked& operator=(const FileSizeSignalBlocked&) = delete;

 private:
  sigset_t before_{};
  bool was_pending_ = false;
};

/// A lock for rare work. In a forked child a lock that another thread held in the parent counts as
/// free.
class ForkLock {
 public:
  void lock() noexcept;
  [[nodiscard]] bool try_lock() noexcept;
  void unlock() noexcept { holder_.store(0, std::memory_order_release); }

 private:
  std::atomic<uint32_t> holder_{0};  // fork generation + 1
};

/// Remembers which file stderr is. Once, at the first call.
void remember_stderr() noexcept;
/// One line on stderr, unless the host has closed it or put another file in its place.
void tell(LogLevel level, std::string_view message) noexcept;
/// Lines below this level are not told; ATB_AIT_LOG_LEVEL.
void set_told_level(int atb_log_level) noexcept;

}  // namespace assay::capture::atb
