// SPDX-License-Identifier: Apache-2.0
// One screen for people: what was compared, the worst rows, the verdict, where the files are.
#pragma once
#include <string>
#include <vector>

#include "compare/compare.hpp"
#include "locate/verdict/locate.hpp"

namespace assay::report {

struct TerminalOptions {
  int width = 80;  // columns; nothing is longer except single words, as paths of files
  /// For programs that read the screen from a pipe: notes and reasons are a line each.
  bool whole_lines = false;
  bool colour = false;
  bool blocks = true;                        // the terminal shows block characters
  std::string first_bad = {};                // node that a verdict blames first; empty: none
  const locate::Verdict* verdict = nullptr;  // that stands behind the report; null: none
  size_t worst_count = 10;
  bool why = false;                // of a verdict: what it stands on
  bool tokens = false;             // and what the runs choose
  bool remarks = true;             // further candidates, notes
  std::vector<std::string> files;  // written reports, named at the end
};

[[nodiscard]] std::string terminal_report(const compare::Comparison& comparison,
                                          const TerminalOptions& options);

/// What the tables say, in a sentence: "same: 27 of 27 pairs equal in every value", "differs: ...".
///
/// located   the verdict that is told besides; null: none. Runs are not the same where it is another
///           than clean
[[nodiscard]] std::string verdict(const compare::Comparison& comparison,
                                  const locate::Verdict* located = nullptr);

/// Whether every value of golden is in mine, so that there is nothing to judge.
[[nodiscard]] bool is_same(const compare::Comparison& comparison);

/// Every metric of the single pair of two files, one a line.
[[nodiscard]] std::string pair_report(const compare::Comparison& comparison,
                                      const TerminalOptions& options);

}  // namespace assay::report
