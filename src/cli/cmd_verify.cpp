// SPDX-License-Identifier: Apache-2.0
// `assay verify RUN`: whether a run is as its capture left it.   docs/commands/verify.md
#include <algorithm>
#include <map>
#include <memory>

#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/progress_bar.hpp"
#include "run/open.hpp"
#include "run/program_command.hpp"
#include "run/run.hpp"
#include "run/verify.hpp"

namespace assay::cli {
namespace {

struct VerifyRequest {
  std::string path;
  int jobs = 0;
  bool json = false;
};

// What is missing although nothing is damaged; empty when nothing is.
std::string why_incomplete(const run::Run& run) {
  if (run.coverage.lost > 0) return "the capture lost " + counted(run.coverage.lost, "tensor");
  return run.coverage.complete ? "" : "the capture did not finish";
}

std::string sentence(const run::Run& run, const run::Verification& verified) {
  const std::string read =
      counted(verified.payloads, "tensor") + ", " + human_bytes(verified.bytes);
  if (!verified.damage.empty()) {
    return "damaged: " + counted(verified.damage.size(), "fault") + "; " + read + " were read";
  }
  if (const std::string why = why_incomplete(run); !why.empty())
    return "incomplete: " + why + "; what is there is whole: " + read;
  if (verified.digests == 0)
    return "whole: " + read +
           "; no digests were written, so it is only known that everything can be read";
  return "whole: " + read + ", as they were captured (" + counted(verified.digests, "file") +
         " held against digests)";
}

// A whole run is looked at, another one captured again.
std::string next_of(const run::Run& run, bool whole) {
  if (whole || run::program_of(run).empty()) return "assay show " + shell_quote(run.path);
  return run::dump_command(run, "-o " + shell_quote(run.path + "-again"));
}

Answer answer_of(const run::Run& run, const run::Verification& verified) {
  Answer answer{"verify", "whole", sentence(run, verified), {}, kSame};
  if (!verified.damage.empty()) {
    answer.outcome = "damaged";
    answer.exit_status = kDiffers;
  } else if (!why_incomplete(run).empty()) {
    answer.outcome = "incomplete";
    answer.exit_status = kCannotJudge;
  }
  answer.next = next_of(run, answer.exit_status == kSame);
  return answer;
}

/// "FILE: what"; of several faults of a file its name once, and the first of them below it.
std::string damage_text(const std::vector<run::Damage>& damage) {
  constexpr size_t kShown = 8;
  std::vector<std::string> order;  // of files
  std::map<std::string, std::vector<std::string>> faults;
  for (const run::Damage& one : damage) {
    std::vector<std::string>& of_file = faults[one.file];
    if (of_file.empty()) order.push_back(one.file);
    of_file.push_back(one.what);
  }
  std::string text;
  for (const std::string& file : order) {
    const std::vector<std::string>& all = faults.at(file);
    text += printable(file) + ": " +
            (all.size() == 1 ? printable(all[0]) : counted(all.size(), "fault")) + "\n";
    for (size_t i = 0; all.size() > 1 && i < std::min(kShown, all.size()); ++i)
      text += "  " + printable(all[i]) + "\n";
    if (all.size() > kShown)
      text += "  and " + std::to_string(all.size() - kShown) + " more, which --json lists\n";
  }
  return text;
}

JsonObject json_of(const Answer& answer, const run::Verification& verified) {
  const auto damage = [](const run::Damage& one) {
    return JsonObject().add("file", one.file).add("what", one.what).text();
  };
  return std::move(answer_json(answer)
                       .add("tensors", verified.payloads)
                       .add("bytes", verified.bytes)
                       .add("digests", verified.digests)
                       .add_json("damage", json_list(verified.damage, damage)));
}

int run_verify(const VerifyRequest& request) {
  const InterruptGuard interrupt_guard;
  const Result<run::Run> run = until_interrupted([&] { return run::open_run(request.path); });
  if (!run && interrupted()) {
    say("interrupted", "not everything was read");
    return kInterrupted;
  }
  if (!run)
    return report_failure("verify", run.error(), "assay verify RUN takes what assay show takes",
                          request.json);
  if (run->path != request.path)
    say("note", request.path + " is not there; " + run->path + " is read");
  Result<run::Verification> verified = fail(Errc::Internal, "");
  {
    ProgressBar bar;
    verified = run::verify_run(
        *run, {.jobs = request.jobs,
               .progress = [&bar](size_t done, size_t total) { bar.update(done, total); },
               .interrupted = &interrupted()});
  }
  if (!verified) {
    if (!interrupted()) return report_failure("verify", verified.error(), {}, request.json);
    say("interrupted", "not everything was read");
    return kInterrupted;
  }
  const Answer answer = answer_of(*run, *verified);
  return print_answer(answer, damage_text(verified->damage) + answer.sentence + "\n", request.json,
                      json_of(answer, *verified));
}

}  // namespace

Command verify_command(const Caller& caller) {
  Command command(caller, "Says whether a run is as its capture left it");
  const auto request = std::make_shared<VerifyRequest>();
  command.require("RUN", "A run of any layout, or a tensor file", request->path);
  command.in_group("Output");
  command.add("--json", "One JSON object for programs", request->json);
  command.in_group("Machine");
  add_jobs(command, request->jobs);
  command.example = "assay verify golden";
  command.epilogue =
      "Exit status: 0 whole, 1 damaged, 125 whole as far as it goes (the capture did not finish), "
      "2 wrong options or input, 3 our fault.";
  command.ends_with_next = true;
  command.run = [request](const ParsedArguments&) { return run_verify(*request); };
  return command;
}

}  // namespace assay::cli
