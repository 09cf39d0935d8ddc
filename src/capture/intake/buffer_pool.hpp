// SPDX-License-Identifier: Apache-2.0
// Memory for copies of tensors, used again and again: fresh pages cost more than the copy itself.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>

namespace assay::capture {

/// Any thread. Invariant: what lies idle here and what is in use together stay within the bound, as
/// long as what is in use alone does; memory in use beyond it is not kept when it comes back.
class BufferPool {
 public:
  struct GiveBack {
    BufferPool* pool;
    uint64_t capacity_bytes;
    void operator()(std::byte* bytes) const noexcept { pool->give_back(bytes, capacity_bytes); }
  };
  /// Memory from the pool, and back to it, which it does not outlive.
  struct Buffer {
    std::unique_ptr<std::byte[], GiveBack> bytes;  // null: there was no memory
    uint64_t size_bytes = 0;

    [[nodiscard]] std::span<std::byte> span() const { return {bytes.get(), size_bytes}; }
    [[nodiscard]] uint64_t capacity_bytes() const { return bytes.get_deleter().capacity_bytes; }
  };

  explicit BufferPool(uint64_t bound_bytes) : bound_bytes_(bound_bytes) {}

  /// `size_bytes`, not initialised.
  [[nodiscard]] Buffer take(uint64_t size_bytes);

  /// Bytes that lie idle.
  [[nodiscard]] uint64_t idle_bytes() const;
  /// Bytes idle and in use.
  [[nodiscard]] uint64_t total_bytes() const;

 private:
  using Bytes = std::unique_ptr<std::byte[]>;
  // Small ones are cheap to allocate and would only fill the map.
  static constexpr uint64_t kSmallBytes = 64 << 10;

  void give_back(std::byte* memory, uint64_t capacity_bytes) noexcept;
  void shrink_to(uint64_t total_bytes);

  const uint64_t bound_bytes_;
  mutable std::mutex mutex_;
  std::multimap<uint64_t, Bytes> idle_;  // by capacity
  uint64_t idle_bytes_ = 0;
  uint64_t used_bytes_ = 0;
};

}  // namespace assay::capture
