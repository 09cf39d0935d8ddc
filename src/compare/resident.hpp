// SPDX-License-Identifier: Apache-2.0
// Keeps the resident part of large mapped files small while they are compared.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <thread>

#include "base/bytes.hpp"

namespace assay::compare {

/// Watches the file pages this process holds and gives those of the registered ranges back to the
/// page cache when they exceed the limit. Works beside any kernel: a page that is still needed
/// comes back by a minor fault, so only speed can suffer, never a value.
///
/// Invariant: a registered range is a shared read-only mapping of a file; anything else (inflated
/// entries, test buffers) is refused by watch(), because dropping such pages would lose data.
class ResidentLimit {
 public:
  explicit ResidentLimit(uint64_t max_bytes);
  ~ResidentLimit();
  ResidentLimit(const ResidentLimit&) = delete;
  ResidentLimit& operator=(const ResidentLimit&) = delete;

  /// Registers a range for the lifetime of the result. Small ranges and heap memory are ignored.
  class Watch {
   public:
    Watch() = default;
    Watch(ResidentLimit* owner, std::list<ByteSpan>::iterator range)
        : owner_(owner), range_(range) {}
    Watch(Watch&& other) noexcept;
    Watch& operator=(Watch&&) = delete;
    ~Watch();
    /// False when the range was refused.
    [[nodiscard]] bool is_active() const { return owner_ != nullptr; }

   private:
    ResidentLimit* owner_ = nullptr;
    std::list<ByteSpan>::iterator range_;
  };
  [[nodiscard]] Watch watch(ByteSpan range);

 private:
  void run();

  const uint64_t max_bytes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<ByteSpan> ranges_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace assay::compare
