// SPDX-License-Identifier: Apache-2.0
// One screen for people: what was compared, the worst rows, the verdict, where the files are.
#pragma once
#include <string>
#include <vector>

#include "compare/compare.hpp"

namespace assay::report {

struct TerminalOptions {
  int width = 80;  // columns; nothing is longer except single words, as paths of files
  /// For programs that read the screen from a pipe: notes and reasons are a line each.
  bool whole_lines = false;
  bool colour = false;
  bool blocks = true;          // the terminal shows block characters
  std::string first_bad = {};  // node that a verdict blames first; empty: none
  size_t worst_count = 10;
  bool why = false;                // of a verdict: what it stands on
  bool tokens = false;             // and what the runs choose
  bool remarks = true;             // further candidates, notes
  std::vector<std::string> files;  // written reports, named at the end
};

[[nodiscard]] std::string terminal_report(const compare::Comparison& comparison,
                                          const TerminalOptions& options);

/// The sentence of the verdict: "same: all 27 pairs are equal bit for bit", "differs: ...".
[[nodiscard]] std::string verdict(const compare::Comparison& comparison);

/// Every metric of the single pair of two files, one a line.
[[nodiscard]] std::string pair_report(const compare::Comparison& comparison,
                                      const TerminalOptions& options);

}  // namespace assay::report
