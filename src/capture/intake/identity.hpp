// SPDX-License-Identifier: Apache-2.0
// Were these bytes seen before? What was taken once is neither read nor stored again.
//
// An address alone is no identity: the allocator hands it out again. A sighting has therefore a
// witness that the host provides (in torch a weak reference and a version counter), or it is found
// by the digest of its content.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "capture/intake/look.hpp"
#include "stats/digest.hpp"

namespace assay::capture {

/// How a tensor lay when its bytes were seen.
struct SeenLayout {
  const void* data = nullptr;
  int64_t element_count = 0;
  DType dtype = DType::Float32;
  bool contiguous = false;
  // Some order of the dimensions has no gaps: the values need neither shape nor strides.
  bool dense = false;
  bool conjugate = false;
  bool negative = false;
  Dims shape;
  Dims strides;

  SeenLayout() = default;
  explicit SeenLayout(const TensorLook& look)
      : data(look.data),
        element_count(look.element_count),
        dtype(look.dtype),
        contiguous(is_contiguous(look)),
        dense(contiguous || is_dense(look)),
        conjugate(look.conjugate),
        negative(look.negative),
        shape(look.sizes()),
        strides(look.steps()) {}

  [[nodiscard]] std::span<const int64_t> sizes() const { return shape.span(); }
  [[nodiscard]] std::span<const int64_t> steps() const { return strides.span(); }

  // Of a TensorLook, or of another SeenLayout.
  template <typename Layout>
  [[nodiscard]] bool has_dims(const Layout& other) const {
    return std::ranges::equal(sizes(), other.sizes()) && std::ranges::equal(steps(), other.steps());
  }
  /// The same type, dims and lazy bits, wherever it lies.
  template <typename Layout>
  [[nodiscard]] bool is_like(const Layout& other) const {
    return dtype == other.dtype && conjugate == other.conjugate && negative == other.negative &&
           has_dims(other);
  }
  /// The same values, perhaps in another order.
  [[nodiscard]] bool has_values_of(const TensorLook& look, bool look_dense) const {
    return data == look.data && element_count == look.element_count && dtype == look.dtype &&
           conjugate == look.conjugate && negative == look.negative &&
           ((dense && look_dense) || has_dims(look));
  }
  /// Of tensors with the same values: whether their elements in C order are the same bytes.
  [[nodiscard]] bool has_payload_of(const TensorLook& look, bool look_contiguous) const {
    return (contiguous && look_contiguous) || has_dims(look);
  }
  /// Where a tensor's elements begin in the C order of these, of which it is a transpose or a
  /// slice; nothing when it is none.
  [[nodiscard]] std::optional<uint64_t> begin_of(const TensorLook& look, uint64_t spanned) const {
    if (!contiguous || dtype != look.dtype || conjugate != look.conjugate ||
        negative != look.negative)
      return std::nullopt;
    const uint64_t element = info(dtype).element_bits / 8;
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const auto at = reinterpret_cast<uintptr_t>(look.data);
    if (at < begin || (at - begin) % element != 0) return std::nullopt;
    const uint64_t size = static_cast<uint64_t>(element_count) * element;
    const uint64_t offset = at - begin;
    return offset <= size && spanned <= size - offset ? std::optional(offset) : std::nullopt;
  }
};

/// Sightings by a key that equal ones share. Open addressing: thousands are looked up in each step.
template <typename Sighting>
class IdentityTable {
 public:
  /// The first sighting under `key` that matches(sighting) accepts; nullptr when there is none.
  /// Holds until the next call.
  template <typename Matches>
  [[nodiscard]] Sighting* find(uint64_t key, Matches matches) {
    const size_t mask = slots_.size() - 1;
    for (size_t at = place_of(key) & mask; slots_[at] != 0; at = (at + 1) & mask) {
      Entry& entry = entries_[slots_[at] - 1];
      if (entry.key == key && matches(entry.sighting)) return &entry.sighting;
    }
    return nullptr;
  }
  void insert(uint64_t key, Sighting sighting) {
    if ((entries_.size() + 1) * 2 > slots_.size()) rebuild(slots_.size() * 2);
    entries_.push_back({key, std::move(sighting)});
    place(static_cast<uint32_t>(entries_.size()));
  }
  template <typename Change>
  void each(Change change) {
    for (Entry& entry : entries_) change(entry.sighting);
  }
  template <typename Keeps>
  void forget_unless(Keeps keeps) {
    std::erase_if(entries_, [&](const Entry& entry) { return !keeps(entry.sighting); });
    rebuild(slots_.size());
  }
  void clear() {
    entries_.clear();
    rebuild(slots_.size());
  }

 private:
  struct Entry {
    uint64_t key;
    Sighting sighting;
  };

  static size_t place_of(uint64_t key) {
    // Allocations are 64-byte aligned; a multiplication spreads what is left over the upper bits.
    return static_cast<size_t>((key >> 4) * 0x9E3779B97F4A7C15ull >> 20);
  }
  void place(uint32_t entry) {
    const size_t mask = slots_.size() - 1;
    size_t at = place_of(entries_[entry - 1].key) & mask;
    while (slots_[at] != 0) at = (at + 1) & mask;
    slots_[at] = entry;
  }
  void rebuild(size_t slot_count) {
    slots_.assign(slot_count, 0);
    for (uint32_t entry = 1; entry <= entries_.size(); ++entry) place(entry);
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(4096, 0);  // entry number + 1; 0 is empty
};

}  // namespace assay::capture
