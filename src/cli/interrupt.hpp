// SPDX-License-Identifier: Apache-2.0
// Ctrl-C while the library works: the first one asks it to stop, the second ends the process at
// once.
#pragma once
#include <atomic>
#include <csignal>

#include "base/interruption.hpp"
#include "base/result.hpp"
#include "base/temporary_files.hpp"

namespace assay::cli {

inline constexpr int kInterrupted = 130;  // 128 + SIGINT, what a shell reports

/// Set by the first Ctrl-C under an InterruptGuard.
[[nodiscard]] inline std::atomic<bool>& interrupted() {
  static std::atomic<bool> flag{false};
  return flag;
}

class InterruptGuard {
 public:
  InterruptGuard() {
    interrupted() = false;
    previous_ = std::signal(SIGINT, on_interrupt);
  }
  ~InterruptGuard() { std::signal(SIGINT, previous_ == SIG_ERR ? SIG_DFL : previous_); }
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

 private:
  static void on_interrupt(int) {
    interrupted() = true;
    std::signal(SIGINT, end_by_signal);
  }
  void (*previous_)(int);
};

/// Under an InterruptGuard: what `work` gives; after Ctrl-C Errc::Interrupted, within a block of
/// whatever is being read.
template <typename Work>
auto until_interrupted(Work&& work) -> decltype(work()) {
  try {
    const InterruptScope scope(&interrupted());
    return work();
  } catch (const Interrupted&) {
    return fail(Errc::Interrupted, "interrupted");
  }
}

}  // namespace assay::cli
