// SPDX-License-Identifier: Apache-2.0
#include "cli/bisect.hpp"

#include <cstdio>

#include "base/atomic_file.hpp"
#include "base/paths.hpp"
#include "cli/assignments.hpp"
#include "cli/commands.hpp"
#include "cli/dump/dump_request.hpp"
#include "cli/interrupt.hpp"

namespace assay::cli {
namespace {

struct Capture {
  std::string side;     // "golden", "mine"
  std::string command;  // of the user
  std::string folder;
  bool operators = false;                 // not only modules, and their weights
  std::vector<std::string> modules = {};  // patterns; empty: all
};

Status capture(const Capture& wanted) {
  ASSAY_TRY(std::vector<std::string> command, split_command(wanted.command));
  const ScopedEnvironment environment(take_assignments(&command));
  if (command.empty()) return fail(Errc::Usage, "--" + wanted.side + " names no program to run");
  const std::string level = wanted.operators ? "operator" : "module";
  std::vector<std::string> words = {"-o", wanted.folder, "--host", "torch", "--level", level};
  if (!wanted.operators) words.emplace_back("--weights");
  for (const std::string& pattern : wanted.modules) {
    words.emplace_back("--modules");
    words.push_back(pattern);
  }
  words.emplace_back("--");
  words.insert(words.end(), command.begin(), command.end());
  say("locate", wanted.side + ", " + level + " level: " + wanted.command);
  ASSAY_TRY_STATUS(make_directories(wanted.folder, 0750));
  const int status = run_command(dump_command({DumpName::Assay, "assay dump"}), words);
  if (status == kInterrupted) {
    interrupted() = true;
    return fail(Errc::Interrupted, "interrupted");
  }
  if (status == 0) return {};
  return fail(Errc::Invalid, "the program of " + wanted.side + " ended with status " +
                                 std::to_string(status) +
                                 ", so its run is not one to judge: " + wanted.command);
}

Result<Bisected> judge_captured(const JudgeRuns& judge, const std::string& golden,
                                const std::string& mine) {
  Result<Bisected> judged = judge(golden, mine);
  if (judged) return judged;
  const Errc code = judged.error().code;
  if (code == Errc::Usage || code == Errc::Interrupted) return judged;
  return fail(Errc::Invalid,
              "nothing that can be judged was captured; is the program one that "
              "computes with PyTorch? " +
                  judged.error().describe());
}

}  // namespace

Result<Bisected> bisect(const BisectRequest& request, const JudgeRuns& judge) {
  const std::string base = request.output + (request.output.ends_with('/') ? "" : "/");
  const std::string golden = base + "golden";
  const std::string coarse = base + "mine";
  const std::string fine = base + "mine-operators";
  for (const std::string& folder : {golden, coarse, fine}) {
    if (is_taken(folder))
      return fail(Error{Errc::Usage, folder, std::nullopt,
                        "is there already; give another folder with -o"});
  }
  ASSAY_TRY_STATUS(capture({"golden", request.golden, golden, true}));
  ASSAY_TRY_STATUS(capture({"mine", request.mine, coarse, false}));
  ASSAY_TRY(Bisected first, judge_captured(judge, golden, coarse));
  if (first.verdict.outcome == locate::VerdictOutcome::Clean ||
      first.verdict.mine_level == locate::CaptureLevel::Operators)
    return first;

  std::vector<std::string> suspects;
  if (!first.verdict.candidates.empty()) {
    const locate::Finding& suspect = first.verdict.candidates.front();
    for (const std::string& module : {suspect.module, suspect.also})
      if (!module.empty()) suspects.push_back(module + "*");
  }
  ASSAY_TRY_STATUS(capture({"mine", request.mine, fine, true, suspects}));
  ASSAY_TRY(Bisected second, judge_captured(judge, golden, fine));
  if (suspects.empty() || second.verdict.outcome == locate::VerdictOutcome::FirstWrong) {
    second.notes.push_back("runs: " + golden + ", " + coarse + ", " + fine);
    return second;
  }
  first.notes.push_back("its operators, captured once more, show no fault of their own: " +
                        std::string(outcome_name(second.verdict.outcome)));
  first.verdict.next.clear();
  return first;
}

}  // namespace assay::cli
