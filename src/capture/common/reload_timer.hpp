// SPDX-License-Identifier: Apache-2.0
// When a configuration file is looked at again: at most so often, however often a program asks.
#pragma once
#include <atomic>
#include <cstdint>
#include <ctime>

namespace assay::capture {

/// Any thread.
class ReloadTimer {
 public:
  static constexpr int64_t kDefaultMs = 5000;

  /// Begins a new interval. Also how the first one begins.
  void restart(int64_t interval_ms) noexcept {
    next_ms_.store(now_ms() + interval_ms, std::memory_order_relaxed);
  }
  /// A few nanoseconds: the clock is the coarse one.
  [[nodiscard]] bool is_due() const noexcept {
    return now_ms() >= next_ms_.load(std::memory_order_relaxed);
  }

 private:
  static int64_t now_ms() noexcept {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
  }
  std::atomic<int64_t> next_ms_{0};
};

}  // namespace assay::capture
