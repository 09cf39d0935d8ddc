// SPDX-License-Identifier: Apache-2.0
// What keeps a host from noticing the probe: state it finds again as it left it, locks that a fork
// does not leave locked, lines on stderr only where stderr still is.
#pragma once
#include <cstdint>
#include <string_view>

#include <atomic>
#include <cfenv>
#include <csignal>
#include <exception>
#include <mutex>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/log.hpp"

namespace assay::capture {

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
#if defined(__x86_64__)
  // The x87 unit is not touched: our arithmetic is SSE's, and saving that unit costs more than a
  // small tensor's statistics.
  FloatingPointState() noexcept : before_(_mm_getcsr()) { _mm_setcsr(kDefault); }
  ~FloatingPointState() { _mm_setcsr(before_); }
#else
  FloatingPointState() noexcept {
    std::feholdexcept(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatingPointState() { std::fesetenv(&before_); }
#endif
  FloatingPointState(const FloatingPointState&) = delete;
  FloatingPointState& operator=(const FloatingPointState&) = delete;

 private:
#if defined(__x86_64__)
  // All exceptions masked, to nearest, no flushing to zero.
  static constexpr unsigned kDefault = 0x1f80;
  unsigned before_;
#else
  std::fenv_t before_{};
#endif
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

/// Holds a ForkLock as long as it lives.
class Held {
 public:
  explicit Held(ForkLock* lock) noexcept : lock_(lock) { lock_->lock(); }
  /// After try_lock().
  Held(ForkLock* lock, std::adopt_lock_t) noexcept : lock_(lock) {}
  ~Held() { lock_->unlock(); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  ForkLock* lock_;
};

/// The body of an exported function, or of anything else of ours that the host's thread runs:
/// nothing leaves it, and nothing comes back into it.
/// on_failure   noexcept (const char* where, const char* reason): switches the capture off
template <typename Body, typename OnFailure>
void run_guarded(const char* where, Body body, OnFailure on_failure) noexcept {
  if (inside_probe) return;
  const HostState host_state;
  try {
    body();
  } catch (const std::exception& exception) {
    on_failure(where, exception.what());
  } catch (...) {
    on_failure(where, "unknown exception");
  }
}

/// "<where>: <reason>; capture off, the run continues", also without memory.
void tell_switched_off(std::string_view where, std::string_view reason) noexcept;

/// Remembers which file stderr is. Once, at the first call.
void remember_stderr() noexcept;
/// One line on stderr, unless the host has closed it or put another file in its place.
void tell(LogLevel level, std::string_view message) noexcept;
/// Lines below this level are not told; ATB_AIT_LOG_LEVEL.
void set_told_level(int atb_log_level) noexcept;

}  // namespace assay::capture
