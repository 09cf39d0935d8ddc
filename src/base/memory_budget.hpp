// SPDX-License-Identifier: Apache-2.0
// Working memory that several threads share.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace assay {

/// Bytes in flight. Tickets 0, 1, 2 ... get their share in that order, so that none starves; one
/// that is larger than the whole budget runs alone.
class MemoryBudget {
 public:
  explicit MemoryBudget(uint64_t bytes) : bytes_(std::max<uint64_t>(bytes, 1)) {}

  /// Waits. Every ticket must be asked for once, or those after it wait for ever.
  void acquire(size_t ticket, uint64_t bytes) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, [&] { return ticket == next_ && (used_ == 0 || used_ + bytes <= bytes_); });
    used_ += bytes;
    ++next_;
    wake_.notify_all();
  }
  void release(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    used_ -= bytes;
    wake_.notify_all();
  }

 private:
  const uint64_t bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  uint64_t used_ = 0;
  size_t next_ = 0;
};

}  // namespace assay
