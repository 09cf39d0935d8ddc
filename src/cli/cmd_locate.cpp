// SPDX-License-Identifier: Apache-2.0
// `assay locate GOLDEN MINE`: only the verdict; of two command lines, too.
//   docs/commands/locate.md
#include <cstdio>
#include <memory>

#include "cli/bisect.hpp"
#include "cli/checkpoint.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/pair_options.hpp"
#include "cli/progress_bar.hpp"
#include "cli/ranges.hpp"
#include "cli/verdict_options.hpp"
#include "engines/engines.hpp"
#include "pair/explicit_pairs.hpp"
#include "report/html/comparison_page.hpp"
#include "report/verdict_json.hpp"
#include "report/verdict_terminal.hpp"
#include "run/pair.hpp"

namespace assay::cli {
namespace {

constexpr std::string_view kUsageHint = "assay locate --help shows every option with an example";

struct LocateRequest {
  std::string golden_path;
  std::string my_path;
  BisectRequest bisect;
  VerdictRequest verdict;
  pair::UserRules said;
  bool json = false;
  std::string html;  // path of the page; empty: none
  bool exit_zero = false;
};

// The page shows what every tensor of the runs differs by, which the verdict alone does not need.
Status write_page(const run::RunPair& pair, const Bisected& located, const LocateRequest& request) {
  compare::CompareOptions options;
  options.engines = engines::for_pairing();
  options.user = request.said;
  options.jobs = request.verdict.jobs;
  options.interrupted = &interrupted();
  options.pictures.worst = report::html::kPagePictures;
  ASSAY_TRY(compare::Comparison comparison, compare::compare_runs(pair.golden, pair.mine, options));
  return report::html::write_page(report::html::comparison_page({.comparison = comparison,
                                                                 .golden = pair.golden,
                                                                 .mine = pair.mine,
                                                                 .verdict = &located.verdict,
                                                                 .notes = located.notes,
                                                                 .options = &options}),
                                  request.html);
}

Result<Bisected> judge_runs(const std::string& golden_path, const std::string& my_path,
                            const LocateRequest& request) {
  ProgressBar bar;
  ASSAY_TRY(const run::RunPair pair, run::open_pair(golden_path, my_path, request.verdict.golden_weights));
  const auto& [golden, mine, notes] = pair;
  ASSAY_TRY(const pair::Correspondence pairs,
            pair::correspond(golden, mine, request.said, engines::for_pairing()));
  Bisected located;
  located.notes = notes;
  for (const run::Run* side : {&golden, &mine}) {
    for (const std::string& warning : side->warnings) located.notes.push_back(warning);
  }
  ASSAY_TRY(located.verdict,
            find_verdict(
                golden, mine, pairs, request.verdict,
                [&](size_t done, size_t total) { bar.update(done, total); }, &located.notes));
  if (!request.html.empty()) ASSAY_TRY_STATUS(write_page(pair, located, request));
  return located;
}

Result<Bisected> locate_runs(const std::string& golden_path, const std::string& my_path,
                             const LocateRequest& request) {
  const InterruptGuard interrupt_guard;
  return until_interrupted([&] { return judge_runs(golden_path, my_path, request); });
}

int run_locate(const LocateRequest& request) {
  const auto judge = [&](const std::string& golden, const std::string& mine) {
    return locate_runs(golden, mine, request);
  };
  for (const std::string& path : {request.golden_path, request.my_path}) {
    if (is_checkpoint(path))
      return report_error(path + ": is a checkpoint, and no run",
                          checkpoint_advice(request.golden_path, request.my_path));
  }
  const Result<Bisected> located = request.bisect.golden.empty()
                                       ? judge(request.golden_path, request.my_path)
                                       : bisect(request.bisect, judge);
  if (!located) {
    if (interrupted()) {
      say("interrupted", "no verdict");
      return kInterrupted;
    }
    return report_error(located.error(), located.error().code == Errc::Usage ? kUsageHint : "");
  }
  for (const std::string& note : located->notes) say("note", note);
  const int status = request.exit_zero ? kSame : exit_status_of(located->verdict);
  if (request.json) return print_result(report::verdict_json(located->verdict), status);
  const report::TerminalOptions terminal{.width = std::max(60, terminal_width(STDOUT_FILENO)),
                                         .colour = use_colour(STDOUT_FILENO),
                                         .why = request.verdict.why,
                                         .files = {}};
  return print_result(report::verdict_text(located->verdict, terminal), status);
}

// What is missing, or given twice; empty when the request can be carried out.
std::string problem_of(const LocateRequest& request) {
  const bool commands = !request.bisect.golden.empty() || !request.bisect.mine.empty();
  const bool paths = !request.golden_path.empty() || !request.my_path.empty();
  if (commands && paths) return "either two runs or --golden and --mine, not both";
  if (commands && (request.bisect.golden.empty() || request.bisect.mine.empty()))
    return request.bisect.golden.empty() ? "--golden \"COMMAND\" is missing beside --mine"
                                         : "--mine \"COMMAND\" is missing beside --golden";
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
  add_pair_options(command, request->said);
  add_verdict_options(command, request->verdict);
  command.in_group("Output");
  command.add("--json", "The verdict as JSON", request->json);
  command.add("--html FILE", "One page to open in a browser, without a network", request->html);
  command.add("--exit-zero", "Exit status 0 whatever is found", request->exit_zero);
  command.in_group("Machine");
  command.add("--jobs, -j N", "Threads; default: one a core", request->verdict.jobs,
              whole_number(0, kMaxJobs));
  command.add("--max-memory BYTES", "Of working tensors; default 2GiB",
              parsed_into(request->verdict.max_memory, parse_bytes));
  command.example =
      "assay dump --level operator -o golden -- python run.py\n"
      "  assay dump -o mine -- python ported.py\n"
      "  assay locate golden mine\n"
      "  assay locate --golden \"python run.py\" --mine \"python ported.py\"";
  command.epilogue =
      "Exit status: 0 clean, 1 a wrong operator is named, 125 nothing can be judged, 2 wrong "
      "options or input, 3 our fault.";
  command.run = [request](const ParsedArguments&) {
    const std::string problem = problem_of(*request);
    return problem.empty() ? run_locate(*request) : report_error(problem, kUsageHint);
  };
  return command;
}

}  // namespace assay::cli
