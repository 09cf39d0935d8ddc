// SPDX-License-Identifier: Apache-2.0
// A scanner that gives up at the first thing that is not plain. It looks through a text eight
// characters at a time, and members are found by a hash into 64 buckets.
#include "formats/plain_json.hpp"

#include <bit>
#include <charconv>
#include <cstring>

namespace assay::formats {
namespace {

constexpr int kDeepest = 16;
// Numbers within these are finite as a double.
constexpr ptrdiff_t kMostDigits = 100;
constexpr ptrdiff_t kMostExponentDigits = 2;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// How many of the eight characters, from the first on, may stand in a text without escapes.
size_t plain_among(const char* eight) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  constexpr uint64_t kHighs = 0x8080808080808080;
  uint64_t word = 0;
  std::memcpy(&word, eight, sizeof(word));
  static_assert(std::endian::native == std::endian::little);
  // The highest bit of the first byte that is below `limit`; of later ones it may be wrong.
  const auto has_below = [](uint64_t bytes, uint64_t limit) {
    return (bytes - kOnes * limit) & ~bytes;
  };
  const uint64_t found = word | has_below(word, 0x20) | has_below(word ^ (kOnes * '"'), 1) |
                         has_below(word ^ (kOnes * '\\'), 1) | has_below(word ^ (kOnes * 0x7f), 1);
  return static_cast<size_t>(std::countr_zero(found & kHighs)) / 8;
}

/// Walks over JSON values. Each function leaves `at` behind what it has seen, and is false when
/// that is not what it should be.
struct Scanner {
  const char* at;
  const char* end;

  void skip_blanks() {
    while (at != end && is_blank(*at)) ++at;
  }
  bool take(char c) {
    skip_blanks();
    if (at == end || *at != c) return false;
    ++at;
    return true;
  }
  bool text(std::string_view* out) {
    if (at == end || *at != '"') return false;
    const char* const begin = ++at;
    size_t plain = sizeof(uint64_t);
    while (plain == sizeof(uint64_t) && static_cast<size_t>(end - at) >= sizeof(uint64_t)) {
      plain = plain_among(at);
      at += plain;
    }
    while (at != end && *at != '"') {
      const auto c = static_cast<unsigned char>(*at);
      if (c < 0x20 || c >= 0x7f || c == '\\') return false;
      ++at;
    }
    if (at == end) return false;
    *out = {begin, static_cast<size_t>(at - begin)};
    ++at;
    return true;
  }
  bool digits() {
    const char* const begin = at;
    while (at != end && is_digit(*at)) ++at;
    return at != begin;
  }
  bool number(PlainObject::Kind* kind) {
    *kind = PlainObject::Kind::Integer;
    const bool is_negative = *at == '-';
    if (is_negative) ++at;
    const char* const begin = at;
    if (!digits()) return false;
    if ((*begin == '0' && at - begin > 1) || at - begin > kMostDigits) return false;
    const bool is_minus_zero = is_negative && *begin == '0';
    if (at != end && *at == '.') {
      ++at;
      *kind = PlainObject::Kind::Real;
      if (!digits()) return false;
    }
    if (at != end && (*at == 'e' || *at == 'E')) {
      ++at;
      *kind = PlainObject::Kind::Real;
      if (at != end && (*at == '+' || *at == '-')) ++at;
      const char* const exponent = at;
      if (!digits() || at - exponent > kMostExponentDigits) return false;
    }
    return !(is_minus_zero && *kind == PlainObject::Kind::Integer);
  }
  bool literal(std::string_view word) {
    if (std::string_view(at, static_cast<size_t>(end - at)).substr(0, word.size()) != word)
      return false;
    at += word.size();
    return true;
  }
  bool list(char close, int depth) {
    ++at;
    if (take(close)) return true;
    do {
      skip_blanks();
      std::string_view name;
      if (close == '}' && (!text(&name) || !take(':'))) return false;
      PlainObject::Value ignored;
      if (!value(&ignored, depth)) return false;
    } while (take(','));
    return take(close);
  }
  bool value(PlainObject::Value* out, int depth) {
    using Kind = PlainObject::Kind;
    if (depth > kDeepest) return false;
    skip_blanks();
    if (at == end) return false;
    const char* const begin = at;
    bool is_good = false;
    switch (*at) {
      case '"':
        out->kind = Kind::Text;
        return text(&out->text);
      case '{':
        out->kind = Kind::Object;
        is_good = list('}', depth + 1);
        break;
      case '[':
        out->kind = Kind::Array;
        is_good = list(']', depth + 1);
        break;
      case 't':
        is_good = literal("true");
        break;
      case 'f':
        is_good = literal("false");
        break;
      case 'n':
        is_good = literal("null");
        break;
      default:
        is_good = (*at == '-' || is_digit(*at)) && number(&out->kind);
    }
    out->text = {begin, static_cast<size_t>(at - begin)};
    return is_good;
  }
};

}  // namespace

std::optional<PlainObject> PlainObject::parse(std::string_view text) {
  std::optional<PlainObject> made(std::in_place);
  Scanner scanner{text.data(), text.data() + text.size()};
  if (!scanner.take('{')) return std::nullopt;
  if (!scanner.take('}')) {
    do {
      if (made->count_ == kMost) return std::nullopt;
      Member& member = made->members_[made->count_++];
      scanner.skip_blanks();
      if (!scanner.text(&member.name) || !made->enter_last() || !scanner.take(':') ||
          !scanner.value(&member.value, 1))
        return std::nullopt;
    } while (scanner.take(','));
    if (!scanner.take('}')) return std::nullopt;
  }
  scanner.skip_blanks();
  if (scanner.at != scanner.end) return std::nullopt;
  return made;
}

bool PlainObject::enter_last() {
  const uint32_t last = count_ - 1;
  const unsigned bucket = bucket_of(members_[last].name);
  if ((filled_ >> bucket & 1) == 0) {
    filled_ |= uint64_t{1} << bucket;
    first_in_[bucket] = static_cast<uint8_t>(last);
    return true;
  }
  return find_among_all(members_[last].name) == &members_[last].value;
}

const PlainObject::Value* PlainObject::find_among_all(std::string_view name) const {
  for (uint32_t i = 0; i < count_; ++i)
    if (members_[i].name == name) return &members_[i].value;
  return nullptr;
}

std::optional<int64_t> PlainIntegers::next() {
  const auto skip = [this] {
    while (!rest_.empty() && (is_blank(rest_.front()) || rest_.front() == ','))
      rest_.remove_prefix(1);
  };
  skip();
  if (rest_.empty() || rest_.front() == ']') return std::nullopt;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), number);
  rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
  // An integer ends where the next one or the array does.
  const bool is_integer = error == std::errc{} && !rest_.empty() &&
                          (rest_.front() == ',' || rest_.front() == ']' || is_blank(rest_.front()));
  if (!is_integer) {
    is_whole_ = false;
    rest_ = {};
    return std::nullopt;
  }
  return number;
}

}  // namespace assay::formats
