// SPDX-License-Identifier: Apache-2.0
// What `assay compare`, `assay locate` and `assay gate` share: options of the verdict, runs judged
// with a progress bar and Ctrl-C, and statuses.
#pragma once
#include <string>

#include "app/judge_runs.hpp"
#include "app/verdict.hpp"
#include "base/result.hpp"
#include "cli/argparse.hpp"

namespace assay::cli {

using app::Judged;
using app::JudgeRequest;
using app::VerdictRequest;

void add_verdict_options(Command& command, VerdictRequest& request);

/// --floor-run, of several commands.
[[nodiscard]] Store floor_run_added_to(app::FloorRuns& runs);

/// app::judge_runs() for a person at a terminal: a first Ctrl-C ends it early.
[[nodiscard]] Result<Judged> judge_until_interrupted(const std::string& golden_path,
                                                     const std::string& my_path,
                                                     const JudgeRequest& request);
/// The same of app::write_verdict_page().
[[nodiscard]] Status write_page_until_interrupted(const Judged& judged,
                                                  const JudgeRequest& request);

/// kSame: clean, or clean up to a near tie; kDiffers: a wrong operator is named; kCannotJudge.
[[nodiscard]] int exit_status_of(const locate::Verdict& verdict);

}  // namespace assay::cli
