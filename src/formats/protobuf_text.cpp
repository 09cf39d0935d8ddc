// SPDX-License-Identifier: Apache-2.0
// name: value, name { fields }, name < fields >, name: [value, ...]; comments from # on; adjacent
// strings are one:
//
//   op { name: "a" 'b'  input: ["x:0", "y:0"]  attr < i: -3 > }
#include "formats/protobuf_text.hpp"

#include <charconv>
#include <limits>

#include "base/numbers.hpp"

namespace assay::formats {

class TextDocumentBuilder {
 public:
  explicit TextDocumentBuilder(std::string_view text) : reader_(text) {
    document_.text_ = text;
    document_.items_.push_back(
        {.end = static_cast<uint32_t>(text.size()), .kind = TextDocument::Kind::Message});
  }

  Result<TextDocument> run() && {
    ASSAY_TRY_STATUS(read_fields(0, 0));
    return std::move(document_);
  }

 private:
  using Field = TextDocument::Field;

  Status read_fields(char close, Field message) {
    Field last = TextDocument::kNone;
    return reader_.fields(close, [&](std::string_view name) -> Status {
      const auto append = [&](TextDocument::Kind kind, size_t begin, size_t end) -> Result<Field> {
        std::vector<TextDocument::Item>& items = document_.items_;
        if (items.size() == TextDocument::kMaxFields)
          return fail(Errc::TooLarge, "more than 67108864 fields", begin);
        const auto field = static_cast<Field>(items.size());
        items.push_back({.name = static_cast<uint32_t>(name.data() - document_.text_.data()),
                         .name_size = static_cast<uint32_t>(name.size()),
                         .begin = static_cast<uint32_t>(begin),
                         .end = static_cast<uint32_t>(end),
                         .kind = kind});
        (last == TextDocument::kNone ? items[message].first : items[last].next) = field;
        last = field;
        return field;
      };
      return reader_.any_values(
          [&](char end) -> Status {
            const uint64_t begin = reader_.offset();
            ASSAY_TRY(const Field field, append(TextDocument::Kind::Message, begin, begin));
            ASSAY_TRY_STATUS(read_fields(end, field));
            document_.items_[field].end = static_cast<uint32_t>(reader_.offset());
            return {};
          },
          [&](bool is_string, size_t begin, size_t end) -> Status {
            const auto kind = is_string ? TextDocument::Kind::String : TextDocument::Kind::Word;
            ASSAY_TRY_STATUS(append(kind, begin, end));
            return {};
          });
    });
  }

  TextReader reader_;
  TextDocument document_;
};

Result<TextDocument> TextDocument::parse(std::string_view text) {
  if (text.size() > std::numeric_limits<uint32_t>::max())
    return fail(Errc::TooLarge, "a text of more than 4 GiB", 0);
  return TextDocumentBuilder(text).run();
}

TextDocument::Field TextDocument::find(Field message, std::string_view wanted) const {
  Field found = kNone;
  if (message == kNone) return found;
  for (Field field = first(message); field != kNone; field = next(field)) {
    if (name(field) == wanted) found = field;
  }
  return found;
}

std::string TextDocument::string(Field field) const {
  if (kind(field) != Kind::String) return std::string(text(field));
  std::string bytes;
  // The parser has been here, so this cannot fail.
  const Status read = TextReader(text(field)).strings(&bytes);
  ASSAY_CHECK(read.has_value(), "a string that was parsed once");
  return bytes;
}

std::optional<int64_t> TextDocument::integer(Field field) const {
  return kind(field) == Kind::Word ? text_integer(text(field)) : std::nullopt;
}

std::optional<double> TextDocument::real(Field field) const {
  return kind(field) == Kind::Word ? text_real(text(field)) : std::nullopt;
}

std::optional<int64_t> text_integer(std::string_view word) {
  const bool is_negative = word.starts_with('-');
  std::string_view digits = word.substr(is_negative ? 1 : 0);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  int base = 10;
  if (digits.starts_with("0x") || digits.starts_with("0X")) {
    base = 16;
    digits.remove_prefix(2);
  } else if (digits.size() > 1 && digits.front() == '0') {
    base = 8;
  }
  uint64_t magnitude = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), magnitude, base);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  if (magnitude > static_cast<uint64_t>(INT64_MAX) + (is_negative ? 1 : 0)) return std::nullopt;
  return static_cast<int64_t>(is_negative ? 0 - magnitude : magnitude);
}

std::optional<double> text_real(std::string_view word) {
  const bool is_negative = word.starts_with('-');
  std::string_view digits = word.substr(is_negative ? 1 : 0);
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  if (digits.starts_with('-')) return std::nullopt;
  if (digits.size() > 1 && (digits.ends_with('f') || digits.ends_with('F')) &&
      !digits.ends_with("inf"))
    digits.remove_suffix(1);
  const std::optional<double> value = parse_number<double>(digits);
  return value && is_negative ? -*value : value;
}

}  // namespace assay::formats
