// SPDX-License-Identifier: Apache-2.0
#include "report/terminal_text.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/text.hpp"

namespace assay::report {

std::string shorten(std::string_view text, size_t width) {
  if (text.size() <= width) return std::string(text);
  if (width <= 3) return std::string(text.substr(text.size() - width));
  size_t start = text.size() - (width - 3);
  // Never begin inside a UTF-8 character.
  while (start < text.size() && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80) ++start;
  return "..." + std::string(text.substr(start));
}

std::string wrapped(std::string_view text, size_t indent, size_t width) {
  const size_t room = width > indent + 8 ? width - indent : 8;
  std::string out;
  std::string line;
  for (const std::string_view part : split(text, ' ')) {
    const std::string word = shorten(part, room);
    if (!line.empty() && line.size() + 1 + word.size() > room) {
      out += std::string(indent, ' ') + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + std::string(indent, ' ') + line + "\n";
}

std::string pad_right(std::string text, size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}
std::string pad_left(const std::string& text, size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string short_number(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string cosine_number(double value) {
  if (std::isnan(value)) return "-";
  char text[32];
  std::snprintf(text, sizeof(text), "%.7f", value);
  return text;
}

std::string paint(std::string text, const char* code, bool colour) {
  return colour ? std::string("\033[") + code + "m" + text + "\033[0m" : text;
}

}  // namespace assay::report
