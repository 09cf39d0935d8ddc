// SPDX-License-Identifier: Apache-2.0
// Protobuf's text format without a schema: fields one after the other, or the whole text as a flat
// list of them. Nested messages in {} or <>, lists in [], comments, adjacent strings, all escapes.
// source   protobuf.dev: "Text Format Language Specification"
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/utf8.hpp"

namespace assay::formats {

inline constexpr int kMaxGraphTextDepth = 64;

namespace text_format {

inline bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
inline bool is_octal(char c) { return c >= '0' && c <= '7'; }

inline std::optional<uint32_t> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint32_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint32_t>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<uint32_t>(c - 'A') + 10;
  return std::nullopt;
}

}  // namespace text_format

/// Fields of messages, one after the other, straight from the text: nothing of a field is kept that
/// its reader does not ask for.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : text_(text) {}

  [[nodiscard]] uint64_t offset() const { return at_; }
  [[nodiscard]] bool at_message() const {
    return at_ < text_.size() && (text_[at_] == '{' || text_[at_] == '<');
  }
  [[nodiscard]] bool at_string() const {
    return at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'');
  }

  /// Calls take(name) for each field up to the end of the message, with the reader behind the name.
  /// take() reads the value, or calls skip_value(). `close` is what ends the message; 0 at the top.
  template <typename Take>
  Status fields(char close, Take take) {
    for (;;) {
      skip_blanks();
      if (at_ == text_.size()) {
        if (close == 0) return {};
        return fail(Errc::Invalid, std::string("the text ends before a closing ") + close, at_);
      }
      if (close != 0 && text_[at_] == close) {
        ++at_;
        return {};
      }
      ASSAY_TRY(const std::string_view name, field_name());
      ASSAY_TRY_STATUS(take(name));
      skip_blanks();
      if (at_ < text_.size() && (text_[at_] == ',' || text_[at_] == ';')) ++at_;
    }
  }

  /// A message, or a list of messages; read(close) reads the fields of one.
  template <typename Read>
  Status messages(Read read) {
    colon();
    return values([&] { return one_message(read); });
  }

  /// Scalars that stand behind a field's colon: a string, decoded, or the text of a number or a
  /// name. take(text) is called once, or for each of a list.
  template <typename Take>
  Status scalars(Take take) {
    if (!colon()) return fail(Errc::Invalid, "a value without a colon before it", at_);
    return values([&]() -> Status {
      ASSAY_TRY(const std::string value, scalar());
      return take(value);
    });
  }

  /// Values of any kind: message(close) reads the fields of one, scalar(is_string, begin, end) is
  /// told where one stands.
  template <typename Message, typename Scalar>
  Status any_values(Message message, Scalar scalar) {
    const bool has_colon = colon();
    return values([&]() -> Status {
      if (at_message()) return one_message(message);
      const size_t begin = at_;
      const bool is_string = at_string();
      if (!has_colon) return fail(Errc::Invalid, "a value without a colon before it", at_);
      ASSAY_TRY_STATUS(skip_scalar());
      return scalar(is_string, begin, at_);
    });
  }

  Status skip_value() {
    colon();
    return values([&]() -> Status {
      if (at_message()) {
        return one_message([&](char close) {
          return fields(close, [&](std::string_view) { return skip_value(); });
        });
      }
      return skip_scalar();
    });
  }

  /// Strings that stand beside each other are one; `out` may be nullptr.
  Status strings(std::string* out) {
    do {
      ASSAY_TRY_STATUS(one_string(out));
      skip_blanks();
    } while (at_string());
    return {};
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (c == ' ' || (c >= '\t' && c <= '\r')) {
        ++at_;
      } else {
        return;
      }
    }
  }

  bool colon() {
    skip_blanks();
    const bool found = at_ < text_.size() && text_[at_] == ':';
    if (found) ++at_;
    skip_blanks();
    return found;
  }

  /// "name", or "[package.extension]".
  Result<std::string_view> field_name() {
    const size_t start = at_;
    if (text_[at_] == '[') {
      const size_t end = text_.find(']', at_);
      if (end == std::string_view::npos)
        return fail(Errc::Invalid, "an extension's name without ]", at_);
      at_ = end + 1;
      return text_.substr(start, at_ - start);
    }
    while (at_ < text_.size() && text_format::is_name_char(text_[at_])) ++at_;
    if (at_ == start) return fail(Errc::Invalid, "a field's name was expected", at_);
    return text_.substr(start, at_ - start);
  }

  /// One value, or [value, value].
  template <typename One>
  Status values(One one) {
    if (at_ == text_.size() || text_[at_] != '[') return one();
    ++at_;
    for (;;) {
      skip_blanks();
      if (at_ == text_.size()) return fail(Errc::Invalid, "the text ends inside a list", at_);
      if (text_[at_] == ']') {
        ++at_;
        return {};
      }
      ASSAY_TRY_STATUS(one());
      skip_blanks();
      if (at_ < text_.size() && text_[at_] == ',') {
        ++at_;
      } else if (at_ < text_.size() && text_[at_] != ']') {
        return fail(Errc::Invalid, "a comma or ] was expected in a list", at_);
      }
    }
  }

  template <typename Read>
  Status one_message(Read read) {
    if (!at_message()) return fail(Errc::Invalid, "a message in {} or <> was expected", at_);
    if (depth_ == kMaxGraphTextDepth)
      return fail(Errc::TooLarge, "messages are nested deeper than 64", at_);
    const char close = text_[at_++] == '{' ? '}' : '>';
    ++depth_;
    ASSAY_TRY_STATUS(read(close));
    --depth_;
    return {};
  }

  Result<std::string> scalar() {
    std::string value;
    if (at_string()) {
      ASSAY_TRY_STATUS(strings(&value));
    } else {
      ASSAY_TRY(const std::string_view word, literal());
      value = word;
    }
    return value;
  }

  Status skip_scalar() {
    if (at_string()) return strings(nullptr);
    ASSAY_TRY_STATUS(literal());
    return {};
  }

  /// A number or a name: "-1", "1e-5", "DT_FLOAT", "-inf", "- 1".
  Result<std::string_view> literal() {
    const size_t start = at_;
    if (at_ < text_.size() && text_[at_] == '-') {
      ++at_;
      skip_blanks();
    }
    const size_t body = at_;
    while (at_ < text_.size() &&
           (text_format::is_name_char(text_[at_]) || text_[at_] == '.' || text_[at_] == '+' ||
            (text_[at_] == '-' && (text_[at_ - 1] == 'e' || text_[at_ - 1] == 'E')))) {
      ++at_;
    }
    if (at_ == body) return fail(Errc::Invalid, "a value was expected", at_);
    return text_.substr(start, at_ - start);
  }

  Status one_string(std::string* out) {
    const size_t start = at_;
    const char quote = text_[at_++];
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == quote) {
        ++at_;
        return {};
      }
      if (c == '\n') return fail(Errc::Invalid, "a string without its closing quote", start);
      if (c == '\\') {
        ASSAY_TRY_STATUS(escape(out));
      } else {
        if (out != nullptr) out->push_back(c);
        ++at_;
      }
    }
    return fail(Errc::Invalid, "the text ends inside a string", start);
  }

  Status escape(std::string* out) {
    std::string ignored;
    std::string& to = out != nullptr ? *out : ignored;
    const size_t start = at_++;
    if (at_ == text_.size()) return fail(Errc::Invalid, "the text ends inside an escape", start);
    const char kind = text_[at_++];
    constexpr std::string_view kKinds = "abfnrtv\\'\"?";
    constexpr std::string_view kValues = "\a\b\f\n\r\t\v\\'\"?";
    if (const size_t simple = kKinds.find(kind); simple != std::string_view::npos) {
      to.push_back(kValues[simple]);
      return {};
    }
    if (text_format::is_octal(kind)) {
      uint32_t value = static_cast<uint32_t>(kind - '0');
      for (int digit = 1; digit < 3 && at_ < text_.size() && text_format::is_octal(text_[at_]);
           ++digit)
        value = value * 8 + static_cast<uint32_t>(text_[at_++] - '0');
      to.push_back(static_cast<char>(value));
      return {};
    }
    const bool is_byte = kind == 'x' || kind == 'X';
    if (!is_byte && kind != 'u' && kind != 'U')
      return fail(Errc::Invalid, "an unknown escape", start);
    const int most = is_byte ? 2 : kind == 'u' ? 4 : 8;
    uint32_t code = 0;
    int digits = 0;
    for (; digits < most && at_ < text_.size(); ++digits, ++at_) {
      const std::optional<uint32_t> digit = text_format::hex_digit(text_[at_]);
      if (!digit) break;
      code = code * 16 + *digit;
    }
    if (digits == 0 || (!is_byte && (digits != most || code > 0x10FFFF)))
      return fail(Errc::Invalid, "an escape without its digits", start);
    if (is_byte) {
      to.push_back(static_cast<char>(code));
    } else {
      append_utf8(code, &to);
    }
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
  int depth_ = 0;
};

/// A parsed text. Fields are numbered in the order of the text; 0 is the text itself, a message
/// without a name. The text must outlive the document: names and values point into it, so a tensor
/// of a gigabyte costs nothing here.
class TextDocument {
 public:
  using Field = uint32_t;
  static constexpr Field kNone = UINT32_MAX;
  static constexpr size_t kMaxFields = size_t{1} << 26;
  enum class Kind : uint8_t { Message, String, Word };

  /// A list [a, b] is as many fields of its name.
  /// errors   Invalid (with the offset) | TooLarge (nested deeper than 64, more than 2^26 fields, 4
  ///          GiB of text)
  [[nodiscard]] static Result<TextDocument> parse(std::string_view text);

  [[nodiscard]] Kind kind(Field field) const { return items_[field].kind; }
  [[nodiscard]] std::string_view name(Field field) const {
    return text_.substr(items_[field].name, items_[field].name_size);
  }
  /// First field of a message, and the one after a given one; kNone at the end.
  [[nodiscard]] Field first(Field message) const { return items_[message].first; }
  [[nodiscard]] Field next(Field field) const { return items_[field].next; }
  /// The last field of that name, kNone when there is none or `message` is no message or
  /// kNone.
  [[nodiscard]] Field find(Field message, std::string_view name) const;

  /// Where the value begins in the text.
  [[nodiscard]] size_t offset(Field field) const { return items_[field].begin; }
  /// A Word as it was written; of a String its quotes and escapes; blanks may follow.
  [[nodiscard]] std::string_view text(Field field) const {
    return text_.substr(items_[field].begin, items_[field].end - items_[field].begin);
  }
  /// The bytes that a String stands for; of a Word its text.
  [[nodiscard]] std::string string(Field field) const;
  /// A Word that is a whole number of 64 bits.
  [[nodiscard]] std::optional<int64_t> integer(Field field) const;
  /// A Word that is a number, also with the suffix f; inf and nan are.
  [[nodiscard]] std::optional<double> real(Field field) const;

 private:
  friend class TextDocumentBuilder;
  struct Item {
    uint32_t name = 0;
    uint32_t name_size = 0;
    uint32_t begin = 0;
    uint32_t end = 0;
    Field first = kNone;
    Field next = kNone;
    Kind kind = Kind::Message;
  };
  std::string_view text_;
  std::vector<Item> items_;
};

/// "-5", "0x10", "- 1"; nothing for anything that is no whole number of 64 bits.
[[nodiscard]] std::optional<int64_t> text_integer(std::string_view word);
/// "1.5e-3f", "-inf", "nan".
[[nodiscard]] std::optional<double> text_real(std::string_view word);

}  // namespace assay::formats
