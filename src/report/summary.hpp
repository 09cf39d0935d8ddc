// SPDX-License-Identifier: Apache-2.0
// The sheet that says on one page what the others hold.   docs/commands/compare.md
#pragma once
#include "locate/verdict/locate.hpp"
#include "report/table.hpp"

namespace assay::report {

/// A sentence, and below it sections in the column "section": counts, coverage and notes; the worst
/// rows, all together and of each metric; pairs by type of operator and by layer with their worst
/// row. Each pair of tensors counts once, however many levels show it. Links lead to the sheets of
/// the comparison, the first tables of the workbook, and to their rows.
///
/// verdict   on these runs, for the sentence; null: what the tables say
[[nodiscard]] Table build_summary_table(const compare::Comparison& comparison,
                                        const locate::Verdict* verdict = nullptr);

}  // namespace assay::report
