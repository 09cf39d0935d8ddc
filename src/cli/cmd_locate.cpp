// SPDX-License-Identifier: Apache-2.0
// `assay locate GOLDEN MINE`: only the verdict; of two command lines, too.
//   docs/commands/locate.md
#include <cstdio>
#include <memory>

#include "base/shell_words.hpp"
#include "cli/answer.hpp"
#include "cli/bisect.hpp"
#include "cli/checkpoint.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/pair_options.hpp"
#include "cli/ray.hpp"
#include "cli/verdict_options.hpp"
#include "locate/verdict/sentence.hpp"
#include "report/verdict_json.hpp"
#include "report/verdict_terminal.hpp"

namespace assay::cli {
namespace {

struct LocateRequest {
  std::string golden_path;
  std::string my_path;
  BisectRequest bisect;
  JudgeRequest judge;
  bool json = false;
  bool exit_zero = false;
  RayRequest ray;
};

class SayCaptures : public CaptureWatcher {
 public:
  void begin(const SideCapture& capture) override {
    say("locate", capture.side + ", " + (capture.operators ? "operator" : "module") +
                      " level: " + capture.command);
  }
};

/// Both programs are captured; the page is of the last verdict, and its errors are its own.
Result<Judged> locate_programs(const LocateRequest& request) {
  JudgeRequest only_verdict = request.judge;
  only_verdict.html.clear();
  only_verdict.verdict.asked.page = !request.judge.html.empty();
  const auto judge = [&](const std::string& golden, const std::string& mine) {
    return judge_until_interrupted(golden, mine, only_verdict);
  };
  SayCaptures watcher;
  ASSAY_TRY(Judged located, bisect(request.bisect, judge, watcher));
  if (!request.judge.html.empty())
    ASSAY_TRY_STATUS(write_page_until_interrupted(located, request.judge));
  return located;
}

int run_locate(const LocateRequest& request) {
  for (const std::string& path : {request.golden_path, request.my_path}) {
    if (is_checkpoint(path))
      return report_failure("locate",
                            {Errc::WrongKind, path, std::nullopt, "is a checkpoint, and no run"},
                            checkpoint_advice(request.golden_path, request.my_path), request.json,
                            checkpoint_command(request.golden_path, request.my_path));
  }
  Result<Judged> located =
      request.bisect.golden.empty()
          ? judge_until_interrupted(request.golden_path, request.my_path, request.judge)
          : locate_programs(request);
  if (!located) {
    if (interrupted()) {
      say("interrupted", "no verdict");
      return kInterrupted;
    }
    const Error& error = located.error();
    const bool of_programs = !request.bisect.golden.empty() && error.code != Errc::Usage;
    return report_failure("locate", error, {}, request.json,
                          of_programs && error.code == Errc::NotFound ? own_host_command()
                          : of_programs                               ? "assay doctor"
                          : error.code == Errc::NothingInCommon
                              ? "assay show " + shell_quote(request.my_path)
                              : "");
  }
  for (const std::string& note : located->notes) say("note", note);
  locate::Verdict& verdict = located->verdict;
  if (request.json)
    verdict.notes.insert(verdict.notes.begin(), located->notes.begin(), located->notes.end());
  const Answer answer{"locate", outcome_name(verdict.outcome, verdict.order_known),
                      locate::sentence(verdict), verdict.next,
                      request.exit_zero ? kSame : exit_status_of(verdict)};
  const report::TerminalOptions terminal{.width = std::max(60, terminal_width(STDOUT_FILENO)),
                                         .colour = use_colour(STDOUT_FILENO),
                                         .why = request.judge.verdict.why,
                                         .tokens = request.judge.verdict.tokens,
                                         .files = {}};
  return print_answer(answer, report::verdict_text(verdict, terminal), request.json,
                      answer_json(answer, report::verdict_json(verdict)));
}

// What is missing, or given twice; empty when the request can be carried out.
std::string problem_of(const LocateRequest& request) {
  const bool commands = !request.bisect.golden.empty() || !request.bisect.mine.empty();
  const bool paths = !request.golden_path.empty() || !request.my_path.empty();
  if (commands && paths) return "either two runs or --golden and --mine, not both";
  if (commands && (request.bisect.golden.empty() || request.bisect.mine.empty()))
    return request.bisect.golden.empty() ? "--golden \"COMMAND\" is missing beside --mine"
                                         : "--mine \"COMMAND\" is missing beside --golden";
  if (commands && request.ray.is_wanted)
    return "--ray reads two runs, it starts no --golden and --mine";
  if (commands) return {};
  if (request.golden_path.empty()) return "the golden run is missing: assay locate GOLDEN MINE";
  if (request.my_path.empty()) return "the run to judge is missing: assay locate GOLDEN MINE";
  return {};
}

}  // namespace

Command locate_command(const Caller& caller) {
  Command command(caller, "Name the first wrong operator of a run");
  const auto request = std::make_shared<LocateRequest>();
  command.add("GOLDEN_RUN", "Reference run, best with operators", request->golden_path);
  command.add("MY_RUN", "Run under test", request->my_path);
  command.in_group("Capture and locate in one go");
  command.add("--golden COMMAND", "Command line of the reference", request->bisect.golden);
  command.add("--mine COMMAND", "Command line of the program under test", request->bisect.mine);
  command.add("--output, -o DIR", "Folder of the captured runs; default: locate-runs",
              request->bisect.output);
  add_pair_options(command, request->judge.said, request->judge.verdict.asked.options);
  add_verdict_options(command, request->judge.verdict);
  command.in_group("Output");
  command.add("--json", "What was found as one JSON object", request->json);
  command.add("--html FILE", "One page to open in a browser, without a network",
              request->judge.html);
  command.add("--exit-zero", "Exit status 0 whatever is found", request->exit_zero);
  command.in_group("Machine");
  add_jobs(command, request->judge.verdict.jobs);
  command.add("--max-memory BYTES", "Of working tensors; default 2GiB",
              parsed_into(request->judge.verdict.max_memory, parse_bytes));
  add_ray_options(command, request->ray, true);
  command.example =
      "assay dump --level operator -o golden -- python run.py\n"
      "  assay dump -o mine -- python ported.py\n"
      "  assay locate golden mine\n"
      "  assay locate --golden \"python run.py\" --mine \"python ported.py\"";
  command.epilogue =
      "Exit status: 0 clean, 1 a wrong operator is named, 125 nothing can be judged, 2 wrong "
      "options or input, 3 our fault.";
  command.ends_with_next = true;
  command.run = [request](const ParsedArguments& given) {
    const std::string problem = problem_of(*request);
    if (problem.empty() && has_to_hand_over(request->ray))
      return hand_over_to_ray(request->ray, "locate", given.all,
                              {request->golden_path, request->my_path});
    if (problem.empty()) return run_locate(*request);
    return report_failure("locate", {Errc::Usage, {}, std::nullopt, problem}, {}, request->json);
  };
  return command;
}

}  // namespace assay::cli
