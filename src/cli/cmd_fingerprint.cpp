// SPDX-License-Identifier: Apache-2.0
// `assay fingerprint RUN -o golden.json.gz`: what of a golden run can be committed.
//   docs/commands/fingerprint.md
#include <memory>

#include "app/fingerprint.hpp"
#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/answer.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/verdict_options.hpp"

namespace assay::cli {
namespace {

struct FingerprintRequest {
  app::FingerprintRequest file;
  bool json = false;
};

Answer answer_of(const FingerprintRequest& request, const app::WrittenFingerprint& written) {
  return {"fingerprint", "written",
          request.file.output + ": " + human_bytes(written.file.bytes.size()) + " of " +
              request.file.run + ", " + counted(written.file.steps, "step"),
          "assay gate " + shell_quote(request.file.output) + " --mine " +
              shell_quote(written.program.empty() ? "COMMAND" : written.program),
          kSame};
}

std::string text_of(const Answer& answer, const app::WrittenFingerprint& written) {
  const run::FingerprintFile& file = written.file;
  std::string text = answer.sentence + "\n";
  text += "  program     " +
          (file.operators > 0
               ? counted(file.operators, "operator") + ", to be replayed where its weights are"
               : std::string("none: golden was captured without operators")) +
          "\n";
  text += "  statistics  of " + counted(file.statistics, "tensor") + "\n";
  text += "  digests     of " + counted(file.weights, "weight") + "; " +
          counted(file.kept, "small tensor") + " with all values\n";
  text += std::string("  floors      ") +
          (written.has_floors ? "as measured"
                              : "none: statistics alone are judged where --floor tells more") +
          "\n";
  return text;
}

JsonObject json_of(const Answer& answer, const FingerprintRequest& request,
                   const app::WrittenFingerprint& written) {
  const run::FingerprintFile& file = written.file;
  return std::move(answer_json(answer)
                       .add("file", request.file.output)
                       .add("bytes", file.bytes.size())
                       .add("steps", file.steps)
                       .add("operators", file.operators)
                       .add("statistics", file.statistics)
                       .add("weights", file.weights)
                       .add("kept", file.kept)
                       .add("floors", written.has_floors));
}

Store without_added_to(app::FingerprintRequest& request) {
  return [&request](const Words& values) -> Status {
    for (const std::string& part : values)
      (part == "statistics" ? request.statistics : request.program) = false;
    return {};
  };
}

int run_fingerprint(const FingerprintRequest& request) {
  const InterruptGuard interrupt_guard;
  const Result<app::WrittenFingerprint> written =
      until_interrupted([&] { return app::write_fingerprint(request.file); });
  if (written) {
    const Answer answer = answer_of(request, *written);
    return print_answer(answer, text_of(answer, *written), request.json,
                        json_of(answer, request, *written));
  }
  if (interrupted()) {
    say("interrupted", "no fingerprint was written");
    return kInterrupted;
  }
  return report_failure("fingerprint", written.error(), {}, request.json);
}

}  // namespace

Command fingerprint_command(const Caller& caller) {
  Command command(caller, "Writes what of a golden run is small enough to commit");
  const auto request = std::make_shared<FingerprintRequest>();
  request->file.output = "golden.json.gz";
  request->file.interrupted = &interrupted();
  command.require("RUN", "The golden run, best with operators", request->file.run);
  command.add("--output, -o FILE", "The file; default: golden.json.gz", request->file.output);
  command.add("--weights PATH", "Checkpoint of a run that was captured without weights",
              request->file.weights);
  command.add("--floor-run RUNS",
              "GOLDEN:MINE, healthy runs of another prompt: noise is measured and kept; repeatable",
              floor_run_added_to(request->file.floor_runs));
  command.add("--floor FILE", "Keep these floors", request->file.floor_file);
  command.add("--json", "What was written, as JSON", request->json);
  command.in_group("Size");
  command.add("--without {statistics,program}", "Leave this out; repeatable",
              without_added_to(request->file));
  command.add("--most BYTES", "Write nothing that is larger",
              parsed_into(request->file.most, parse_bytes));
  command.in_group("Machine");
  add_jobs(command, request->file.jobs);
  command.example =
      "assay dump --level operator -o golden -- python run.py\n"
      "  assay fingerprint golden -o golden.json.gz\n"
      "  assay locate golden.json.gz mine --golden-weights checkpoint";
  command.epilogue =
      "Exit status: 0 written, 2 wrong options or input, a damaged or incomplete run, 3 our fault, "
      "130 interrupted.";
  command.ends_with_next = true;
  command.run = [request](const ParsedArguments&) { return run_fingerprint(*request); };
  return command;
}

}  // namespace assay::cli
