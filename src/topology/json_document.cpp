// SPDX-License-Identifier: Apache-2.0
// The parser makes a list of values, each with its place in the text and its next sibling; escapes
// are checked there, and resolved when a key or a string is asked for.
#include "topology/json_document.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "base/text.hpp"
#include "base/utf8.hpp"

namespace assay::topology {

/// One pass over the text; the open arrays and objects stand on a vector instead of the call stack.
class JsonParser {
 public:
  JsonParser(std::string_view text, size_t max_depth) : text_(text), max_depth_(max_depth) {
    document_.text_ = text;
  }

  Result<JsonDocument> run() {
    if (text_.size() > JsonDocument::kMaxTextBytes)
      return fail(Errc::TooLarge, "the JSON text is longer than 1 GiB");
    if (text_.starts_with("\xef\xbb\xbf")) at_ = 3;
    skip_blanks();
    ASSAY_TRY_STATUS(value(0, 0));
    while (!open_.empty()) ASSAY_TRY_STATUS(continue_container());
    skip_blanks();
    if (at_ != text_.size())
      return fail(Errc::Invalid, "something follows the end of the JSON value", at_);
    return std::move(document_);
  }

 private:
  struct Open {
    JsonDocument::Value value;
    JsonDocument::Value last_child = JsonDocument::kNone;
  };

  void skip_blanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
      ++at_;
  }
  [[nodiscard]] bool at(char c) const { return at_ < text_.size() && text_[at_] == c; }
  [[nodiscard]] tl::unexpected<Error> wrong(std::string expected) const {
    if (at_ >= text_.size())
      return fail(Errc::Truncated, "the JSON text ends where " + expected + " is expected", at_);
    return fail(Errc::Invalid, "no JSON: " + expected + " is expected here", at_);
  }

  /// Takes the next element or member of the innermost open container, or closes it.
  Status continue_container() {
    Open& open = open_.back();
    const bool is_object = document_.items_[open.value].kind == JsonKind::Object;
    const char close = is_object ? '}' : ']';
    skip_blanks();
    if (open.last_child == JsonDocument::kNone && at(close)) return end_container();
    if (open.last_child != JsonDocument::kNone) {
      if (at(close)) return end_container();
      if (!at(',')) return wrong(is_object ? "',' or '}'" : "',' or ']'");
      ++at_;
      skip_blanks();
    }
    size_t key_begin = 0;
    size_t key_end = 0;
    if (is_object) {
      if (!at('"')) return wrong("a quoted key");
      key_begin = at_ + 1;
      ASSAY_TRY_STATUS(string());
      key_end = at_ - 1;
      skip_blanks();
      if (!at(':')) return wrong("':'");
      ++at_;
      skip_blanks();
    }
    return value(key_begin, key_end);
  }
  Status end_container() {
    ++at_;
    document_.items_[open_.back().value].end = static_cast<uint32_t>(at_);
    open_.pop_back();
    return {};
  }

  /// Adds the value that begins here to the innermost open container; a container is only opened.
  Status value(size_t key_begin, size_t key_end) {
    if (document_.items_.size() >= JsonDocument::kMaxValues)
      return fail(Errc::TooLarge, "more than 16777216 JSON values", at_);
    const auto index = static_cast<JsonDocument::Value>(document_.items_.size());
    document_.items_.push_back({.key_begin = static_cast<uint32_t>(key_begin),
                                .key_end = static_cast<uint32_t>(key_end),
                                .begin = static_cast<uint32_t>(at_)});
    if (!open_.empty()) {
      Open& open = open_.back();
      (open.last_child == JsonDocument::kNone ? document_.items_[open.value].first
                                              : document_.items_[open.last_child].next) = index;
      open.last_child = index;
    }
    if (at('{') || at('[')) {
      if (open_.size() >= max_depth_) {
        return fail(Errc::TooLarge,
                    "arrays and objects are nested deeper than " + std::to_string(max_depth_), at_);
      }
      document_.items_[index].kind = at('{') ? JsonKind::Object : JsonKind::Array;
      ++at_;
      open_.push_back({.value = index});
      return {};
    }
    ASSAY_TRY(const JsonKind kind, scalar());
    document_.items_[index].kind = kind;
    document_.items_[index].end = static_cast<uint32_t>(at_);
    return {};
  }

  Result<JsonKind> scalar() {
    if (at('"')) {
      ASSAY_TRY_STATUS(string());
      return JsonKind::String;
    }
    static constexpr struct {
      std::string_view word;
      JsonKind kind;
    } kWords[] = {{"null", JsonKind::Null},     {"true", JsonKind::True},
                  {"false", JsonKind::False},   {"NaN", JsonKind::Null},
                  {"Infinity", JsonKind::Null}, {"-Infinity", JsonKind::Null}};
    for (const auto& known : kWords) {
      if (!text_.substr(at_).starts_with(known.word)) continue;
      at_ += known.word.size();
      return known.kind;
    }
    return number();
  }

  [[nodiscard]] bool at_digit() const {
    return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9';
  }
  Status digits() {
    if (!at_digit()) return wrong("a digit");
    while (at_digit()) ++at_;
    return {};
  }
  Result<JsonKind> number() {
    if (!at('-') && !at_digit()) return wrong("a value");
    if (at('-')) ++at_;
    if (at('0')) {
      ++at_;
      if (at_digit()) return wrong("no digit after a leading zero");
    } else {
      ASSAY_TRY_STATUS(digits());
    }
    JsonKind kind = JsonKind::Integer;
    if (at('.')) {
      ++at_;
      ASSAY_TRY_STATUS(digits());
      kind = JsonKind::Float;
    }
    if (at('e') || at('E')) {
      ++at_;
      if (at('+') || at('-')) ++at_;
      ASSAY_TRY_STATUS(digits());
      kind = JsonKind::Float;
    }
    return kind;
  }

  /// From the opening quote to behind the closing one.
  Status string() {
    const size_t start = at_++;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return {};
      }
      if (static_cast<unsigned char>(c) < 0x20)
        return fail(Errc::Invalid, "no JSON: a control character inside a string", at_);
      if (c == '\\') ASSAY_TRY_STATUS(escape());
      ++at_;
    }
    return fail(Errc::Truncated, "the JSON text ends inside the string that begins here", start);
  }
  /// Leaves the position on the last character of the escape.
  Status escape() {
    ++at_;
    if (at_ >= text_.size()) return wrong("the rest of an escape");
    if (std::strchr("\"\\/bfnrt", text_[at_]) && text_[at_] != '\0') return {};
    if (text_[at_] != 'u') return wrong("one of \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u");
    for (int digit = 0; digit < 4; ++digit) {
      ++at_;
      if (at_ >= text_.size() || !std::isxdigit(static_cast<unsigned char>(text_[at_])))
        return wrong("a hexadecimal digit");
    }
    return {};
  }

  std::string_view text_;
  size_t max_depth_;
  size_t at_ = 0;
  std::vector<Open> open_;
  JsonDocument document_;
};

namespace {

uint32_t hex4(std::string_view digits) {
  uint32_t code = 0;
  std::from_chars(digits.data(), digits.data() + 4, code, 16);
  return code;
}

/// The four digits behind "\u" at `at`, together with a low surrogate's six characters when they
/// follow.
uint32_t code_point(std::string_view raw, size_t* at) {
  const uint32_t code = hex4(raw.substr(*at + 2));
  *at += 6;
  if (code < 0xD800 || code > 0xDFFF) return code;
  if (code < 0xDC00 && raw.substr(*at).starts_with("\\u")) {
    const uint32_t low = hex4(raw.substr(*at + 2));
    if (low >= 0xDC00 && low <= 0xDFFF) {
      *at += 6;
      return 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
  }
  return 0xFFFD;  // half of a surrogate pair is no character
}

/// Nothing to resolve and nothing to repair.
bool is_plain(std::string_view raw) {
  return std::all_of(raw.begin(), raw.end(),
                     [](char c) { return c != '\\' && static_cast<unsigned char>(c) < 0x80; });
}

/// `raw` was checked by the parser: every escape is whole.
std::string unescape(std::string_view raw) {
  if (raw.find('\\') == std::string_view::npos) return repair_utf8(raw);
  std::string text;
  for (size_t at = 0; at < raw.size();) {
    if (raw[at] != '\\') {
      text += raw[at++];
      continue;
    }
    const char c = raw[at + 1];
    if (c == 'u') {
      append_utf8(code_point(raw, &at), &text);
      continue;
    }
    constexpr std::string_view kLetters = "bfnrt";
    constexpr std::string_view kMeanings = "\b\f\n\r\t";
    const size_t known = kLetters.find(c);
    text += known == std::string_view::npos ? c : kMeanings[known];
    at += 2;
  }
  return repair_utf8(text);
}

}  // namespace

Result<JsonDocument> JsonDocument::parse(std::string_view text, size_t max_depth) {
  return JsonParser(text, max_depth).run();
}

std::string JsonDocument::key(Value member) const {
  const Item& item = items_[member];
  return unescape(text_.substr(item.key_begin, item.key_end - item.key_begin));
}

JsonDocument::Value JsonDocument::find(Value object, std::string_view name) const {
  if (!is(object, JsonKind::Object)) return kNone;
  Value found = kNone;
  for (Value member = first(object); member != kNone; member = next(member)) {
    const Item& item = items_[member];
    const std::string_view raw = text_.substr(item.key_begin, item.key_end - item.key_begin);
    if (raw == name || (!is_plain(raw) && unescape(raw) == name)) found = member;
  }
  return found;
}

std::string JsonDocument::string(Value value) const {
  const std::string_view quoted = text(value);
  return unescape(quoted.substr(1, quoted.size() - 2));
}

std::optional<int64_t> JsonDocument::integer(Value value) const {
  if (!is(value, JsonKind::Integer)) return std::nullopt;
  const std::string_view digits = text(value);
  int64_t number = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (code != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::optional<double> JsonDocument::number(Value value) const {
  if (!is(value, JsonKind::Integer) && !is(value, JsonKind::Float)) return std::nullopt;
  const std::string_view digits = text(value);
  double number = 0;
  // from_chars() leaves 0 behind when out of range; strtod() makes infinity of 1e999 and 0 of
  // 1e-999, as a protocol buffer's float would.
  if (std::from_chars(digits.data(), digits.data() + digits.size(), number).ec ==
      std::errc::result_out_of_range) {
    const std::string copy(digits);
    number = std::strtod(copy.c_str(), nullptr);
  }
  return number;
}

void JsonDocument::append_compact(Value value, std::string* out) const {
  std::string repaired;
  std::string_view written = text(value);
  const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
  if (!std::all_of(written.begin(), written.end(), is_ascii)) {
    repaired = repair_utf8(written);
    written = repaired;
  }
  bool in_string = false;
  for (size_t i = 0; i < written.size(); ++i) {
    const char c = written[i];
    if (in_string) {
      *out += c;
      if (c == '\\') *out += written[++i];
      if (c == '"') in_string = false;
      continue;
    }
    if (c == ' ' || c == '\n' || c == '\r' || c == '\t') continue;
    const bool is_minus = c == '-' && i + 1 < written.size() && written[i + 1] == 'I';
    if (c == 'N' || c == 'I' || is_minus) {
      *out += "null";
      i += c == 'N' ? 2 : is_minus ? 8 : 7;
      continue;
    }
    *out += c;
    in_string = c == '"';
  }
}

}  // namespace assay::topology
