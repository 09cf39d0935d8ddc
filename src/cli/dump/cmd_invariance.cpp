// SPDX-License-Identifier: Apache-2.0
// `assay invariance -- CMD`: whether a row of a batch depends on its neighbours. The scenarios and
// the comparison are Python's (python/assay/_invariance_command.py), as those of
// assay.invariance().
//   docs/commands/invariance.md
#include <unistd.h>

#include <climits>
#include <memory>

#include "base/json_text.hpp"
#include "base/python_program.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/dump/child_process.hpp"
#include "cli/dump/dump_request.hpp"
#include "cli/dump/repeated_program.hpp"
#include "cli/interrupt.hpp"
#include "cli/ranges.hpp"

namespace assay::cli {
namespace {

struct InvarianceRequest {
  std::string exec;
  std::vector<std::string> program;
  int64_t vocabulary = 256;
  int64_t length = 6;
  int64_t batch = 3;
  int64_t decode = 2;
  int64_t seed = 0;
  std::string host = "auto";
  std::string output;
  std::string html;
  bool json = false;
  bool require_invariant = false;
  bool no_padding = false;
  bool one_process = false;
};

std::string own_program() {
  char path[PATH_MAX];
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "assay";
}

std::string options_text(const InvarianceRequest& request, const std::string& folder) {
  JsonObject json;
  json.add("vocabulary", request.vocabulary).add("length", request.length);
  json.add("batch", request.batch).add("decode", request.decode).add("seed", request.seed);
  json.add("host", request.host).add("output", folder).add("kept", !request.output.empty());
  json.add("json", request.json).add("require_invariant", request.require_invariant);
  json.add("padding", !request.no_padding).add("one_process", request.one_process);
  json.add("html", request.html);
  return json.text();
}

int run_invariance(const InvarianceRequest& request) {
  if (const Status page = check_page_path(request.html); !page)
    return report_failure("invariance", page.error(), {}, request.json);
  Result<RunFolders> folders = RunFolders::make(request.output, "invariance");
  if (!folders) return report_failure("invariance", folders.error(), {}, request.json);
  std::vector<std::string> words = {python_program(),
                                    "-m",
                                    "assay._invariance_command",
                                    own_program(),
                                    options_text(request, folders->path()),
                                    "--"};
  words.insert(words.end(), request.program.begin(), request.program.end());
  const Result<ChildEnd> end = run_program(words, {});
  if (!end)
    return report_failure("invariance", end.error(),
                          "the comparison runs in Python; ASSAY_PYTHON names one", request.json);
  if (end->exit_status <= kDiffers && !request.output.empty()) folders->keep();
  return end->exit_status;
}

void add_invariance_rows(Command& command, InvarianceRequest& request) {
  command.add("--vocabulary N", "Tokens are drawn from 1 to this one; default 256",
              request.vocabulary, whole_number(3, INT32_MAX));
  command.add("--length N", "Of the prompts, in tokens; default 6", request.length,
              whole_number(3, 1 << 20));
  command.add("--batch N", "The largest number of rows; default 3", request.batch,
              whole_number(2, 1024));
  command.add("--decode N", "How many tokens follow the prompt; default 2", request.decode,
              whole_number(0, 1 << 20));
  command.add("--tokens-seed N", "Of the tokens that are drawn; default 0", request.seed,
              whole_number(0, INT32_MAX));
  command.add("--no-padding", "The program cannot pad: leave out the neighbours that are longer",
              request.no_padding);
  command.add("--one-process",
              "Start the program once for all scenarios, in ASSAY_SCENARIOS: the model loads once",
              request.one_process);
  command.add("--host {auto,torch,ggml}", "What to capture in the program, default auto",
              request.host);
  command.add("--require-invariant", "A kernel that is not invariant is a failure, too",
              request.require_invariant);
  command.in_group("Output");
  command.add("--output, -o DIR", "Folder of the runs, which is kept then", request.output);
  command.add("--html FILE", "One page to open in a browser, without a network", request.html);
  command.add("--json", "What was found as JSON", request.json);
}

}  // namespace

Command invariance_command(const Caller& caller) {
  Command command(caller, "Says whether a row of a batch depends on its neighbours.");
  const auto request = std::make_shared<InvarianceRequest>();
  add_program_row(command, "The program to run and its arguments in one string", request->exec);
  add_invariance_rows(command, *request);
  command.example = "assay invariance --one-process -- python -m assay.invariance tiny/";
  command.epilogue =
      "The program reads the scenario that ASSAY_SCENARIO names and makes its forward calls; with "
      "--one-process those of all scenarios that ASSAY_SCENARIOS names: "
      "docs/invariance.md. Exit status: 0 no leak, 1 a neighbour changes a row, 125 the program "
      "failed or nothing was captured, 2 wrong options, 3 our fault.";
  command.ends_with_next = true;
  command.run = [request](const ParsedArguments& parsed) {
    const Result<std::vector<std::string>> program = program_words(parsed, request->exec);
    if (!program) return report_failure("invariance", program.error(), {}, request->json);
    request->program = *program;
    return run_invariance(*request);
  };
  return command;
}

}  // namespace assay::cli
