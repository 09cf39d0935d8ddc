// SPDX-License-Identifier: Apache-2.0
// How many bytes the threads of a conversion hold together.
#pragma once
#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace assay::cli {

/// Invariant: the shares in use never exceed the limit together. A share larger than the limit
/// counts as the limit, so that its owner works alone.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t limit_bytes) : limit_(limit_bytes) {}

  class Share {
   public:
    /// Waits until there is room.
    Share(ByteBudget& budget, uint64_t size_bytes)
        : budget_(budget), size_(std::min(size_bytes, budget.limit_)) {
      std::unique_lock lock(budget_.mutex_);
      budget_.freed_.wait(lock, [this] { return budget_.used_ + size_ <= budget_.limit_; });
      budget_.used_ += size_;
    }
    ~Share() {
      {
        const std::lock_guard lock(budget_.mutex_);
        budget_.used_ -= size_;
      }
      budget_.freed_.notify_all();
    }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;

   private:
    ByteBudget& budget_;
    const uint64_t size_;
  };

 private:
  const uint64_t limit_;
  uint64_t used_ = 0;
  std::mutex mutex_;
  std::condition_variable freed_;
};

}  // namespace assay::cli
