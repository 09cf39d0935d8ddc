// SPDX-License-Identifier: Apache-2.0
// The sheet that says on one page what the others hold.   docs/commands/compare.md
#pragma once
#include "report/table.hpp"

namespace assay::report {

/// Sections, one below the other in the column "section": the sides, coverage and notes; the worst
/// rows of each metric; pairs by type of operator and by layer with their worst row. Each pair of
/// tensors counts once, however many levels show it.
[[nodiscard]] Table build_summary_table(const compare::Comparison& comparison);

}  // namespace assay::report
