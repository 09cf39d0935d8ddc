// SPDX-License-Identifier: Apache-2.0
// The verdict's share of a comparison's rows: columns err_in ... confidence.   compare 8.2, 8.3, 8.6
#pragma once
#include "compare/compare.hpp"
#include "locate/locate.hpp"

namespace assay::locate {

/// Fills RowVerdict of every row. Errors against golden are those of the rows themselves, own errors those of the verdict.
/// A row without a known own error is never called wrong: it says what can be seen from outside.
void judge_rows(const Verdict& verdict, const run::Run& mine, compare::Comparison* comparison);

}  // namespace assay::locate
