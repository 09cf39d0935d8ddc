// SPDX-License-Identifier: Apache-2.0
// The rows of a comparison joined with a verdict: columns err_in ... verdict_confidence.
//   docs/localisation.md
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "compare/compare.hpp"
#include "locate/verdict/locate.hpp"

namespace assay::report {

/// Numbers that are not known are NaN.
struct RowVerdict {
  double err_in = NAN;         // relative L2 of all floating inputs together against golden's
  double err_out = NAN;        // of this tensor
  double err_own = NAN;        // of this tensor against the reference on its own inputs
  double noise_floor = NAN;    // of err_own, as rounding explains it
  double amplification = NAN;  // err_out / err_in
  locate::OwnSource own_source = locate::OwnSource::None;
  locate::RowJudgement verdict = locate::RowJudgement::None;
  std::string confidence = {};  // "high" "medium" "low"
};

/// What is said of each row of a sheet, at the row's index. Errors against golden are those of the
/// rows themselves, own errors those of the verdict. A row without a known own error is never
/// called wrong: it says what can be seen from outside.
///
/// mine   the run that the sheet's pairs and the verdict's records refer to
[[nodiscard]] std::vector<RowVerdict> judge_rows(const locate::Verdict& verdict,
                                                 const run::Run& mine, const compare::Sheet& sheet);

}  // namespace assay::report
