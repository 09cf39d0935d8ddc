// SPDX-License-Identifier: Apache-2.0
// `assay compare GOLDEN MINE`.   docs/commands/compare.md
#include "cli/cmd_compare.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/log.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/answer.hpp"
#include "cli/checkpoint.hpp"
#include "cli/commands.hpp"
#include "cli/interrupt.hpp"
#include "cli/list_text.hpp"
#include "cli/pair_options.hpp"
#include "cli/part_pipe.hpp"
#include "cli/progress_bar.hpp"
#include "cli/ranges.hpp"
#include "compare/comparability.hpp"
#include "compare/dispatch.hpp"
#include "engines/engines.hpp"
#include "locate/verdict/nan_origin.hpp"
#include "locate/verdict/sentence.hpp"
#include "pair/explicit_pairs.hpp"
#include "report/comparison_json.hpp"
#include "report/files.hpp"
#include "report/html/comparison_page.hpp"
#include "report/terminal.hpp"
#include "report/verdict_terminal.hpp"
#include "vendor/compat.hpp"

namespace assay::cli {
namespace {

constexpr uint64_t kMinMemory = uint64_t{32} << 20;

Result<std::vector<compare::LimitRule>> read_limit_rules(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  return in_file(path, compare::parse_limit_rules(as_text(file.bytes())));
}

Result<compare::CompareOptions> comparison_options(const CompareRequest& request) {
  compare::CompareOptions options;
  options.engines = engines::for_pairing();
  ASSAY_TRY(const vendor::Compat compat, vendor::compat(request.compat));
  options.conventions = compat.conventions;
  options.statistics = request.stats;
  options.jobs = request.jobs;
  options.limits = request.limits;
  options.user = request.user;
  options.allow_unmatched = request.allow_unmatched;
  if (!request.details.empty() && request.html.empty())
    return fail(Errc::Usage, "--details is about the page, which --html FILE names");
  if (!request.html.empty())
    options.pictures = {.worst = report::html::kPagePictures, .patterns = request.details};
  if (!request.rank.empty()) {
    if (request.rank.find_first_not_of("0123456789") != std::string::npos) {
      return fail(Errc::Usage, "rank id:" + shortened(request.rank) + " is illegal. Please check.");
    }
    ASSAY_TRY(options.user.ranks, parse_ranks(request.rank));
  }
  if (!request.op_mapping_file.empty()) {
    ASSAY_TRY(options.tables, pair::tables_with_user_file(request.op_mapping_file));
  }
  if (!request.custom_algorithms.empty()) {
    ASSAY_TRY(options.algorithms, compare::load_algorithms(request.custom_algorithms));
  }
  if (request.max_memory > 0) options.max_memory = std::max(request.max_memory, kMinMemory);
  options.interrupted = &interrupted();
  return options;
}

int status_by_limits(const compare::Comparison& comparison) {
  if (comparison.damaged) return kCannotJudge;
  if (!comparison.judged) return kSame;
  const std::optional<bool> passes = compare::limits_hold(comparison);
  return !passes ? kCannotJudge : *passes ? kSame : kDiffers;
}

std::string_view word_by_limits(const compare::Comparison& comparison) {
  const compare::Comparison::Counts counts = comparison.counts();
  if (comparison.damaged) return "not_comparable";
  if (counts.pairs == 0) return "nothing_compared";
  if (!comparison.judged) return counts.identical == counts.pairs ? "same" : "differs";
  if (comparison.is_within_limits()) return "within_limits";
  return counts.failed > 0 ? "beyond_limits" : "not_comparable";
}

/// What is beyond a limit stays so; else a verdict that names an operator, or was asked for, decides.
void conclude(const CompareRequest& request, CompareOutcome* outcome) {
  outcome->word = word_by_limits(outcome->comparison);
  outcome->exit_status = status_by_limits(outcome->comparison);
  if (outcome->verdict && outcome->exit_status != kDiffers) {
    const locate::Verdict& verdict = *outcome->verdict;
    const int status = exit_status_of(verdict);
    const bool decides = request.verdict || status == kDiffers;
    if (decides && (status != kSame || outcome->exit_status == kSame)) {
      outcome->word = outcome_name(verdict.outcome, verdict.order_known);
      outcome->exit_status = status;
    }
  }
  if (request.exit_zero) outcome->exit_status = kSame;
  if (outcome->comparison.unfinished_pairs > 0 || outcome->verdict_stopped) {
    outcome->word = "interrupted";
    outcome->exit_status = kInterrupted;
  }
}

}  // namespace

namespace {

/// Records of mine of which the rows say that all values are finite.
locate::SeenValues seen_in(const compare::Comparison& comparison, const run::Run& mine) {
  locate::SeenValues seen{&mine, std::vector<bool>(mine.records.size())};
  for (const compare::Sheet& sheet : comparison.sheets) {
    for (size_t i = 0; i < std::min(sheet.rows.size(), sheet.matching.pairs.size()); ++i) {
      const pair::RecordPair& pair = sheet.matching.pairs[i];
      const compare::Row& row = sheet.rows[i];
      if (pair.mine_recipe < 0 && row.metrics && !row.patterns &&
          row.metrics->state == measure::PairState::Compared)
        seen.finite[pair.mine] = true;
    }
  }
  return seen;
}

/// Finds the verdict of two runs, for what is asked of a comparison.
class Judge {
 public:
  Judge(const CompareRequest& request, const compare::CompareOptions& comparison,
        CompareOutcome* outcome)
      : request_(request), comparison_(comparison), outcome_(outcome) {}

  /// Before the rows, where statistics in the records save reading values twice: what judging needs
  /// is free again when rows take room.
  Status when_paired(const run::Run& golden, const run::Run& mine,
                     const pair::Correspondence& pairs) {
    const bool has_statistics = std::ranges::all_of(
        mine.records,
        [](const run::TensorRecord& record) { return !record.bytes || record.stats.has_value(); });
    return is_asked() && has_statistics ? judge(golden, mine, pairs, nullptr) : Status();
  }

  /// After the rows; behind the notes of the comparison.
  Status finish(const compare::ComparedPaths& compared) {
    const run::Run& golden = compared.golden;
    const run::Run& mine = compared.mine;
    if (is_done_) {
      if (auto refused = locate::refuse_damaged(golden, mine); outcome_->verdict && refused)
        outcome_->verdict = *std::move(refused);
    } else if (is_asked() && compared.programs) {
      const locate::SeenValues seen = seen_in(outcome_->comparison, mine);
      ASSAY_TRY_STATUS(judge(golden, mine, outcome_->comparison.pairs, &seen));
    } else if (request_.verdict) {
      return fail(Errc::Usage, "--verdict needs two runs, with operators or modules in an order");
    }
    outcome_->notes.insert(outcome_->notes.end(), notes_.begin(), notes_.end());
    return {};
  }

 private:
  [[nodiscard]] bool is_asked() const { return request_.judge || request_.verdict; }

  /// Without --verdict a sentence is an extra: what it cannot say must not cost the user the table.
  Status judge(const run::Run& golden, const run::Run& mine, const pair::Correspondence& pairs,
               const locate::SeenValues* seen) {
    is_done_ = true;
    VerdictRequest options = request_.verdict_options;
    options.jobs = request_.jobs;
    options.parts = comparison_.parts;
    options.asked.tables = true;
    options.asked.page = !request_.html.empty();
    options.seen = seen;
    if (!request_.rank.empty()) options.asked.options += " --ranks " + request_.rank;
    options.progress = comparison_.progress;
    options.interrupted = comparison_.interrupted;
    Result<locate::Verdict> verdict = app::find_verdict(golden, mine, pairs, options, &notes_);
    if (!verdict) {
      const Errc code = verdict.error().code;
      if (code == Errc::Interrupted && !interrupted()) {  // its parts were stopped; rows are left
        outcome_->verdict_stopped = true;
        notes_.emplace_back("no verdict: stopped by the user");
        return {};
      }
      if (request_.verdict || code == Errc::Usage || code == Errc::Interrupted)
        return fail(verdict.error());
      notes_.push_back("no verdict: " + verdict.error().describe());
      return {};
    }
    if (!request_.op_mapping_file.empty()) {
      notes_.emplace_back(
          "--op-mapping-file pairs types for the table; the verdict does not use it");
    }
    outcome_->verdict = *std::move(verdict);
    return {};
  }

  const CompareRequest& request_;
  const compare::CompareOptions& comparison_;
  CompareOutcome* outcome_;
  std::vector<std::string> notes_;
  bool is_done_ = false;
};

Status compare_and_judge(const CompareRequest& request, compare::CompareOptions options,
                         compare::ComparedPaths* compared, CompareOutcome* outcome) {
  ProgressBar bar;
  options.progress = [&bar](size_t done, size_t total) { bar.update(done, total); };
  ASSAY_TRY(const std::unique_ptr<run::PartRunner> parts,
            part_runner({request.compat, request.custom_algorithms}));
  options.parts = parts.get();
  Judge judge(request, options, outcome);
  options.when_paired = [&](const run::Run& golden, const run::Run& mine,
                            const pair::Correspondence& pairs) {
    return judge.when_paired(golden, mine, pairs);
  };
  ASSAY_TRY(*compared,
            compare::compare_paths(
                request.golden_path, request.my_path,
                {request.level, request.weight, request.verdict_options.golden_weights}, options));
  outcome->notes.insert(outcome->notes.end(), compared->notes.begin(), compared->notes.end());
  outcome->two_files = compared->two_files;
  outcome->comparison = std::move(compared->comparison);
  ASSAY_TRY_STATUS(judge.finish(*compared));
  // One answer: runs with equal values are the same, whether their operators are right or not;
  // nothing was asked of the verdict.
  if (!request.verdict && outcome->verdict && report::is_same(outcome->comparison) &&
      outcome->verdict->outcome != locate::VerdictOutcome::Clean)
    outcome->verdict.reset();
  return {};
}

}  // namespace

Result<CompareOutcome> run_comparison(const CompareRequest& asked) {
  CompareRequest request = asked;
  ASSAY_TRY(const vendor::Compat compat, vendor::compat(request.compat));
  if (request.level == compare::LevelChoice::Default) request.level = compat.level;
  const bool weights_for_the_user = request.judge && !request.weight &&
                                    is_checkpoint(request.golden_path) &&
                                    is_checkpoint(request.my_path);
  if (weights_for_the_user) request.weight = true;
  ASSAY_TRY(const compare::CompareOptions options, comparison_options(request));
  ASSAY_TRY_STATUS(app::check(request.verdict_options));
  CompareOutcome outcome;
  if (weights_for_the_user)
    outcome.notes.emplace_back("both sides are checkpoints, so their weights are compared (-w)");
  if (request.judge && !request.weight) {
    if (std::string advice = checkpoint_advice(request.golden_path, request.my_path);
        !advice.empty())
      outcome.notes.push_back(std::move(advice));
  }
  if (request.allow_pickle) {
    outcome.notes.emplace_back(
        "--allow-pickle has no effect: nothing from a pickle is ever executed, such a file becomes "
        "a row with its reason");
  }
  compare::ComparedPaths compared;
  {
    const InterruptGuard interrupt_guard;
    ASSAY_TRY_STATUS(until_interrupted(
        [&] { return compare_and_judge(request, options, &compared, &outcome); }));
  }
  const bool with_verdict = request.verdict && outcome.verdict;
  if (!outcome.two_files || request.output_given) {
    ASSAY_TRY(outcome.files,
              report::write_files(outcome.comparison, compared.golden, compared.mine,
                                  {.style = compat.style,
                                   .folder = request.output,
                                   .timestamp = report::utc_timestamp(),
                                   .workbook = outcome.comparison.sheets.size() > 1,
                                   .jsonl = request.jsonl,
                                   .unmatched = request.unmatched,
                                   .summary = request.summary,
                                   .verdict = outcome.verdict ? &*outcome.verdict : nullptr,
                                   .verdict_columns = with_verdict}));
  }
  if (!request.html.empty()) {
    ASSAY_TRY_STATUS(report::html::write_page(
        report::html::comparison_page({.comparison = outcome.comparison,
                                       .golden = compared.golden,
                                       .mine = compared.mine,
                                       .verdict = outcome.verdict ? &*outcome.verdict : nullptr,
                                       .notes = outcome.notes,
                                       .options = &options}),
        request.html));
    outcome.files.push_back(request.html);
  }
  conclude(request, &outcome);
  outcome.golden = std::move(compared.golden);
  outcome.mine = std::move(compared.mine);
  return outcome;
}

Result<uint64_t> parse_bytes(std::string_view text) {
  if (const std::optional<uint64_t> bytes = parse_size_bytes(text)) return *bytes;
  return fail(Errc::Usage, quoted(text) + " is no size; expected for example 512MiB");
}

namespace {

std::string_view hint_for(const Error& error) {
  switch (error.code) {
    case Errc::WrongKind:
      return "name two files, or two folders; a file inside a run can be given by its path";
    case Errc::NothingInCommon:
      return "align them with --token-map GOLDEN:MINE, for example --token-map 0:1";
    default:
      return {};
  }
}

// The node that the verdict accuses first; empty: none, or none is known to be the first.
std::string first_bad(const CompareOutcome& outcome) {
  if (!outcome.verdict || outcome.verdict->outcome != locate::VerdictOutcome::FirstWrong ||
      !outcome.verdict->order_known)
    return {};
  return outcome.verdict->candidates.front().node;
}

bool is_sentence_of_verdict(const CompareOutcome& outcome) {
  return outcome.verdict &&
         outcome.word == outcome_name(outcome.verdict->outcome, outcome.verdict->order_known);
}

/// That of the verdict. Without one: the verdict where whole runs have one, the page, the tensors.
std::string next_of(const CompareRequest& request, const CompareOutcome& outcome) {
  if (outcome.verdict) return outcome.verdict->next;
  for (const run::Run* run : {&outcome.golden, &outcome.mine}) {
    if (!run->first_damage().empty()) return "assay verify " + shell_quote(run->path);
  }
  const std::string runs =
      " " + shell_quote(request.golden_path) + " " + shell_quote(request.my_path);
  const bool whole_runs =
      !outcome.two_files && !outcome.comparison.weights && !outcome.comparison.named_pairs;
  const bool was_judged = request.judge && request.level != compare::LevelChoice::Logits;
  if (whole_runs && !was_judged)
    return "assay locate" + runs + app::asked_of(request.verdict_options, false).options;
  if (request.html.empty())
    return std::string("assay compare") + (outcome.comparison.weights ? " -w" : "") + runs +
           " --html page.html";
  return "assay show " +
         shell_quote(outcome.comparison.named_pairs ? request.golden_path : request.my_path);
}

Answer answer_of(const CompareRequest& request, const CompareOutcome& outcome) {
  return {"compare", outcome.word,
          is_sentence_of_verdict(outcome)
              ? locate::sentence(*outcome.verdict)
              : report::verdict(outcome.comparison, outcome.verdict ? &*outcome.verdict : nullptr),
          next_of(request, outcome), outcome.exit_status};
}

int report_compare_failure(const CompareRequest& request, const Error& error) {
  const bool is_of_checkpoints = error.code == Errc::WrongKind && !request.weight;
  const std::string advice =
      is_of_checkpoints ? checkpoint_advice(request.golden_path, request.my_path) : std::string();
  std::string next;
  if (is_of_checkpoints) next = checkpoint_command(request.golden_path, request.my_path);
  if (error.code == Errc::NothingInCommon) next = "assay show " + shell_quote(request.my_path);
  return report_failure("compare", error, advice.empty() ? hint_for(error) : advice, request.json,
                        next);
}

int run_compare(const CompareRequest& request) {
  const Result<CompareOutcome> outcome = run_comparison(request);
  if (!outcome) {
    if (interrupted()) {
      say("interrupted", "no report was written");
      return kInterrupted;
    }
    return report_compare_failure(request, outcome.error());
  }
  for (const std::string& note : outcome->notes) say("note", note);
  const report::TerminalOptions terminal{.width = std::max(60, terminal_width(STDOUT_FILENO)),
                                         .whole_lines = !terminal_columns(STDOUT_FILENO),
                                         .colour = use_colour(STDOUT_FILENO),
                                         .blocks = use_blocks(),
                                         .first_bad = first_bad(*outcome),
                                         .verdict = outcome->verdict ? &*outcome->verdict : nullptr,
                                         .why = request.verdict_options.why,
                                         .tokens = request.verdict_options.tokens,
                                         .files = outcome->files};
  std::string text = outcome->two_files ? report::pair_report(outcome->comparison, terminal)
                                        : report::terminal_report(outcome->comparison, terminal);
  if (outcome->verdict) text += "\n" + report::verdict_text(*outcome->verdict, terminal);
  if (outcome->exit_status == kCannotJudge && !outcome->comparison.damaged &&
      !outcome->comparison.gaps.empty())
    say("note", "what of golden needs no partner can be named: --allow-unmatched PATTERN");
  const Answer answer = answer_of(request, *outcome);
  if (!request.json) return print_answer(answer, text, false, std::string());
  const report::ComparisonSummary summary{
      .comparison = outcome->comparison,
      .golden = outcome->golden,
      .mine = outcome->mine,
      .verdict = outcome->verdict ? &*outcome->verdict : nullptr,
      .notes = outcome->notes,
      .files = outcome->files};
  return print_answer(answer, {}, true, answer_json(answer, report::comparison_json(summary)));
}

void add_input_options(Command& command, CompareRequest& request) {
  command.add("GOLDEN, --golden-path, -gp PATH", "Reference: a run folder or a tensor file",
              request.golden_path);
  command.add("MINE, --my-path, -mp PATH", "Run under test, of the same kind", request.my_path);
  command.in_group("Selection");
  add_level_row(command, "Compare layers, modules or every module; default: all three",
                request.level);
  add_pair_options(command, request.user, request.verdict_options.asked.options);
  command.add("--rank, -r N", "Compare only this rank", request.rank);
  command.add("--op-mapping-file, -mf PATH",
              "Own table of operator types: op_mapping_file.json or its folder",
              request.op_mapping_file);
  command.add("--weight, -w",
              "The paths are checkpoints: compare weights, quantised ones de-quantised",
              request.weight);
  command.add("--stats, -st", "Compare statistics instead of tensors", request.stats);
}

void add_limit_options(Command& command, CompareRequest& request) {
  compare::Limit& limit = request.limits.fallback;
  command.in_group("Limits (exit status 1 when a row is beyond one)");
  command.add("--atol N", "|mine - golden| <= ATOL + RTOL * |golden| for every element", limit.atol,
              number(0, HUGE_VAL));
  command.add("--rtol N", "see --atol", limit.rtol, number(0, HUGE_VAL));
  command.add("--cos N", "Cosine similarity at least this", limit.cos, number(-1, 1));
  command.add("--rel-l2 N", "Relative L2 distance at most this", limit.rel_l2, number(0, HUGE_VAL));
  command.add("--thresholds FILE",
              "JSON list of limits by name, type or dtype; the first match wins",
              parsed_into(request.limits.rules, read_limit_rules));
  command.add("--allow-unmatched PATTERN",
              "Shell pattern on golden's names: these need no partner; repeatable",
              added_to(request.allow_unmatched));
  command.add("--exit-zero", "Exit status 0 whatever differs", request.exit_zero);
}

void add_output_options(Command& command, CompareRequest& request) {
  command.in_group("Output");
  command.add("--custom-algorithms, -alg SPEC ...",
              "FILE.py:FUNC or FILE.so:FUNC, one more column each",
              added_to(request.custom_algorithms));
  command.add("--output, -o DIR", "Folder for the report; default: this one", request.output);
  command.add("--json", "What was found as one JSON object", request.json);
  command.add("--jsonl", "The report also as JSON lines", request.jsonl);
  command.add("--html FILE", "One page to open in a browser, without a network", request.html);
  command.add("--details PATTERN",
              "Rows of which the page says where they differ, besides the worst; repeatable",
              added_to(request.details));
  command.add("--unmatched", "Also list the tensors without partner", request.unmatched);
  command.add("--compat {none,msit,ait-0.2}",
              "msit: the rows and values of msit 8.2, defects included; ait-0.2: the report of "
              "ait 0.2",
              request.compat);
}

void add_machine_options(Command& command, CompareRequest& request, LogLevel& log_level) {
  command.in_group("Machine");
  add_jobs(command, request.jobs);
  command.add("--max-memory BYTES", "File pages kept in memory; default 256MiB",
              parsed_into(request.max_memory, parse_bytes));
  command.add("--log-level, -l {debug,info,warn,warning,error,fatal,critical}",
              "debug info warning error fatal critical",
              chosen(log_level, {{"debug", LogLevel::Debug},
                                 {"info", LogLevel::Info},
                                 {"warn", LogLevel::Warning},
                                 {"warning", LogLevel::Warning},
                                 {"error", LogLevel::Error},
                                 {"fatal", LogLevel::Error},
                                 {"critical", LogLevel::Error}}));
  command.add("--allow-pickle", "Accepted for old scripts; pickles are never executed",
              request.allow_pickle);
}

// What is missing; empty when the request can be carried out.
std::string problem_of(const CompareRequest& request) {
  if (request.golden_path.empty()) return "the golden run is missing: assay compare GOLDEN MINE";
  if (request.my_path.empty())
    return "the run to compare with golden is missing: assay compare GOLDEN MINE";
  return {};
}

}  // namespace

void add_level_row(Command& command, std::string_view help, compare::LevelChoice& level) {
  command.add("--cmp-level, -cl {layer,module,api,logits}", help,
              chosen(level, {{"layer", compare::LevelChoice::Layer},
                             {"module", compare::LevelChoice::Module},
                             {"api", compare::LevelChoice::Api},
                             {"logits", compare::LevelChoice::Logits}}));
}

Command compare_command(const Caller& caller) {
  if (!caller.is_ours()) return msit_compare_command(caller);
  struct Parsed {
    CompareRequest request;
    LogLevel log_level = LogLevel::Info;
  };
  const auto parsed = std::make_shared<Parsed>();
  Command command(caller, "Compare two runs or two tensor files, tensor by tensor");
  add_input_options(command, parsed->request);
  add_output_options(command, parsed->request);
  add_limit_options(command, parsed->request);
  add_machine_options(command, parsed->request, parsed->log_level);
  command.in_group("Verdict");
  command.add("--verdict",
              "The verdict also as columns and as msit_cmp_first_bad_<UTC time>.json, and in the "
              "exit status",
              parsed->request.verdict);
  add_verdict_options(command, parsed->request.verdict_options);
  add_ray_options(command, parsed->request.ray, true);
  command.example = "assay compare golden/ mine/ -o report --rel-l2 0.01";
  command.epilogue =
      "Writes msit_cmp_report_<UTC time>.xlsx (one level: .csv), prints the worst rows and names "
      "the first wrong operator.\n"
      "Exit status: 0 same, within the limits, or none given; 1 beyond a limit, or a wrong "
      "operator is named; 125 not comparable as a whole; 2 wrong options or input; 3 our fault.";
  command.ends_with_next = true;
  command.run = [parsed](const ParsedArguments& given) {
    CompareRequest& request = parsed->request;
    if (const std::string problem = problem_of(request); !problem.empty())
      return report_compare_failure(request, {Errc::Usage, {}, std::nullopt, problem});
    request.output_given = given.given("--output");
    request.judge = request.compat == "none";
    set_log_level(parsed->log_level);
    if (has_to_hand_over(request.ray))
      return hand_over_to_ray(request.ray, "compare", given.all,
                              {request.golden_path, request.my_path});
    return run_compare(request);
  };
  return command;
}

}  // namespace assay::cli
