// SPDX-License-Identifier: Apache-2.0
// Tells what the first argument is (a twin, a run or a fingerprint), has both sides captured and
// judged by bisect(), and decides which command comes next and whether the captures stay.
#include "cli/gate/gate.hpp"

#include <chrono>
#include <filesystem>
#include <memory>

#include "base/paths.hpp"
#include "base/python_program.hpp"
#include "base/shell_words.hpp"
#include "cli/assignments.hpp"
#include "cli/bisect.hpp"
#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/gate/gate_place.hpp"
#include "cli/gate/program_output.hpp"
#include "cli/interrupt.hpp"
#include "run/open.hpp"
#include "run/run.hpp"

namespace assay::cli {
namespace {

constexpr const char* kTwinVariable = "ASSAY_TWIN";

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f s", seconds);
  return text;
}

/// What the first argument is.
struct First {
  std::string twin;  // its folder, absolute
  std::string run;   // a run or a fingerprint
};

/// What --require-capture asks of a run that is there.
std::string what_is_lacking(const run::Run& run) {
  if (!run.coverage.complete) return "its capture did not finish";
  return run.coverage.lost > 0 ? "tensors were lost" : "";
}

Status check_run(const std::string& path, bool require_capture) {
  const Result<run::Run> run = run::open_run(path);
  if (!run)
    return fail(Errc::Usage, path +
                                 ": is no twin (it has no twin.json), no run and no fingerprint: " +
                                 run.error().message);
  const std::string lacking = require_capture ? what_is_lacking(*run) : "";
  if (lacking.empty()) return {};
  return fail(Errc::Invalid, "the golden run " + path + " lacks something: " + lacking);
}

Result<First> open_first(const GateRequest& request) {
  First first;
  if (request.first.empty()) return first;
  if (!exists(request.first))
    return fail(Error{Errc::Usage, request.first, std::nullopt, "no such file or folder"});
  if (exists(request.first + "/twin.json")) {
    first.twin = std::filesystem::absolute(request.first).lexically_normal().string();
    while (first.twin.size() > 1 && first.twin.ends_with('/')) first.twin.pop_back();
    return first;
  }
  ASSAY_TRY_STATUS(check_run(request.first, request.require_capture));
  first.run = request.first;
  return first;
}

/// What "{twin}" and "{gguf}" stand for.
/// errors  Usage: a command names what there is not
Result<std::map<std::string, std::string>> places_of(const GateRequest& request,
                                                     const First& first) {
  std::map<std::string, std::string> places;
  if (!first.twin.empty()) places["{twin}"] = first.twin;
  const std::string gguf = first.twin + "/model.gguf";
  if (!first.twin.empty() && exists(gguf)) places["{gguf}"] = gguf;
  for (const std::string* command : {&request.golden, &request.mine}) {
    for (const char* name : {"{twin}", "{gguf}"}) {
      if (command->find(name) == std::string::npos || places.contains(name)) continue;
      return fail(
          Errc::Usage,
          first.twin.empty()
              ? std::string(name) + " stands in a command, but no twin is given"
              : "the twin " + first.twin + " has no model.gguf, which " + name + " stands for");
    }
  }
  return places;
}

/// "assay gate tiny --mine 'python port.py' MORE"
std::string gate_command_line(const GateRequest& request, const std::string& more) {
  std::string text = "assay gate";
  if (!request.first.empty()) text += " " + shell_quote(request.first);
  if (!request.golden.empty()) text += " --golden " + shell_quote(request.golden);
  text += " --mine " + shell_quote(request.mine);
  if (!request.operators) text += " --level module";
  return text + app::asked_of(request.judge.verdict, false).options + more;
}

class Gate : private CaptureWatcher {
 public:
  Gate(const GateRequest& request, First first, std::map<std::string, std::string> places)
      : request_(request), first_(std::move(first)), places_(std::move(places)) {
    outcome_.twin = first_.twin;
  }

  Result<GateOutcome> run() {
    ASSAY_TRY(GatePlace place, GatePlace::make(request_.output));
    const ScopedEnvironment environment(variables());
    Result<Judged> judged = judge(place.path());
    if (!judged) {
      const Error& error = judged.error();
      if (error.code == Errc::Usage || error.code == Errc::Interrupted ||
          error.code == Errc::Internal)
        return fail(error);
      cannot_judge(error);
      return std::move(outcome_);
    }
    outcome_.judged = *std::move(judged);
    outcome_.status = exit_status_of(outcome_.judged.verdict);
    outcome_.kept = !request_.output.empty() || outcome_.status != kSame;
    if (outcome_.kept) place.keep();
    outcome_.next = next_of_verdict();
    outcome_.judged.verdict.next = outcome_.next;  // of the page
    ASSAY_TRY_STATUS(write_page());
    return std::move(outcome_);
  }

 private:
  std::vector<std::pair<std::string, std::string>> variables() const {
    if (first_.twin.empty()) return {};
    return {{kTwinVariable, first_.twin}};
  }

  Result<Judged> judge(const std::string& folder) {
    BisectRequest request;
    request.golden = request_.golden;
    if (request.golden.empty() && first_.run.empty()) {
      request.golden = in_shell_quotes(python_program()) + " -m assay.twin run {twin}";
    }
    request.golden_run = first_.run;
    request.mine = request_.mine;
    request.output = folder;
    request.mine_operators = request_.operators;
    request.capture = {.host = "auto",
                       .steps = "all",
                       .log_level = "warning",
                       .require = request_.require_capture,
                       .places = places_};
    JudgeRequest only_verdict = request_.judge;
    only_verdict.html.clear();
    only_verdict.verdict.asked.page = !request_.judge.html.empty();
    const auto judge = [&](const std::string& golden, const std::string& mine) {
      judged_ = true;
      const Clock::time_point start = Clock::now();
      Result<Judged> judged = judge_until_interrupted(golden, mine, only_verdict);
      end_phase("verdict", start);
      return judged;
    };
    return bisect(request, judge, *this);
  }

  void begin(const SideCapture& capture) override {
    capture_ = capture;
    judged_ = false;
    start_ = Clock::now();
    output_ = std::make_unique<ProgramOutput>(request_.show_output);
  }

  void end(const SideCapture& capture) override {
    last_lines_ = output_->finish();
    output_.reset();
    end_phase(capture.side + (capture.operators ? ", operators" : ", modules"), start_);
  }

  /// One line a phase; phases of one name, as two verdicts, are one in the outcome.
  void end_phase(const std::string& name, Clock::time_point start) {
    const double seconds = seconds_since(start);
    say("gate", name + ": " + seconds_text(seconds));
    for (auto& [other, sum] : outcome_.seconds) {
      if (other != name) continue;
      sum += seconds;
      return;
    }
    outcome_.seconds.emplace_back(name, seconds);
  }

  void cannot_judge(const Error& error) {
    outcome_.status = kCannotJudge;
    outcome_.judged.verdict.reason = error.describe();
    outcome_.program_output = last_lines_;
    outcome_.next = error.code == Errc::NotFound             ? own_host_command()
                    : judged_ || error.code != Errc::Invalid ? "assay doctor"
                                                             : program_alone();
  }

  /// The program that failed, as a line for a shell.
  std::string program_alone() const {
    const auto words = words_of_command(capture_.side, capture_.command, places_);
    if (!words) return "assay doctor";
    std::string line = first_.twin.empty() ? "" : twin_variable();
    std::vector<std::string> program = *words;
    for (const auto& [name, value] : take_assignments(&program))
      line += (line.empty() ? "" : " ") + name + "=" + shell_quote(value);
    for (const std::string& word : program) line += (line.empty() ? "" : " ") + shell_quote(word);
    return line;
  }

  /// That of the verdict, where its runs are kept; a program that is captured again needs its twin.
  std::string next_of_verdict() const {
    const std::string& next = outcome_.judged.verdict.next;
    if (outcome_.kept)
      return next.starts_with("assay dump ") && !first_.twin.empty() ? twin_variable() + " " + next
                                                                     : next;
    if (!request_.judge.verdict.why) return gate_command_line(request_, " --why");
    return gate_command_line(request_,
                             request_.judge.html.empty() ? " --html page.html" : " -o runs");
  }

  std::string twin_variable() const {
    return std::string(kTwinVariable) + "=" + shell_quote(first_.twin);
  }

  Status write_page() {
    if (request_.judge.html.empty()) return {};
    const Clock::time_point start = Clock::now();
    ASSAY_TRY_STATUS(write_page_until_interrupted(outcome_.judged, request_.judge));
    end_phase("page", start);
    return {};
  }

  const GateRequest& request_;
  First first_;
  std::map<std::string, std::string> places_;
  GateOutcome outcome_;
  SideCapture capture_;
  Clock::time_point start_;
  std::unique_ptr<ProgramOutput> output_;
  std::vector<std::string> last_lines_;
  bool judged_ = false;  // behind the last capture
};

/// Before anything ran.
GateOutcome refused(const Error& error, const std::string& next) {
  GateOutcome outcome;
  outcome.status = kCannotJudge;
  outcome.judged.verdict.reason = error.describe();
  outcome.next = next;
  return outcome;
}

}  // namespace

Result<GateOutcome> run_gate(const GateRequest& request) {
  // From here on Ctrl-C is ours: what was captured goes again.
  const InterruptGuard interrupt_guard;
  ASSAY_TRY_STATUS(app::check(request.judge.verdict));
  Result<First> opened = open_first(request);
  if (!opened && opened.error().code == Errc::Invalid)
    return refused(opened.error(), "assay verify " + shell_quote(request.first));
  ASSAY_TRY(First first, std::move(opened));
  ASSAY_TRY(auto places, places_of(request, first));
  if (!first.run.empty() && !request.golden.empty())
    return fail(Errc::Usage, request.first + " is a run, so --golden has nothing to do beside it");
  return Gate(request, std::move(first), std::move(places)).run();
}

}  // namespace assay::cli
