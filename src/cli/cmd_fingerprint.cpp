// SPDX-License-Identifier: Apache-2.0
// `assay fingerprint RUN -o golden.json.gz`: what of a golden run can be committed.
//   docs/commands/fingerprint.md
#include <algorithm>
#include <memory>
#include <optional>

#include "base/atomic_file.hpp"
#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/answer.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/verdict_options.hpp"
#include "locate/noise/fingerprint_floors.hpp"
#include "locate/noise/floors.hpp"
#include "run/fingerprint/fingerprint.hpp"
#include "run/lend.hpp"
#include "run/open.hpp"
#include "run/program_command.hpp"

namespace assay::cli {
namespace {

constexpr std::string_view kUsualName = "golden.json.gz";

struct FingerprintRequest {
  std::string path;
  std::string output{kUsualName};
  std::string weights;                  // a checkpoint
  std::vector<std::string> floor_runs;  // "GOLDEN:MINE"
  std::string floor_file;
  std::vector<std::string> without;  // "statistics", "program"
  uint64_t most = 0;                 // bytes of the file; 0: no limit
  int jobs = 0;
  bool json = false;

  [[nodiscard]] bool leaves_out(std::string_view part) const {
    return std::ranges::find(without, part) != without.end();
  }
};

Result<std::string> floors_of(const FingerprintRequest& request) {
  if (!request.floor_file.empty()) {
    ASSAY_TRY(const locate::FloorProfile profile, locate::read_profile(request.floor_file));
    if (!profile.statistics)
      return fail(Errc::Usage, request.floor_file +
                                   ": floors of values (level N); a fingerprint is judged by its "
                                   "statistics, whose floors --floor-run measures");
    return locate::profile_text(profile);
  }
  if (request.floor_runs.empty()) return std::string();
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const std::string& text : request.floor_runs) {
    ASSAY_TRY(auto paths, parse_floor_run(text, request.path));
    pairs.push_back(std::move(paths));
  }
  return locate::measure_fingerprint_floors(pairs, request.jobs, &interrupted());
}

/// What to leave out of a file that is too large.
Error too_large(const FingerprintRequest& request, const run::Run& run,
                run::FingerprintOptions options, size_t bytes) {
  std::string sentence = request.output + " would have " + human_bytes(bytes) +
                         ", more than --most " + human_bytes(request.most) +
                         ": capture fewer steps or shorter prompts";
  if (options.statistics && options.program) {
    options.statistics = false;
    const Result<run::FingerprintFile> smaller = run::make_fingerprint(run, options);
    if (smaller)
      sentence +=
          ", or leave out what only a judgement without weights needs: with --without "
          "statistics it would have " +
          human_bytes(smaller->bytes.size());
  }
  return {Errc::Usage, {}, std::nullopt, sentence};
}

/// What was written, for both ways to say it.
struct Written {
  run::FingerprintFile file;
  bool has_floors = false;
  std::string program;  // of golden; empty: not known
};

Answer answer_of(const FingerprintRequest& request, const Written& written) {
  return {"fingerprint", "written",
          request.output + ": " + human_bytes(written.file.bytes.size()) + " of " + request.path +
              ", " + counted(written.file.steps, "step"),
          "assay gate " + shell_quote(request.output) + " --mine " +
              shell_quote(written.program.empty() ? "COMMAND" : written.program),
          kSame};
}

std::string text_of(const Answer& answer, const Written& written) {
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
                   const Written& written) {
  const run::FingerprintFile& file = written.file;
  return std::move(answer_json(answer)
                       .add("file", request.output)
                       .add("bytes", file.bytes.size())
                       .add("steps", file.steps)
                       .add("operators", file.operators)
                       .add("statistics", file.statistics)
                       .add("weights", file.weights)
                       .add("kept", file.kept)
                       .add("floors", written.has_floors));
}

Result<Written> write_fingerprint(const FingerprintRequest& request) {
  ASSAY_TRY(const run::Run run, run::open_run(request.path));
  ASSAY_TRY(const std::string floors, floors_of(request));
  std::optional<run::Run> checkpoint;
  if (!request.weights.empty()) {
    ASSAY_TRY(checkpoint, run::open_weights(request.weights));
  }
  const run::FingerprintOptions options{.floors = floors,
                                        .statistics = !request.leaves_out("statistics"),
                                        .program = !request.leaves_out("program"),
                                        .checkpoint = checkpoint ? &*checkpoint : nullptr};
  ASSAY_TRY(run::FingerprintFile file, run::make_fingerprint(run, options));
  if (request.most > 0 && file.bytes.size() > request.most)
    return fail(too_large(request, run, options, file.bytes.size()));
  ASSAY_TRY_STATUS(write_file_atomically(request.output, as_bytes(file.bytes)));
  return Written{std::move(file), !floors.empty(), run::program_of(run)};
}

int run_fingerprint(const FingerprintRequest& request) {
  if (!request.floor_file.empty() && !request.floor_runs.empty())
    return report_failure(
        "fingerprint",
        {Errc::Usage, {}, std::nullopt, "--floor and --floor-run exclude each other"}, {},
        request.json);
  const InterruptGuard interrupt_guard;
  const Result<Written> written = until_interrupted([&] { return write_fingerprint(request); });
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
  command.require("RUN", "The golden run, best with operators", request->path);
  command.add("--output, -o FILE", "The file; default: golden.json.gz", request->output);
  command.add("--weights PATH", "Checkpoint of a run that was captured without weights",
              request->weights);
  command.add("--floor-run RUNS",
              "GOLDEN:MINE, healthy runs of another prompt: noise is measured and kept; repeatable",
              added_to(request->floor_runs));
  command.add("--floor FILE", "Keep these floors", request->floor_file);
  command.add("--json", "What was written, as JSON", request->json);
  command.in_group("Size");
  command.add("--without {statistics,program}", "Leave this out; repeatable",
              added_to(request->without));
  command.add("--most BYTES", "Write nothing that is larger",
              parsed_into(request->most, parse_bytes));
  command.in_group("Machine");
  add_jobs(command, request->jobs);
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
