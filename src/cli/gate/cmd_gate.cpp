// SPDX-License-Identifier: Apache-2.0
// `assay gate TWIN --mine "COMMAND"`: two captures and a verdict, for CI.   docs/commands/gate.md
#include <filesystem>
#include <memory>

#include "base/paths.hpp"
#include "cli/answer.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"
#include "cli/gate/gate.hpp"
#include "cli/gate/gate_report.hpp"
#include "cli/interrupt.hpp"
#include "cli/pair_options.hpp"

namespace assay::cli {
namespace {

struct GateOptions {
  GateRequest request;
  std::string format = "text";
};

int refuse(const GateOptions& options, const Error& error) {
  return report_failure("gate", error, {}, options.format == "json");
}

std::string workspace() {
  const std::string named = environment("GITHUB_WORKSPACE");
  return named.empty() ? std::filesystem::current_path().string() : named;
}

std::string report_of(const GateOptions& options, const GateOutcome& outcome) {
  if (options.format == "json") return gate_json(options.request, outcome);
  if (options.format == "github") return gate_github(outcome, workspace());
  if (options.format == "junit") return gate_junit(options.request, outcome);
  return gate_text(options.request, outcome);
}

int run(const GateOptions& options) {
  const Result<GateOutcome> outcome = run_gate(options.request);
  if (!outcome) {
    const Error& error = outcome.error();
    if (error.code == Errc::Interrupted) {
      say("interrupted", "no verdict");
      return kInterrupted;
    }
    return refuse(options, error);
  }
  if (outcome->kept)
    say("gate", "runs: " + outcome->judged.golden_path + ", " + outcome->judged.my_path);
  return print_result(report_of(options, *outcome), outcome->status);
}

// What is missing; empty when the request can be carried out.
std::string problem_of(const GateRequest& request) {
  if (request.mine.empty()) return "--mine \"COMMAND\" is missing: the program to judge";
  if (request.first.empty() && request.golden.empty())
    return "what is right is missing: a twin, a run or a fingerprint, or --golden \"COMMAND\"";
  const Status page = check_page_path(request.judge.html);
  return page ? "" : page.error().describe();
}

void add_gate_rows(Command& command, GateOptions& options) {
  GateRequest& request = options.request;
  command.add("FIRST", "A twin's folder, a run or a fingerprint: what is right", request.first);
  command.add("--golden COMMAND",
              "Command line of the reference; default with a twin: python -m assay.twin run {twin}",
              request.golden);
  command.add("--mine COMMAND", "Command line of the program under test", request.mine);
  command.in_group("Capture");
  command.add("--level {module,operator}",
              "Of mine; default operator. module: operators only where modules are not clean",
              chosen(request.operators, {{"module", false}, {"operator", true}}));
  command.add("--output, -o DIR",
              "Keep the captures there; default: a temporary folder that goes when all is clean",
              request.output);
  command.add("--require-capture", "A capture that lacks something is not judged",
              request.require_capture);
  command.add("--show-output", "Leave the programs' standard output on ours", request.show_output);
  add_pair_options(command, request.judge.said, request.judge.verdict.asked.options);
  add_verdict_options(command, request.judge.verdict);
  command.in_group("Output");
  command.add("--format {text,json,github,junit}", "Of the outcome on standard output",
              options.format);
  command.add("--html FILE", "One page to open in a browser, without a network",
              request.judge.html);
  command.in_group("Machine");
  add_jobs(command, request.judge.verdict.jobs, "Threads of the verdict; default: one a core");
  command.add("--max-memory BYTES", "Of working tensors; default 2GiB",
              parsed_into(request.judge.verdict.max_memory, parse_bytes));
}

}  // namespace

Command gate_command(const Caller& caller) {
  Command command(caller, "Judge a program against golden in one go: a line for CI");
  const auto options = std::make_shared<GateOptions>();
  add_gate_rows(command, *options);
  command.example =
      "assay gate tiny --mine \"python port.py {twin}\"\n"
      "  assay gate golden.json.gz --mine \"python port.py\"\n"
      "  assay gate --golden \"python run.py\" --mine \"python ported.py\"";
  command.epilogue =
      "{twin} and {gguf} in a command are the twin's folder and its model.gguf; ASSAY_TWIN is "
      "set.\n"
      "Exit status: 0 clean, 1 a wrong operator is named, 125 nothing can be judged (a program "
      "failed, nothing was captured, other prompts), 2 wrong options or input, 3 our fault, 130 "
      "interrupted.";
  command.ends_with_next = true;
  command.run = [options](const ParsedArguments&) {
    const std::string problem = problem_of(options->request);
    if (problem.empty()) return run(*options);
    return refuse(*options, {Errc::Usage, {}, std::nullopt, problem});
  };
  return command;
}

}  // namespace assay::cli
