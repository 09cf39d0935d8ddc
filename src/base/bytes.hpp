// SPDX-License-Identifier: Apache-2.0
// Bytes from outside: checked arithmetic on sizes, unaligned little-endian loads, a bounds-checked
// cursor.
#pragma once
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.hpp"

namespace assay {

static_assert(std::endian::native == std::endian::little, "every format here is little-endian");

using ByteSpan = std::span<const std::byte>;
/// Takes the next bytes of a content that is made piece by piece.
using ByteSink = std::function<Status(ByteSpan bytes)>;
/// Hands a content to a sink.
using PieceWriter = std::function<Status(const ByteSink& sink)>;

/// *out = a * b (or a + b); true when the result does not fit, and then *out must not be used.
template <std::integral T>
[[nodiscard]] bool mul_overflows(T a, T b, T* out) {
  return __builtin_mul_overflow(a, b, out);
}
template <std::integral T>
[[nodiscard]] bool add_overflows(T a, T b, T* out) {
  return __builtin_add_overflow(a, b, out);
}

[[nodiscard]] inline uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

/// The value at `bytes`, which need not be aligned.
template <typename T>
  requires std::is_trivially_copyable_v<T>
[[nodiscard]] T load(const void* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

/// Appends the bytes of a value to a string used as a byte buffer.
template <typename T>
  requires std::is_trivially_copyable_v<T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

[[nodiscard]] inline std::string_view as_text(ByteSpan bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
[[nodiscard]] inline ByteSpan as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

/// A cursor over bytes that were not written by us. Every read is checked; a failed read says at
/// which offset.
class ByteReader {
 public:
  explicit ByteReader(ByteSpan bytes, uint64_t start = 0) : bytes_(bytes), offset_(start) {}

  [[nodiscard]] uint64_t offset() const { return offset_; }
  [[nodiscard]] uint64_t remaining() const {
    return offset_ > bytes_.size() ? 0 : bytes_.size() - offset_;
  }

  /// errors  Truncated with the offset of the read
  [[nodiscard]] Result<ByteSpan> read_bytes(uint64_t count) {
    if (count > remaining()) {
      return fail(
          Errc::Truncated,
          "needs " + std::to_string(count) + " bytes, " + std::to_string(remaining()) + " are left",
          offset_);
    }
    const ByteSpan result = bytes_.subspan(offset_, count);
    offset_ += count;
    return result;
  }
  template <typename T>
  [[nodiscard]] Result<T> read() {
    ASSAY_TRY(const ByteSpan raw, read_bytes(sizeof(T)));
    return load<T>(raw.data());
  }
  [[nodiscard]] Status skip(uint64_t count) {
    ASSAY_TRY_STATUS(read_bytes(count));
    return {};
  }

 private:
  ByteSpan bytes_;
  uint64_t offset_;
};

}  // namespace assay
