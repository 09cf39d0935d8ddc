// SPDX-License-Identifier: Apache-2.0
// Widths come from a short table of ranges of code points; what is not in it takes one column, as
// does a byte that is no UTF-8.
#include "base/display.hpp"

#include "base/utf8.hpp"

namespace assay {
namespace {

struct CodeRange {
  uint32_t first, last;
  size_t columns;
};
// Unicode's EastAsianWidth.txt (W and F) and the combining marks of its general categories, as
// coarse as names need them.
constexpr CodeRange kUnusualWidths[] = {
    {0x300, 0x36F, 0},     {0x1100, 0x115F, 2},   {0x200B, 0x200D, 0},   {0x20D0, 0x20FF, 0},
    {0x2E80, 0x303E, 2},   {0x3041, 0xA4CF, 2},   {0xAC00, 0xD7A3, 2},   {0xF900, 0xFAFF, 2},
    {0xFE00, 0xFE0F, 0},   {0xFE30, 0xFE6F, 2},   {0xFF00, 0xFF60, 2},   {0xFFE0, 0xFFE6, 2},
    {0x1F300, 0x1F64F, 2}, {0x1F680, 0x1F6FF, 2}, {0x1F900, 0x1F9FF, 2}, {0x20000, 0x3FFFD, 2}};

size_t columns_of(uint32_t code) {
  for (const CodeRange& range : kUnusualWidths) {
    if (range.first <= code && code <= range.last) return range.columns;
  }
  return 1;
}

/// Length and columns of the character at the start of `text`; of a byte that is none 1 and 1.
struct Character {
  size_t length, columns;
};
Character first_character(std::string_view text) {
  const size_t length = utf8_length(text);
  if (length == 0) return {1, 1};
  return {length, columns_of(code_point(text.substr(0, length)))};
}

}  // namespace

size_t display_columns(std::string_view text) {
  size_t columns = 0;
  while (!text.empty()) {
    const Character character = first_character(text);
    columns += character.columns;
    text.remove_prefix(character.length);
  }
  return columns;
}

std::string_view first_columns(std::string_view text, size_t columns) {
  size_t end = 0;
  while (end < text.size()) {
    const Character character = first_character(text.substr(end));
    if (character.columns > columns) break;
    columns -= character.columns;
    end += character.length;
  }
  return text.substr(0, end);
}

std::string_view last_columns(std::string_view text, size_t columns) {
  size_t left_out = display_columns(text);
  while (left_out > columns) {
    const Character character = first_character(text);
    left_out -= character.columns;
    text.remove_prefix(character.length);
  }
  // A mark must not lose the character that it stands on.
  while (!text.empty() && first_character(text).columns == 0)
    text.remove_prefix(first_character(text).length);
  return text;
}

std::string number_ranges(std::span<const int64_t> ascending, std::string_view separator) {
  std::string text;
  for (size_t i = 0; i < ascending.size();) {
    size_t end = i + 1;
    while (end < ascending.size() && ascending[end] == ascending[end - 1] + 1) ++end;
    if (!text.empty()) text += separator;
    text += std::to_string(ascending[i]);
    if (end - i > 1) text += "-" + std::to_string(ascending[end - 1]);
    i = end;
  }
  return text;
}

}  // namespace assay
