// SPDX-License-Identifier: Apache-2.0
// A short list of int64, used for shapes and strides: no allocation up to eight dimensions.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace assay {

class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<int64_t> values)
      : Dims(std::span<const int64_t>(values.begin(), values.size())) {}
  explicit Dims(std::span<const int64_t> values) {
    resize(values.size());
    std::copy(values.begin(), values.end(), data());
  }

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] const int64_t* data() const {
    return size_ <= kInline ? inline_.data() : heap_.data();
  }
  [[nodiscard]] int64_t* data() { return size_ <= kInline ? inline_.data() : heap_.data(); }
  [[nodiscard]] const int64_t* begin() const { return data(); }
  [[nodiscard]] const int64_t* end() const { return data() + size_; }
  [[nodiscard]] int64_t operator[](size_t i) const { return data()[i]; }
  [[nodiscard]] int64_t& operator[](size_t i) { return data()[i]; }
  [[nodiscard]] std::span<const int64_t> span() const { return {data(), size_}; }

  void resize(size_t count) {
    if (count > kInline) {
      std::vector<int64_t> grown(count, 0);
      std::copy(begin(), begin() + std::min(size_, count), grown.begin());
      heap_ = std::move(grown);
    } else if (size_ > kInline) {
      std::copy(heap_.begin(), heap_.begin() + static_cast<std::ptrdiff_t>(count), inline_.begin());
    }
    for (size_t i = size_; i < count && count <= kInline; ++i) inline_[i] = 0;
    size_ = count;
  }
  void push_back(int64_t value) {
    resize(size_ + 1);
    data()[size_ - 1] = value;
  }
  friend bool operator==(const Dims& a, const Dims& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  static constexpr size_t kInline = 8;
  std::array<int64_t, kInline> inline_{};
  std::vector<int64_t> heap_;
  size_t size_ = 0;
};

/// Product of the sizes, 1 for a 0-d shape. Nothing when a size is negative or the product exceeds
/// 2^63 - 1.
[[nodiscard]] std::optional<int64_t> element_count(std::span<const int64_t> shape);
[[nodiscard]] inline std::optional<int64_t> element_count(const Dims& shape) {
  return element_count(shape.span());
}

/// Strides in elements of a C-contiguous tensor; size-0 dimensions count as 1, as torch does.
[[nodiscard]] Dims contiguous_strides(const Dims& shape);

/// "[1, 64, 512]", the text of report columns; "[]" for 0-d.
[[nodiscard]] std::string list_text(std::span<const int64_t> dims);
[[nodiscard]] inline std::string shape_text(const Dims& shape) { return list_text(shape.span()); }
/// Python's tuple: "()", "(5,)", "(1, 5)".
[[nodiscard]] std::string tuple_text(std::span<const int64_t> dims);

/// How the shapes of two tensors of equal value count relate. A metric is meaningful for all but
/// Different, but a report names everything below Merged.
enum class ShapeRelation : uint8_t {
  Same,
  Squeezed,  // equal after dropping axes of size 1
  Merged,    // equal after joining neighbouring leading axes: [batch, seq, hidden] and [tokens,
             // hidden]
  Reshaped,  // equal number of elements only
  Different,
};
[[nodiscard]] ShapeRelation shape_relation(const Dims& golden, const Dims& mine);

}  // namespace assay
