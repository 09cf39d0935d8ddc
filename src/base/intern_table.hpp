// SPDX-License-Identifier: Apache-2.0
// Values that many hold and few are distinct: each is kept once, and a holder has four bytes.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <unordered_set>

namespace assay {

/// A table that only grows. Handle 0 is T().
///
/// Hash, Equal   of T and of whatever add() is given; transparent
/// Invariant     a value never moves, so what at() returns stays valid; at() takes no lock
template <typename T, typename Hash, typename Equal = std::equal_to<>>
class InternTable {
 public:
  using Handle = uint32_t;

  InternTable() {
    for (Shard& shard : shards_) shard.known.reserve(64);
  }
  ~InternTable() {
    for (Shard& shard : shards_) {
      for (auto& chunk : shard.chunks) delete[] chunk.load(std::memory_order_relaxed);
    }
  }
  InternTable(const InternTable&) = delete;
  InternTable& operator=(const InternTable&) = delete;

  /// Thread-safe.
  /// throws  std::length_error when there are 2^28 values
  template <typename Key>
  [[nodiscard]] Handle add(const Key& key) {
    if (Equal()(key, empty_)) return 0;
    const size_t hash = Hash()(key);
    // The shard's own table looks at the low bits.
    const auto number = static_cast<uint32_t>((hash >> 20) % kShards);
    Shard& shard = shards_[number];
    const std::lock_guard lock(shard.mutex);
    if (const auto found = shard.known.find(key); found != shard.known.end())
      return number + kShards * (found->index + 1);
    const uint32_t index = shard.count;
    if (index / kChunk == kChunks) throw std::length_error("too many distinct texts");
    std::atomic<T*>& chunk = shard.chunks[index / kChunk];
    if (index % kChunk == 0) chunk.store(new T[kChunk], std::memory_order_release);
    T& value = chunk.load(std::memory_order_relaxed)[index % kChunk];
    value = T(key);
    shard.known.insert({&value, index});
    ++shard.count;
    return number + kShards * (index + 1);
  }

  /// handle   of add(), in this thread or handed over by another one
  [[nodiscard]] const T& at(Handle handle) const {
    if (handle == 0) return empty_;
    const uint32_t index = handle / kShards - 1;
    return shards_[handle % kShards].chunks[index / kChunk].load(
        std::memory_order_acquire)[index % kChunk];
  }

 private:
  static constexpr uint32_t kShards = 16;
  static constexpr uint32_t kChunk = 4096;
  static constexpr uint32_t kChunks = 4096;

  struct Entry {
    const T* value;
    uint32_t index;
  };
  struct EntryHash {
    using is_transparent = void;
    size_t operator()(const Entry& entry) const { return Hash()(*entry.value); }
    template <typename Key>
    size_t operator()(const Key& key) const {
      return Hash()(key);
    }
  };
  struct EntryEqual {
    using is_transparent = void;
    bool operator()(const Entry& a, const Entry& b) const { return a.value == b.value; }
    template <typename Key>
    bool operator()(const Entry& a, const Key& b) const {
      return Equal()(*a.value, b);
    }
    template <typename Key>
    bool operator()(const Key& a, const Entry& b) const {
      return Equal()(a, *b.value);
    }
  };
  struct Shard {
    std::mutex mutex;
    std::unordered_set<Entry, EntryHash, EntryEqual> known;
    std::array<std::atomic<T*>, kChunks> chunks{};
    uint32_t count = 0;
  };

  T empty_{};
  std::array<Shard, kShards> shards_;
};

}  // namespace assay
