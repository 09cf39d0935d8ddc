// SPDX-License-Identifier: Apache-2.0
// One look for the help of every command, as wide as the terminal, and the same as a manual page.
#pragma once
#include <string>
#include <utility>
#include <vector>

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

  /// The entries under a title; new ones at the end.
  std::vector<Entry>& group(std::string_view title);
};

/// Columns for help: COLUMNS, else those of the terminal at standard output, else 80.
[[nodiscard]] size_t help_width();
[[nodiscard]] std::string help_page_text(const HelpPage& page, size_t width);
/// Prints it as wide as the terminal. Returns the exit status.
int print_help(const HelpPage& page);

}  // namespace assay::cli
