// SPDX-License-Identifier: Apache-2.0
// Options fill the request of app/verdict.hpp; judging gets what only a command has: the driver of
// its parts, a bar, and Ctrl-C.
#include "cli/verdict_options.hpp"

#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/part_pipe.hpp"
#include "cli/progress_bar.hpp"

namespace assay::cli {

Store floor_run_added_to(app::FloorRuns& runs) {
  return [&runs](const Words& values) -> Status {
    for (const std::string& value : values) {
      ASSAY_TRY(auto paths, app::parse_floor_run(value));
      runs.push_back(std::move(paths));
    }
    return {};
  };
}

void add_verdict_options(Command& command, VerdictRequest& request) {
  command.in_group("Verdict");
  command.add("--floor-run RUNS",
              "GOLDEN:MINE, healthy runs of another prompt: noise is measured; repeatable",
              floor_run_added_to(request.floor_runs));
  command.add("--save-floor FILE", "Keep what --floor-run measured in FILE", request.save_floor);
  command.add("--floor FILE", "Judge by a kept profile", request.floor_file);
  command.add("--golden-weights PATH",
              "Checkpoint of golden's weights, where golden is a fingerprint",
              request.golden_weights);
  command.add("--own-error {auto,exact,inferred,off}",
              "exact (the default): operators are recomputed in fp64; off: they are not",
              request.own_error);
  command.add("--slice NAME", "Only what this depends on: a module, MODULE:SLOT, or \"step N\"",
              request.slice);
  command.add("--why", "List what clean stands on, and which size of error would have been seen",
              request.why);
  command.add("--tokens",
              "List the tokens that the runs choose differently, and how far apart all are",
              request.tokens);
}

Result<Judged> judge_until_interrupted(const std::string& golden_path, const std::string& my_path,
                                       const JudgeRequest& request) {
  const InterruptGuard interrupt_guard;
  return until_interrupted([&]() -> Result<Judged> {
    ProgressBar bar;
    ASSAY_TRY(const std::unique_ptr<run::PartRunner> parts, part_runner({.compat = "none"}));
    JudgeRequest wanted = request;
    wanted.verdict.parts = parts.get();
    wanted.verdict.progress = [&](size_t done, size_t total) { bar.update(done, total); };
    wanted.verdict.interrupted = &interrupted();
    return app::judge_runs(golden_path, my_path, wanted);
  });
}

Status write_page_until_interrupted(const Judged& judged, const JudgeRequest& request) {
  const InterruptGuard interrupt_guard;
  return until_interrupted([&] {
    JudgeRequest wanted = request;
    wanted.verdict.interrupted = &interrupted();
    return app::write_verdict_page(judged, wanted);
  });
}

int exit_status_of(const locate::Verdict& verdict) {
  switch (verdict.outcome) {
    case locate::VerdictOutcome::Clean:
      return kSame;
    case locate::VerdictOutcome::FirstWrong:
      return kDiffers;
    case locate::VerdictOutcome::CannotJudge:
      break;
  }
  return kCannotJudge;
}

}  // namespace assay::cli
