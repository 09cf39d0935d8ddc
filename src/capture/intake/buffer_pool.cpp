// SPDX-License-Identifier: Apache-2.0
// Buffers by capacity: the smallest that fits is taken, and those that are too many go back to the
// system.
#include "capture/intake/buffer_pool.hpp"

#include <exception>
#include <iterator>
#include <new>
#include <utility>

namespace assay::capture {

BufferPool::Buffer BufferPool::take(uint64_t size_bytes) {
  const auto buffer = [&](Bytes bytes, uint64_t capacity_bytes) {
    return Buffer{{bytes.release(), GiveBack{this, capacity_bytes}}, size_bytes};
  };
  const std::lock_guard lock(mutex_);
  // The smallest that fits, unless it would waste more than half of itself.
  const auto found = idle_.lower_bound(size_bytes);
  if (found != idle_.end() && found->first / 2 <= size_bytes && size_bytes >= kSmallBytes) {
    const uint64_t capacity_bytes = found->first;
    Bytes bytes = std::move(found->second);
    idle_.erase(found);
    idle_bytes_ -= capacity_bytes;
    used_bytes_ += capacity_bytes;
    return buffer(std::move(bytes), capacity_bytes);
  }
  used_bytes_ += size_bytes;
  shrink_to(bound_bytes_);
  Bytes bytes(new (std::nothrow) std::byte[size_bytes]);
  if (bytes == nullptr) used_bytes_ -= size_bytes;
  return buffer(std::move(bytes), size_bytes);
}

void BufferPool::give_back(std::byte* memory, uint64_t capacity_bytes) noexcept {
  Bytes bytes(memory);
  const std::lock_guard lock(mutex_);
  used_bytes_ -= capacity_bytes;
  if (capacity_bytes < kSmallBytes || used_bytes_ + idle_bytes_ + capacity_bytes > bound_bytes_)
    return;
  try {
    idle_.emplace(capacity_bytes, std::move(bytes));
    idle_bytes_ += capacity_bytes;
  } catch (const std::exception&) {
    // No memory for the entry: the buffer goes back to the system instead.
  }
}

uint64_t BufferPool::idle_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_;
}

uint64_t BufferPool::total_bytes() const {
  const std::lock_guard lock(mutex_);
  return idle_bytes_ + used_bytes_;
}

void BufferPool::shrink_to(uint64_t total_bytes) {
  while (!idle_.empty() && idle_bytes_ + used_bytes_ > total_bytes) {
    const auto largest = std::prev(idle_.end());
    idle_bytes_ -= largest->first;
    idle_.erase(largest);
  }
}

}  // namespace assay::capture
