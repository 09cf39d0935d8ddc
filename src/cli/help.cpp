// SPDX-License-Identifier: Apache-2.0
// Names stand on the left and texts in a column of their own; names too long for that get a line of
// their own, and examples are never wrapped.
#include "cli/help.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/command.hpp"
#include "report/terminal_text.hpp"

namespace assay::cli {
namespace {

constexpr size_t kTextColumn = 24;
constexpr size_t kNarrowest = 40;
constexpr size_t kWidest = 1000;

std::string entry_lines(const HelpPage::Entry& entry, size_t width) {
  const std::string names = "  " + entry.names;
  if (entry.text.empty()) return names + "\n";
  std::string text = report::wrapped(entry.text, kTextColumn, width);
  // Short names share the first line with their text.
  if (names.size() + 2 <= kTextColumn) return names + text.substr(names.size());
  if (names.size() <= width) return names + "\n" + text;
  const size_t cut = names.find(' ', 2);
  return names.substr(0, cut) + "\n" +
         (cut == std::string::npos ? "" : report::wrapped(names.substr(cut + 1), 4, width)) + text;
}

/// Paragraphs are wrapped; lines that begin with a blank are examples, which must stay as they are
/// typed.
std::string paragraphs(const std::string& text, size_t width) {
  std::string out;
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty() || line.starts_with(' ')) {
      out += std::string(line) + "\n";
    } else {
      out += report::wrapped(line, 0, width);
    }
  }
  return out;
}

/// "usage: " and what follows, in lines of at most `width` columns.
std::string usage_lines(const std::string& usage, size_t width) {
  const std::string text = "usage: " + usage;
  if (text.size() <= width) return text + "\n";
  return report::wrapped(text, 7, width).substr(7);
}

}  // namespace

std::vector<HelpPage::Entry>& HelpPage::group(std::string_view title) {
  for (auto& [known, entries] : groups) {
    if (known == title) return entries;
  }
  return groups.emplace_back(title, std::vector<Entry>()).second;
}

size_t help_width() {
  const auto wanted = parse_number<size_t>(environment("COLUMNS"));
  const size_t width =
      wanted && *wanted > 0 ? *wanted : static_cast<size_t>(terminal_width(STDOUT_FILENO));
  return std::clamp(width, kNarrowest, kWidest);
}

std::string help_page_text(const HelpPage& page, size_t width) {
  std::string text = usage_lines(page.usage, width) + "\n" + paragraphs(page.description, width);
  for (const auto& [title, entries] : page.groups) {
    text += "\n" + title + ":\n";
    for (const HelpPage::Entry& entry : entries) text += entry_lines(entry, width);
  }
  if (!page.epilogue.empty()) text += "\n" + paragraphs(page.epilogue, width);
  return text;
}

int print_help(const HelpPage& page) {
  return print_result(help_page_text(page, help_width()), kSame);
}

}  // namespace assay::cli
