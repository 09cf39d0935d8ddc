// SPDX-License-Identifier: Apache-2.0
// Values that many hold and few are distinct: each is kept once, and a holder has four bytes.
#pragma once
#include <array>
#include <atomic>
#include <bit>
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

  InternTable() = default;
  ~InternTable() {
    for (Shard& shard : shards_) {
      for (uint32_t i = 0; i < shard.count; ++i) std::destroy_at(&shard.at(i));
      for (uint32_t i = 0; i < kChunks; ++i) {
        T* const chunk = shard.chunks[i].load(std::memory_order_relaxed);
        if (chunk != nullptr) std::allocator<T>().deallocate(chunk, chunk_size(i));
      }
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
    if (index == kMost) throw std::length_error("too many distinct texts");
    const Place place = place_of(index);
    std::atomic<T*>& chunk = shard.chunks[place.chunk];
    if (chunk.load(std::memory_order_relaxed) == nullptr)
      chunk.store(std::allocator<T>().allocate(chunk_size(place.chunk)), std::memory_order_release);
    T* const value =
        std::construct_at(chunk.load(std::memory_order_relaxed) + place.offset, T(key));
    shard.known.insert({value, index});
    ++shard.count;
    return number + kShards * (index + 1);
  }

  /// handle   of add(), in this thread or handed over by another one
  [[nodiscard]] const T& at(Handle handle) const {
    if (handle == 0) return empty_;
    return shards_[handle % kShards].at(handle / kShards - 1);
  }

 private:
  static constexpr uint32_t kShards = 16;
  // The first chunk holds few, for processes that keep few; each of the others as many as all
  // before it. Memory that is not constructed yet is not touched.
  static constexpr uint32_t kFirst = 64;
  static constexpr uint32_t kChunks = 19;
  static constexpr uint32_t kMost = kFirst << (kChunks - 1);

  static constexpr uint32_t chunk_size(uint32_t chunk) {
    return chunk == 0 ? kFirst : kFirst << (chunk - 1);
  }
  struct Place {
    uint32_t chunk;
    uint32_t offset;
  };
  static Place place_of(uint32_t index) {
    const auto chunk = static_cast<uint32_t>(std::bit_width(index / kFirst));
    return {chunk, chunk == 0 ? index : index - chunk_size(chunk)};
  }

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

    [[nodiscard]] T& at(uint32_t index) const {
      const Place place = place_of(index);
      return chunks[place.chunk].load(std::memory_order_acquire)[place.offset];
    }
  };

  T empty_{};
  std::array<Shard, kShards> shards_;
};

}  // namespace assay
