// SPDX-License-Identifier: Apache-2.0
// `assay locate GOLDEN MINE`: only the verdict; of two command lines, too.   docs/commands/locate.md
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "cli/bisect.hpp"
#include "cli/checkpoint.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/pair_options.hpp"
#include "cli/progress_bar.hpp"
#include "cli/ranges.hpp"
#include "cli/verdict_options.hpp"
#include "engines/engines.hpp"
#include "pair/explicit_pairs.hpp"
#include "report/verdict_json.hpp"
#include "report/verdict_terminal.hpp"
#include "run/pair.hpp"

namespace assay::cli {
namespace {

struct LocateRequest {
  std::string golden_path;
  std::string my_path;
  BisectRequest bisect;
  VerdictRequest verdict;
  PairRequest pairs;
  std::string max_memory;
  bool json = false;
  bool exit_zero = false;
};

Result<Bisected> judge_runs(const std::string& golden_path, const std::string& my_path,
                            const LocateRequest& request) {
  ProgressBar bar;
  ASSAY_TRY(const run::RunPair pair, run::open_pair(golden_path, my_path));
  const auto& [golden, mine, notes] = pair;
  pair::UserRules said;
  ASSAY_TRY_STATUS(read_pair_options(request.pairs, &said));
  ASSAY_TRY(const pair::Correspondence pairs,
            pair::correspond(golden, mine, said, engines::for_pairing()));
  Bisected located;
  located.notes = notes;
  for (const run::Run* side : {&golden, &mine}) {
    for (const std::string& warning : side->warnings) located.notes.push_back(warning);
  }
  ASSAY_TRY(located.verdict,
            find_verdict(
                golden, mine, pairs, request.verdict,
                [&](size_t done, size_t total) { bar.update(done, total); }, &located.notes));
  return located;
}

Result<Bisected> locate_runs(const std::string& golden_path, const std::string& my_path,
                             const LocateRequest& request) {
  const InterruptGuard interrupt_guard;
  return until_interrupted([&] { return judge_runs(golden_path, my_path, request); });
}

int run_command(const LocateRequest& request) {
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
    return report_error(located.error(),
                        located.error().code == Errc::Usage
                            ? "assay locate --help shows every option with an example"
                            : "");
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

void add_locate_command(CLI::App& app, int& exit_status) {
  CLI::App* command = app.add_subcommand("locate", "Name the first wrong operator of a run");
  auto request = std::make_shared<LocateRequest>();
  command->add_option("golden_run", request->golden_path, "Reference run, best with operators")
      ->type_name("PATH");
  command->add_option("my_run", request->my_path, "Run under test")->type_name("PATH");
  const char* group = "Capture and locate in one go";
  command->add_option("--golden", request->bisect.golden, "Command line of the reference")
      ->type_name("COMMAND")
      ->group(group);
  command->add_option("--mine", request->bisect.mine, "Command line of the program under test")
      ->type_name("COMMAND")
      ->group(group);
  command
      ->add_option("-o,--output", request->bisect.output,
                   "Folder of the captured runs; default: locate-runs")
      ->type_name("DIR")
      ->group(group);
  add_pair_options(*command, request->pairs);
  add_verdict_options(*command, request->verdict);
  command->add_flag("--json", request->json, "The verdict as JSON")->group("Output");
  command->add_flag("--exit-zero", request->exit_zero, "Exit status 0 whatever is found")
      ->group("Output");
  command->add_option("--jobs,-j", request->verdict.jobs, "Threads; default: one a core")
      ->check(WholeNumber{})
      ->group("Machine");
  command->add_option("--max-memory", request->max_memory, "Of working tensors; default 2GiB")
      ->type_name("BYTES")
      ->group("Machine");
  command->footer(
      "example:\n"
      "  assay dump --level operator -o golden -- python run.py\n"
      "  assay dump -o mine -- python ported.py\n"
      "  assay locate golden mine\n"
      "  assay locate --golden \"python run.py\" --mine \"python ported.py\"\n\n"
      "Exit status: 0 clean, 1 a wrong operator is named, 125 nothing can be judged, 2 wrong "
      "options "
      "or input, 3 our fault.");
  command->callback([request, &exit_status] {
    if (const std::string problem = problem_of(*request); !problem.empty()) {
      exit_status = report_error(problem, "assay locate --help shows every option with an example");
      return;
    }
    if (!request->max_memory.empty()) {
      const Result<uint64_t> bytes = parse_bytes(request->max_memory);
      if (!bytes) {
        exit_status = report_error(bytes.error());
        return;
      }
      request->verdict.max_memory = *bytes;
    }
    exit_status = run_command(*request);
  });
}

}  // namespace assay::cli
