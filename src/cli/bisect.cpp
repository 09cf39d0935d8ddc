// SPDX-License-Identifier: Apache-2.0
// Captures golden, then the run under test, and judges them; captures the operators of the latter
// and judges again only where the first verdict says that they would tell more.
#include "cli/bisect.hpp"

#include "base/paths.hpp"
#include "locate/verdict/next_command.hpp"

namespace assay::cli {
namespace {

Result<Judged> judge_captured(const JudgeRuns& judge, const std::string& golden,
                              const std::string& mine) {
  Result<Judged> judged = judge(golden, mine);
  if (judged) return judged;
  const Errc code = judged.error().code;
  if (code == Errc::Usage || code == Errc::Interrupted) return judged;
  return fail(Errc::Invalid,
              "what was captured is nothing that can be judged: " + judged.error().describe());
}

}  // namespace

Result<Judged> bisect(const BisectRequest& request, const JudgeRuns& judge,
                      CaptureWatcher& watcher) {
  const std::string base = request.output + (request.output.ends_with('/') ? "" : "/");
  const std::string golden = request.golden_run.empty() ? base + "golden" : request.golden_run;
  const std::string coarse = base + "mine";
  const std::string fine = base + "mine-operators";
  for (const std::string& folder : {base + "golden", coarse, fine}) {
    if (is_taken(folder))
      return fail(Error{Errc::Usage, folder, std::nullopt,
                        "is there already; give another folder with -o"});
  }
  const auto capture = [&](const SideCapture& wanted) -> Status {
    watcher.begin(wanted);
    Status captured = capture_side(wanted, request.capture);
    watcher.end(wanted);
    return captured;
  };
  if (request.golden_run.empty())
    ASSAY_TRY_STATUS(capture({"golden", request.golden, golden, true}));
  ASSAY_TRY_STATUS(capture({"mine", request.mine, coarse, request.mine_operators}));
  ASSAY_TRY(Judged first, judge_captured(judge, golden, coarse));
  if (first.verdict.outcome == locate::VerdictOutcome::Clean ||
      first.verdict.mine_level == locate::CaptureLevel::Operators ||
      !locate::would_operators_tell(first.verdict))
    return first;

  // All of them: a part of a program is not judged as the program is.
  ASSAY_TRY_STATUS(capture({"mine", request.mine, fine, true}));
  ASSAY_TRY(Judged second, judge_captured(judge, golden, fine));
  if (first.verdict.outcome != locate::VerdictOutcome::FirstWrong ||
      second.verdict.outcome == locate::VerdictOutcome::FirstWrong) {
    second.notes.push_back("runs: " + golden + ", " + coarse + ", " + fine);
    return second;
  }
  first.notes.push_back("its operators, captured once more, show no fault of their own: " +
                        std::string(outcome_name(second.verdict.outcome)));
  first.verdict.next = first.verdict.next_at_hand;
  return first;
}

}  // namespace assay::cli
