// SPDX-License-Identifier: Apache-2.0
// JSON as a flat list of values that point into the text. Topology files need what a tree of copied
// values loses: the spelling of a number (1e-05, 18446744073709551616), the order of keys, and the
// place of a mistake. Nothing here recurses, so a host thread with a small stack may parse what it
// likes.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace assay::topology {

enum class JsonKind : uint8_t { Null, False, True, Integer, Float, String, Array, Object };

/// A parsed text. Values are numbered in the order of the text, the outermost is 0; the text must
/// outlive the document.
class JsonDocument {
 public:
  using Value = uint32_t;
  static constexpr Value kNone = UINT32_MAX;
  static constexpr size_t kMaxTextBytes = size_t{1} << 30;
  static constexpr size_t kMaxValues = size_t{1} << 24;

  /// Reads one value and nothing behind it but blanks. The words NaN, Infinity and -Infinity, which
  /// Python writes, are Null, as the original's reader took them.
  ///
  /// max_depth   of arrays and objects inside each other
  /// errors      Invalid with byte offset: no JSON | Truncated with offset: the text ends inside a
  ///             value | TooLarge: deeper than max_depth (with offset), more text or values than
  ///             the limits above
  [[nodiscard]] static Result<JsonDocument> parse(std::string_view text, size_t max_depth);

  [[nodiscard]] JsonKind kind(Value value) const { return items_[value].kind; }
  [[nodiscard]] bool is(Value value, JsonKind kind) const {
    return value != kNone && items_[value].kind == kind;
  }
  /// Where the value begins in the text, for messages.
  [[nodiscard]] size_t offset(Value value) const { return items_[value].begin; }
  /// The value as it was written; a string with its quotes.
  [[nodiscard]] std::string_view text(Value value) const {
    return text_.substr(items_[value].begin, items_[value].end - items_[value].begin);
  }

  /// First element or member, and the one after a given one; kNone at the end.
  [[nodiscard]] Value first(Value value) const { return items_[value].first; }
  [[nodiscard]] Value next(Value value) const { return items_[value].next; }
  /// A member's name, escapes resolved.
  [[nodiscard]] std::string key(Value member) const;
  /// The last member of that name, kNone when there is none or `object` is no object.
  [[nodiscard]] Value find(Value object, std::string_view name) const;

  /// A string's characters, escapes resolved; bytes that are no UTF-8 become U+FFFD.
  [[nodiscard]] std::string string(Value value) const;
  /// An Integer that fits.
  [[nodiscard]] std::optional<int64_t> integer(Value value) const;
  /// Any number, rounded to the nearest double.
  [[nodiscard]] std::optional<double> number(Value value) const;

  /// Appends the value without blanks, otherwise as it was written; NaN and the infinities as null,
  /// bytes that are no UTF-8 as U+FFFD.
  void append_compact(Value value, std::string* out) const;

 private:
  friend class JsonParser;
  struct Item {
    JsonKind kind = JsonKind::Null;
    uint32_t key_begin = 0;  // between the quotes; 0 for elements and the outermost value
    uint32_t key_end = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
    Value first = kNone;
    Value next = kNone;
  };
  std::string_view text_;
  std::vector<Item> items_;
};

}  // namespace assay::topology
