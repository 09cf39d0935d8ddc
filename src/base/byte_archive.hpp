// SPDX-License-Identifier: Apache-2.0
// Objects as bytes for another process of the same version, and back. A type says once what of it
// goes along, as transfer(archive, object), for both directions.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/interned_text.hpp"
#include "base/rare_text.hpp"
#include "base/rare_value.hpp"

namespace assay {

/// Appends what it is given.
class ByteWriter {
 public:
  template <typename... Values>
  void operator()(const Values&... values) {
    (put(values), ...);
  }
  [[nodiscard]] const std::string& bytes() const { return out_; }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  template <typename T>
  void put(const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      append(out_, value);
    } else {
      transfer(*this, value);
    }
  }
  void put(const std::string& text) {
    append(out_, static_cast<uint32_t>(text.size()));
    out_ += text;
  }
  void put(InternedText text) { put(text.str()); }
  void put(const RareText& text) { put(text.str()); }
  template <typename T>
  void put(const RareValue<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename T>
  void put(const RareVector<T>& values) {
    put(values.values());
  }
  template <typename T, size_t N>
  void put(const std::array<T, N>& values) {
    for (const T& value : values) put(value);
  }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <typename T>
  void put(const std::vector<T>& values) {
    append(out_, static_cast<uint64_t>(values.size()));
    for (const T& value : values) put(value);
  }

  std::string out_;
};

/// Fills in what it is given from bytes that a ByteWriter wrote, and checks all of it.
class ArchiveReader {
 public:
  explicit ArchiveReader(ByteSpan bytes) : bytes_(bytes), reader_(bytes) {}

  template <typename... Values>
  void operator()(Values&... values) {
    (get(values), ...);
  }
  /// Not all bytes were there, or a number was none of its type's: then the rest is not filled in.
  [[nodiscard]] Status status() const {
    if (is_good_) return {};
    return fail(Errc::Invalid, "is not what this version of assay writes", reader_.offset());
  }
  [[nodiscard]] bool is_good() const { return is_good_; }
  [[nodiscard]] bool is_at_end() const { return reader_.remaining() == 0; }
  /// The next bytes as they are; empty when there are not so many.
  [[nodiscard]] ByteSpan raw(uint64_t count) {
    const Result<ByteSpan> bytes = reader_.read_bytes(count);
    if (!bytes) is_good_ = false;
    return bytes ? *bytes : ByteSpan();
  }
  void fail_now() { is_good_ = false; }
  /// What was not read yet.
  [[nodiscard]] ByteSpan rest() const { return bytes_.subspan(reader_.offset()); }

 private:
  template <typename T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      uint8_t byte = 0;
      get(byte);
      value = byte != 0;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      const ByteSpan bytes = raw(sizeof(T));
      if (bytes.size() == sizeof(T)) value = load<T>(bytes.data());
    } else {
      if (is_good_) transfer(*this, value);
    }
  }
  void get(std::string& text) {
    uint32_t size = 0;
    get(size);
    text = as_text(raw(size));
  }
  void get(InternedText& text) { get_as_text(text); }
  void get(RareText& text) { get_as_text(text); }
  void get_as_text(auto& text) {
    std::string plain;
    get(plain);
    text = plain;
  }
  template <typename T>
  void get(RareValue<T>& value) {
    bool is_there = false;
    get(is_there);
    value.reset();
    if (is_there && is_good_) get(value.emplace());
  }
  template <typename T>
  void get(RareVector<T>& values) {
    std::vector<T> plain;
    get(plain);
    values = std::move(plain);
  }
  template <typename T, size_t N>
  void get(std::array<T, N>& values) {
    for (T& value : values) get(value);
  }
  template <typename T>
  void get(std::optional<T>& value) {
    bool is_there = false;
    get(is_there);
    value.reset();
    if (is_there && is_good_) get(value.emplace());
  }
  template <typename T>
  void get(std::vector<T>& values) {
    uint64_t count = 0;
    get(count);
    values.clear();
    if (count > reader_.remaining()) is_good_ = false;  // each takes a byte
    for (uint64_t i = 0; i < count && is_good_; ++i) get(values.emplace_back());
  }

  ByteSpan bytes_;
  ByteReader reader_;
  bool is_good_ = true;
};

}  // namespace assay
