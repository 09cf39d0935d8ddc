// SPDX-License-Identifier: Apache-2.0
// One look for the help of every command, as wide as the terminal.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class FormatterBase;
}

namespace assay::cli {

struct HelpPage {
  struct Entry {
    std::string names;  // "--format, -f FORMAT"
    std::string text;
  };
  std::string usage;  // behind "usage: "
  std::string description;
  std::vector<std::pair<std::string, std::vector<Entry>>> groups;  // title and entries
  std::string epilogue;  // lines; indented ones are kept whole
};

/// Columns for help: COLUMNS, else those of the terminal at standard output, else 80.
[[nodiscard]] size_t help_width();
[[nodiscard]] std::string help_page_text(const HelpPage& page, size_t width);
/// "usage: " and what follows, in lines of at most `width` columns.
[[nodiscard]] std::string usage_lines(const std::string& usage, size_t width);

/// Gives the commands that CLI11 parses the same look.
[[nodiscard]] std::shared_ptr<CLI::FormatterBase> help_formatter();

}  // namespace assay::cli
