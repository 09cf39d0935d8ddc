// SPDX-License-Identifier: Apache-2.0
// Numbers as Python spells them, JSON strings, text made safe for a terminal, sizes and base64.
// Text is walked by sequences of UTF-8 (base/utf8.hpp); a byte outside of one becomes U+FFFD.
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/bytes.hpp"
#include "base/numbers.hpp"
#include "base/utf8.hpp"

namespace assay {

std::string python_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // Scientific form first: it gives the shortest digits and the exponent; Python then chooses by
  // the exponent.
  char buffer[32];
  const auto [end, error] =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string_view scientific(buffer, static_cast<size_t>(end - buffer));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const bool is_negative = scientific[e + 1] == '-';
  std::from_chars(buffer + e + 2, end, exponent);
  if (is_negative ? exponent > 4 : exponent >= 16) return std::string(scientific);
  // The same digits with the point moved: below 10^16 these are exact.
  std::string text;
  std::string_view mantissa = scientific.substr(0, e);
  if (mantissa.front() == '-') {
    text += '-';
    mantissa.remove_prefix(1);
  }
  const std::string_view fraction = mantissa.substr(std::min<size_t>(2, mantissa.size()));
  if (is_negative) {
    text += "0.";
    text.append(static_cast<size_t>(exponent) - 1, '0');
    text += mantissa.front();
    text += fraction;
    return text;
  }
  const auto moved = static_cast<size_t>(exponent);
  text += mantissa.front();
  text += fraction.substr(0, moved);
  if (fraction.size() <= moved) {
    text.append(moved - fraction.size(), '0');
    text += ".0";
  } else {
    text += '.';
    text += fraction.substr(moved);
  }
  return text;
}

namespace {
/// Length of the colour at the start of `text`, 0 when there is none.
size_t colour_length(std::string_view text) {
  for (const std::string_view colour : {"\033[31m", "\033[32m", "\033[1m", "\033[0m"}) {
    if (text.starts_with(colour)) return colour.size();
  }
  return 0;
}

bool is_printable_ascii(char c) { return c >= 0x20 && c < 0x7F; }

/// What a terminal obeys instead of showing it.
bool is_control(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) ||  // C0, DEL, C1
         code == 0x61C || code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2066 && code <= 0x2069);  // line separators, direction marks
}
}  // namespace

std::string repair_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length > 0) {
      out.append(text.substr(0, length));
    } else {
      out += "\xEF\xBF\xBD";
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string printable(std::string_view text) {
  if (std::ranges::all_of(text, is_printable_ascii)) return std::string(text);
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else if (is_control(code_point(text.substr(0, length)))) {
      out += '?';
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string printable_screen(std::string_view text) {
  const auto stays = [](unsigned char c) {
    return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\t';
  };
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto plain_end = std::find_if_not(text.begin(), text.end(), stays);
    size_t length = static_cast<size_t>(plain_end - text.begin());
    out.append(text.substr(0, length));
    text.remove_prefix(length);
    if (text.empty()) break;
    length = colour_length(text);
    if (length > 0) {
      out.append(text.substr(0, length));
    } else {
      length = std::max<size_t>(utf8_length(text), 1);
      out += printable(text.substr(0, length));
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string json_quote(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  out += '"';
  for (size_t i = 0; i < text.size();) {
    // Most texts are nothing else.
    size_t end = i;
    while (end < text.size() && is_printable_ascii(text[end]) && text[end] != '"' &&
           text[end] != '\\')
      ++end;
    out.append(text.substr(i, end - i));
    i = end;
    if (i == text.size()) break;
    const char c = text[i];
    if (c == '"' || c == '\\') {
      out += '\\';
      out += text[i++];
    } else if (const size_t length = utf8_length(text.substr(i)); length > 0) {
      const std::string_view sequence = text.substr(i, length);
      if (const uint32_t code = code_point(sequence); is_control(code)) {
        char escape[16];
        std::snprintf(escape, sizeof(escape), "\\u%04x", code);
        out += escape;
      } else {
        out.append(sequence);
      }
      i += length;
    } else {
      out += "\xEF\xBF\xBD";
      ++i;
    }
  }
  out += '"';
  return out;
}

std::string json_number(double value) {
  if (std::isnan(value)) return "\"NaN\"";
  if (std::isinf(value)) return value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
  return python_repr(value);
}

std::optional<uint64_t> parse_size_bytes(std::string_view text) {
  const size_t unit_start = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<uint64_t> number = parse_number<uint64_t>(text.substr(0, unit_start));
  struct Unit {
    std::string_view name;
    uint64_t bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},         {"B", 1},         {"k", 1000},    {"kB", 1000},
                             {"KB", 1000},    {"K", 1024},      {"KiB", 1024},  {"M", 1 << 20},
                             {"MB", 1000000}, {"MiB", 1 << 20}, {"G", 1 << 30}, {"GB", 1000000000},
                             {"GiB", 1 << 30}};
  for (const Unit& unit : kUnits) {
    if (!number || unit.name != text.substr(unit_start)) continue;
    uint64_t bytes = 0;
    if (mul_overflows(*number, unit.bytes, &bytes)) break;
    return bytes;
  }
  return std::nullopt;
}

std::string counted(uint64_t count, std::string_view noun) {
  const char* ending = count == 1 ? "" : noun.ends_with('s') ? "es" : "s";
  return std::to_string(count) + " " + std::string(noun) + ending;
}

std::string shortened(std::string_view text) {
  constexpr size_t kShownBytes = 40;
  return std::string(text.substr(0, kShownBytes)) + (text.size() > kShownBytes ? "..." : "");
}

std::string quoted(std::string_view text) { return "'" + shortened(text) + "'"; }

namespace {
constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// By character: its digit, 64 for none.
constexpr std::array<uint8_t, 256> base64_values() {
  std::array<uint8_t, 256> values{};
  values.fill(64);
  for (size_t i = 0; i < kBase64Digits.size(); ++i)
    values[static_cast<unsigned char>(kBase64Digits[i])] = static_cast<uint8_t>(i);
  return values;
}
}  // namespace

std::string base64(std::string_view bytes) {
  std::string out((bytes.size() + 2) / 3 * 4, '=');
  char* place = out.data();
  for (size_t i = 0; i < bytes.size(); i += 3, place += 4) {
    const size_t count = std::min<size_t>(bytes.size() - i, 3);
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k <= count; ++k) place[k] = kBase64Digits[group >> (18 - 6 * k) & 63];
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr std::array<uint8_t, 256> kValues = base64_values();
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k)
      group = group << 6 | (kValues[static_cast<unsigned char>(text[i + k])] & 63);
    for (const int shift : {16, 8, 0}) out += static_cast<char>(group >> shift & 255);
  }
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  out.resize(out.size() - padding);
  // Writing it again finds characters that are no digits, and bits behind the last byte.
  return base64(out) == text ? std::optional(std::move(out)) : std::nullopt;
}

std::string human_bytes(uint64_t size_bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  double value = static_cast<double>(size_bytes);
  size_t unit = 0;
  while (value >= 999.95 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  char text[32];  // not printf, which writes the decimal comma of the host's locale
  char* const end =
      std::to_chars(text, std::end(text), value, std::chars_format::fixed, unit == 0 ? 0 : 1).ptr;
  return std::string(text, end) + ' ' + kUnits[unit];
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  size_t start = 0;
  for (;;) {
    const size_t end = text.find(separator, start);
    parts.push_back(text.substr(start, end - start));
    if (end == std::string_view::npos) return parts;
    start = end + 1;
  }
}

}  // namespace assay
