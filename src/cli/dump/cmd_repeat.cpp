// SPDX-License-Identifier: Apache-2.0
// `assay repeat -- CMD`: whether a program computes the same bits each time.
//   docs/commands/repeat.md
#include <algorithm>
#include <memory>

#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/answer.hpp"
#include "cli/commands.hpp"
#include "cli/dump/dump_request.hpp"
#include "cli/dump/repeated_program.hpp"
#include "cli/interrupt.hpp"
#include "cli/ranges.hpp"
#include "engines/engines.hpp"
#include "report/html/repeat_page.hpp"
#include "report/repeat_text.hpp"

namespace assay::cli {
namespace {

constexpr int64_t kMostRuns = 100000;
constexpr int64_t kMostUntilDifferent = 1000;

struct RepeatRequest {
  RepeatedProgram program;
  std::string exec;
  int64_t runs = 10;
  bool until_different = false;
  int64_t most = kMostUntilDifferent;
  std::vector<int> threads;
  bool threads_must_agree = false;
  std::string output;
  std::string html;
  bool json = false;
};

/// "1,2" -> 1, 2
Result<std::vector<int>> thread_counts(const std::string& text) {
  std::vector<int> counts;
  for (const std::string_view part : split(text, ',')) {
    const std::string problem = whole_number_problem(part, 1, kMaxJobs);
    if (!problem.empty()) return fail(Errc::Usage, problem);
    counts.push_back(*parse_number<int>(part));
  }
  return counts;
}

std::string numbered(std::string_view name, size_t number) {
  return std::string(name) + "-" + std::to_string(number);
}

/// One `assay repeat`: runs the program and says what came of it.
class Repeater {
 public:
  Repeater(const RepeatRequest& request, RunFolders folders)
      : request_(request), folders_(std::move(folders)) {}

  [[nodiscard]] Result<repeat::Outcome> run();

 private:
  [[nodiscard]] size_t group_count() const { return std::max<size_t>(request_.threads.size(), 1); }
  [[nodiscard]] int threads_of(size_t number) const {
    return request_.threads.empty() ? 0 : request_.threads[number % group_count()];
  }
  [[nodiscard]] size_t most_runs() const {
    const int64_t runs = request_.until_different ? request_.most : request_.runs;
    return static_cast<size_t>(runs) * group_count();
  }
  [[nodiscard]] Result<bool> add_run(size_t number);
  [[nodiscard]] std::vector<std::unique_ptr<repeat::Repetition>> across() const;
  [[nodiscard]] Status look_at_values(repeat::Outcome* outcome);
  [[nodiscard]] RunChoice values_of(const repeat::Finding& finding) const;
  [[nodiscard]] std::string next_command(const repeat::Outcome& outcome) const;
  [[nodiscard]] std::string again(const std::string& options) const;

  const RepeatRequest& request_;
  RunFolders folders_;
  std::vector<std::shared_ptr<const run::Run>> firsts_;  // by number of threads
  std::vector<std::unique_ptr<repeat::Repetition>> groups_;
  size_t values_run_ = 0;  // the one whose values differ from the first ones
};

/// Returns false when the run differs from the first one like it.
Result<bool> Repeater::add_run(size_t number) {
  const std::string name = numbered("run", number);
  ASSAY_TRY(std::shared_ptr<const run::Run> captured,
            capture_run(request_.program, {.threads = threads_of(number)}, folders_.folder(name)));
  const size_t group = number % group_count();
  if (group == groups_.size()) {
    firsts_.push_back(captured);
    groups_.push_back(std::make_unique<repeat::Repetition>(captured, number));
    return true;
  }
  const bool is_equal = groups_[group]->add(std::move(captured), number);
  if (is_equal) folders_.remove(name);
  say("repeat", name + (is_equal ? ": as the first" : ": differs"));
  return is_equal;
}

std::vector<std::unique_ptr<repeat::Repetition>> Repeater::across() const {
  std::vector<std::unique_ptr<repeat::Repetition>> all;
  for (size_t group = 1; group < firsts_.size(); ++group) {
    all.push_back(std::make_unique<repeat::Repetition>(firsts_.front()));
    all.back()->add(firsts_[group], group);
  }
  return all;
}

/// All of the step where the modules are none of PyTorch's: a node's inputs lie in other nodes.
RunChoice Repeater::values_of(const repeat::Finding& finding) const {
  const repeat::Place& place = finding.difference.place;
  RunChoice choice{.threads = threads_of(finding.runs.front()), .with_data = true};
  choice.steps = std::to_string(place.step);
  if (!firsts_.front()->has_own_engine())
    choice.modules = place.module.empty() ? "root" : place.module;
  return choice;
}

// The program is run again with the values of the operator, until these differ.
Status Repeater::look_at_values(repeat::Outcome* outcome) {
  const repeat::Finding& finding = outcome->findings.front();
  if (finding.difference.cause != repeat::Cause::Operator) return {};
  const RunChoice choice = values_of(finding);
  const std::string first_name = numbered("values", 0);
  ASSAY_TRY(const std::shared_ptr<const run::Run> first,
            capture_run(request_.program, choice, folders_.folder(first_name)));
  const auto tries = static_cast<size_t>(request_.runs);
  for (size_t number = 1; number <= tries; ++number) {
    const std::string name = numbered("values", number);
    ASSAY_TRY(const std::shared_ptr<const run::Run> other,
              capture_run(request_.program, choice, folders_.folder(name)));
    ASSAY_TRY(outcome->elements,
              repeat::compare_elements(*first, *other, finding.difference.place, engines::all()));
    if (outcome->elements) {
      values_run_ = number;
      return {};
    }
    folders_.remove(name);
  }
  folders_.remove(first_name);
  outcome->elements_note =
      "it did not differ again in " + counted(tries + 1, "run") + " that kept them";
  return {};
}

std::string Repeater::again(const std::string& options) const {
  std::string command = "assay repeat" + options + " --";
  for (const std::string& word : request_.program.command) command += " " + shell_quote(word);
  return command;
}

std::string Repeater::next_command(const repeat::Outcome& outcome) const {
  if (outcome.repeats()) {
    if (request_.threads.empty()) return again(" --threads 1,2");
    if (!outcome.depends_on_threads()) return again(" -n 100 --threads 1,2");
  }
  const repeat::Finding& finding =
      outcome.repeats()
          ? std::ranges::find_if(outcome.threads,
                                 [](const auto& one) { return !one.against_first.empty(); })
                ->against_first.front()
          : outcome.findings.front();
  const bool drawn = finding.difference.cause == repeat::Cause::Random ||
                     finding.difference.cause == repeat::Cause::Weight ||
                     finding.difference.cause == repeat::Cause::Input;
  if (drawn && !request_.program.seed) return again(" -seed");
  if (outcome.elements)
    return "assay compare " + shell_quote(folders_.folder("values-0")) + " " +
           shell_quote(folders_.folder(numbered("values", values_run_)));
  const size_t other = finding.runs.front();
  return "assay show " + shell_quote(folders_.folder(numbered("run", other))) + " " +
         shell_quote(finding.difference.place.node);
}

Result<repeat::Outcome> Repeater::run() {
  for (size_t number = 0; number < most_runs(); ++number) {
    ASSAY_TRY(const bool is_equal, add_run(number));
    if (!is_equal && request_.until_different) break;
  }
  repeat::Outcome outcome = repeat::make_outcome(groups_, request_.threads, across());
  if (!outcome.repeats()) ASSAY_TRY_STATUS(look_at_values(&outcome));
  outcome.next = next_command(outcome);
  if (!outcome.repeats() || outcome.depends_on_threads() || !request_.output.empty())
    folders_.keep();
  return outcome;
}

int failed(const Error& error, const RepeatRequest& request) {
  if (error.code == Errc::Interrupted) {
    say("interrupted", "not all runs were made");
    return kInterrupted;
  }
  if (error.code != Errc::Invalid) return report_failure("repeat", error, {}, request.json);
  Answer answer{"repeat", "cannot_judge", "cannot judge: " + error.message, "assay dump -o dump --",
                kCannotJudge};
  for (const std::string& word : request.program.command) answer.next += " " + shell_quote(word);
  return print_answer(answer, answer.sentence + "\n", request.json, answer_json(answer));
}

Answer answer_of(const repeat::Outcome& outcome, const RepeatRequest& request) {
  Answer answer{"repeat", "repeats", repeat::sentence_of(outcome), outcome.next, kSame};
  if (!outcome.repeats()) {
    answer.outcome = "differs";
    answer.exit_status = kDiffers;
  } else if (request.threads_must_agree && outcome.depends_on_threads()) {
    answer.outcome = "depends_on_threads";
    answer.exit_status = kDiffers;
  }
  return answer;
}

int run_repeat(const RepeatRequest& request) {
  if (const Status page = check_page_path(request.html); !page)
    return report_failure("repeat", page.error(), {}, request.json);
  Result<RunFolders> folders = RunFolders::make(request.output, "repeat");
  if (!folders) return report_failure("repeat", folders.error(), {}, request.json);
  const Result<repeat::Outcome> outcome = Repeater(request, *std::move(folders)).run();
  if (!outcome) return failed(outcome.error(), request);
  if (!request.html.empty()) {
    const Status written =
        report::html::write_page(report::html::repeat_page(*outcome), request.html);
    if (!written) return report_failure("repeat", written.error(), {}, request.json);
  }
  const Answer answer = answer_of(*outcome, request);
  const int width = std::max(60, terminal_width(STDOUT_FILENO));
  return print_answer(answer, report::repeat_text(*outcome, width), request.json,
                      answer_json(answer, report::repeat_json(*outcome)));
}

void add_rows(Command& command, RepeatRequest& request) {
  command.add("-n RUNS", "How often the program is run, with each number of threads; default 10",
              request.runs, whole_number(2, kMostRuns));
  command.add("--until-different", "Stop at the first run that differs", request.until_different);
  command.add("--most RUNS", "Of --until-different: give up after so many; default 1000",
              request.most, whole_number(2, kMostRuns));
  command.add("--threads LIST",
              "Numbers of threads to vary: 1,2. They are in OMP_NUM_THREADS and its kind, and "
              "replace {threads} in the command",
              parsed_into(request.threads, thread_counts));
  command.add("--threads-must-agree", "What depends on the number of threads is a failure, too",
              request.threads_must_agree);
  command.add(
      "-seed [SEED]", "Seed all random generators; 2024 when no number follows",
      [&request](const Words& values) -> Status {
        if (values.empty()) {
          request.program.seed = 2024;
          return {};
        }
        return into(request.program.seed)(values);
      },
      whole_number(0, UINT32_MAX));
  command.add("--steps STEPS", "Steps to look at: 0,2-4; default all",
              [&request](const Words& values) -> Status {
                ASSAY_TRY(const std::string range, range_of_steps(values.front()));
                (void)range;
                request.program.steps = values.front();
                return {};
              });
  command.add("--host {auto,torch,ggml}", "What to capture in the program, default auto",
              request.program.host);
  command.in_group("Output");
  command.add("--output, -o DIR",
              "Folder of the runs, kept; default assay_repeat_<time>, kept when runs differ",
              request.output);
  command.add("--html FILE", "One page to open in a browser, without a network", request.html);
  command.add("--json", "What was found as JSON", request.json);
}

}  // namespace

Command repeat_command(const Caller& caller) {
  Command command(caller, "Says whether a program computes the same bits each time it is run.");
  const auto request = std::make_shared<RepeatRequest>();
  add_program_row(command, "The program to run and its arguments in one string", request->exec);
  add_rows(command, *request);
  command.example = "assay repeat -n 20 --threads 1,2 -- python run.py";
  command.epilogue =
      "Exit status: 0 it repeats, 1 it does not, 125 the program failed or nothing was captured, 2 "
      "wrong options, 3 our fault.";
  command.ends_with_next = true;
  command.run = [request](const ParsedArguments& parsed) {
    Result<std::vector<std::string>> program = program_words(parsed, request->exec);
    if (!program) return report_failure("repeat", program.error(), {}, request->json);
    request->program.command = *std::move(program);
    return run_repeat(*request);
  };
  return command;
}

}  // namespace assay::cli
