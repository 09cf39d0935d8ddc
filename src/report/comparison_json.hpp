// SPDX-License-Identifier: Apache-2.0
// What a comparison found, as `assay compare --json` prints it.   docs/commands/compare.md, "JSON"
#pragma once
#include <string>
#include <vector>

#include "compare/compare.hpp"
#include "locate/verdict/locate.hpp"

namespace assay::report {

struct ComparisonSummary {
  const compare::Comparison& comparison;
  const run::Run& golden;
  const run::Run& mine;
  const locate::Verdict* verdict = nullptr;  // null: none was found
  const std::vector<std::string>& notes;     // beside those of the comparison
  const std::vector<std::string>& files;     // that were written
};

/// One object: counts, sheets, the worst rows, what the verdict says of how many rows, notes,
/// files, and the verdict itself.
[[nodiscard]] std::string comparison_json(const ComparisonSummary& summary);

}  // namespace assay::report
