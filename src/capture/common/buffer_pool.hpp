// SPDX-License-Identifier: Apache-2.0
// Memory for copies of tensors, used again and again: fresh pages cost more than the copy itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace assay::capture {

/// Any thread. Invariant: what lies idle here and what is in use together stay within the bound, as
/// long as what is in use alone does; memory in use beyond it is not kept when it comes back.
class BufferPool {
 public:
  using Bytes = std::unique_ptr<std::byte[]>;

  struct Buffer {
    Bytes bytes;  // null: no memory
    uint64_t capacity_bytes = 0;
  };

  explicit BufferPool(uint64_t bound_bytes) : bound_bytes_(bound_bytes) {}

  /// At least `size_bytes`, not initialised.
  [[nodiscard]] Buffer take(uint64_t size_bytes);
  void give_back(Buffer buffer) noexcept;

  /// Bytes that lie idle.
  [[nodiscard]] uint64_t idle_bytes() const;
  /// Bytes idle and in use.
  [[nodiscard]] uint64_t total_bytes() const;

 private:
  // Small ones are cheap to allocate and would only fill the map.
  static constexpr uint64_t kSmallBytes = 64 << 10;

  void shrink_to(uint64_t total_bytes);

  const uint64_t bound_bytes_;
  mutable std::mutex mutex_;
  std::multimap<uint64_t, Bytes> idle_;  // by capacity
  uint64_t idle_bytes_ = 0;
  uint64_t used_bytes_ = 0;
};

}  // namespace assay::capture
