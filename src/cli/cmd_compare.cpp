// SPDX-License-Identifier: Apache-2.0
// `assay compare GOLDEN MINE`.   docs/commands/compare.md
#include "cli/cmd_compare.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/log.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/checkpoint.hpp"
#include "cli/command.hpp"
#include "cli/interrupt.hpp"
#include "cli/list_text.hpp"
#include "cli/pair_options.hpp"
#include "cli/progress_bar.hpp"
#include "cli/ranges.hpp"
#include "compare/dispatch.hpp"
#include "engines/engines.hpp"
#include "pair/explicit_pairs.hpp"
#include "report/files.hpp"
#include "report/terminal.hpp"
#include "report/verdict_terminal.hpp"
#include "vendor/compat.hpp"

namespace assay::cli {
namespace {

constexpr uint64_t kMinMemory = uint64_t{32} << 20;
Result<std::string> read_text(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  return std::string(as_text(file.bytes()));
}

Result<compare::CompareOptions> comparison_options(const CompareRequest& request) {
  compare::CompareOptions options;
  options.engines = engines::for_pairing();
  ASSAY_TRY(const vendor::Compat compat, vendor::compat(request.compat));
  options.conventions = compat.conventions;
  options.statistics = request.stats;
  options.jobs = request.jobs;
  options.limits.fallback = {request.atol, request.rtol, request.cos, request.rel_l2};
  if (!request.thresholds_file.empty()) {
    ASSAY_TRY(const std::string text, read_text(request.thresholds_file));
    ASSAY_TRY(options.limits.rules,
              in_file(request.thresholds_file, compare::parse_limit_rules(text)));
  }
  ASSAY_TRY_STATUS(read_pair_options(request.pairs, &options.user));
  options.allow_unmatched = request.allow_unmatched;
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
  if (!request.max_memory.empty()) {
    ASSAY_TRY(options.max_memory, parse_bytes(request.max_memory));
    options.max_memory = std::max(options.max_memory, kMinMemory);
  }
  options.interrupted = &interrupted();
  return options;
}

int status_by_limits(const compare::Comparison& comparison, const CompareRequest& request) {
  if (request.exit_zero) return kSame;
  if (comparison.damaged) return kCannotJudge;
  if (!comparison.judged) return kSame;
  if (comparison.is_within_limits()) return kSame;
  // Limits were given and nothing could be held against them: that is no pass.
  const compare::Comparison::Counts counts = comparison.counts();
  return counts.failed > 0 || counts.pairs == 0 ? kDiffers : kCannotJudge;
}

}  // namespace

namespace {

// Two runs, not two files, checkpoints or named tensors: only those have a first operator.
bool has_programs(const CompareOutcome& outcome, const CompareRequest& request) {
  return !outcome.two_files && !request.weight && !outcome.comparison.named_pairs &&
         request.level != compare::LevelChoice::Logits;
}

// Without --verdict a sentence is an extra: what it cannot say must not cost the user the table.
Status judge(const compare::ComparedPaths& compared, const CompareRequest& request,
             const compare::CompareOptions& comparison, CompareOutcome* outcome) {
  if (!request.judge && !request.verdict) return {};
  if (!has_programs(*outcome, request)) {
    if (!request.verdict) return {};
    return fail(Errc::Usage, "--verdict needs two runs, with operators or modules in an order");
  }
  VerdictRequest options = request.verdict_options;
  options.jobs = request.jobs;
  Result<locate::Verdict> verdict =
      find_verdict(compared.golden, compared.mine, outcome->comparison.pairs, options,
                   comparison.progress, &outcome->notes);
  if (!verdict) {
    const Errc code = verdict.error().code;
    if (request.verdict || code == Errc::Usage || code == Errc::Interrupted)
      return fail(verdict.error());
    outcome->notes.push_back("no verdict: " + verdict.error().describe());
    return {};
  }
  if (!request.op_mapping_file.empty()) {
    outcome->notes.emplace_back(
        "--op-mapping-file pairs types for the table; the verdict does not use it");
  }
  outcome->verdict = *std::move(verdict);
  return {};
}

Status compare_and_judge(const CompareRequest& request, compare::CompareOptions options,
                         compare::ComparedPaths* compared, CompareOutcome* outcome) {
  ProgressBar bar;
  options.progress = [&bar](size_t done, size_t total) { bar.update(done, total); };
  ASSAY_TRY(*compared, compare::compare_paths(request.golden_path, request.my_path,
                                              {request.level, request.weight}, options));
  outcome->notes.insert(outcome->notes.end(), compared->notes.begin(), compared->notes.end());
  outcome->two_files = compared->two_files;
  outcome->comparison = std::move(compared->comparison);
  return judge(*compared, request, options, outcome);
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
  ASSAY_TRY_STATUS(check_floor_file(request.verdict_options));
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
                                   .verdict = with_verdict ? &*outcome.verdict : nullptr}));
  }
  outcome.exit_status = status_by_limits(outcome.comparison, request);
  if (with_verdict && !request.exit_zero && outcome.exit_status != kDiffers) {
    const int status = exit_status_of(*outcome.verdict);
    if (status != kSame) outcome.exit_status = status;
  }
  return outcome;
}

Result<uint64_t> parse_bytes(std::string_view text) {
  const size_t unit_start = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::optional<uint64_t> number = parse_number<uint64_t>(text.substr(0, unit_start));
  struct Unit {
    std::string_view name;
    uint64_t bytes;
  };
  constexpr Unit kUnits[] = {{"", 1},         {"B", 1},         {"k", 1000},    {"kB", 1000},
                             {"KB", 1000},    {"K", 1024},      {"KiB", 1024},  {"M", 1 << 20},
                             {"MB", 1000000}, {"MiB", 1 << 20}, {"G", 1 << 30}, {"GB", 1000000000},
                             {"GiB", 1 << 30}};
  for (const Unit& unit : kUnits) {
    if (!number || unit.name != text.substr(unit_start)) continue;
    uint64_t bytes = 0;
    if (mul_overflows(*number, unit.bytes, &bytes)) break;
    return bytes;
  }
  return fail(Errc::Usage, quoted(text) + " is no size; expected for example 512MiB");
}

namespace {

std::string_view hint_for(const Error& error) {
  switch (error.code) {
    case Errc::WrongKind:
      return "name two files, or two folders; a file inside a run can be given by its path";
    case Errc::NothingInCommon:
      return "align them with --token-map GOLDEN:MINE, for example --token-map 0:1";
    case Errc::Usage:
      return "assay compare --help shows every option with an example";
    default:
      return {};
  }
}

int run_command(const CompareRequest& request) {
  const Result<CompareOutcome> outcome = run_comparison(request);
  if (!outcome) {
    if (interrupted()) {
      say("interrupted", "no report was written");
      return kInterrupted;
    }
    const Error& error = outcome.error();
    const std::string advice = error.code == Errc::WrongKind && !request.weight
                                   ? checkpoint_advice(request.golden_path, request.my_path)
                                   : std::string();
    return report_error(error, advice.empty() ? hint_for(error) : std::string_view(advice));
  }
  for (const std::string& note : outcome->notes) say("note", note);
  const report::TerminalOptions terminal{.width = std::max(60, terminal_width(STDOUT_FILENO)),
                                         .colour = use_colour(STDOUT_FILENO),
                                         .why = request.verdict_options.why,
                                         .files = outcome->files};
  std::string text = outcome->two_files ? report::pair_report(outcome->comparison, terminal)
                                        : report::terminal_report(outcome->comparison, terminal);
  if (outcome->verdict) text += "\n" + report::verdict_text(*outcome->verdict, terminal);
  if (outcome->exit_status == kCannotJudge && !outcome->comparison.damaged &&
      !outcome->comparison.gaps.empty())
    say("hint", "what of golden needs no partner can be named: --allow-unmatched PATTERN");
  return print_result(text, outcome->exit_status);
}

void add_input_options(CLI::App& app, CompareRequest& request) {
  app.add_option("golden,--golden-path", request.golden_path,
                 "Reference: a run folder or a tensor file (-gp)")
      ->type_name("PATH");
  app.add_option("mine,--my-path", request.my_path, "Run under test, of the same kind (-mp)")
      ->type_name("PATH");
  const auto choose = [&request](const std::string& name) {
    request.level = compare::level_choice(name).value_or(compare::LevelChoice::Default);
  };
  app.add_option_function<std::string>(
         "--cmp-level", choose, "Compare layers, modules or every module (-cl); default: all three")
      ->check(CLI::IsMember({"layer", "module", "api", "logits"}))
      ->group("Selection");
  add_pair_options(app, request.pairs);
  app.add_option("-r,--rank", request.rank, "Compare only this rank")
      ->type_name("N")
      ->group("Selection");
  app.add_option("--op-mapping-file", request.op_mapping_file,
                 "Own table of operator types: op_mapping_file.json or its folder (-mf)")
      ->type_name("PATH")
      ->group("Selection");
  app.add_flag("-w,--weight", request.weight,
               "The paths are checkpoints: compare weights, quantised ones de-quantised")
      ->group("Selection");
  app.add_option("--custom-algorithms", request.custom_algorithms,
                 "FILE.py:FUNC or FILE.so:FUNC, one more column each (-alg)")
      ->type_name("SPEC")
      ->group("Output");
  app.add_flag("--stats", request.stats, "Compare statistics instead of tensors (-st)")
      ->group("Selection");
}

void add_limit_options(CLI::App& app, CompareRequest& request) {
  const char* group = "Limits (exit status 1 when a row is beyond one)";
  app.add_option("--atol", request.atol,
                 "|mine - golden| <= ATOL + RTOL * |golden| for every element")
      ->check(Number{0, HUGE_VAL})
      ->group(group);
  app.add_option("--rtol", request.rtol, "see --atol")->check(Number{0, HUGE_VAL})->group(group);
  app.add_option("--cos", request.cos, "Cosine similarity at least this")
      ->check(Number{-1, 1})
      ->group(group);
  app.add_option("--rel-l2", request.rel_l2, "Relative L2 distance at most this")
      ->check(Number{0, HUGE_VAL})
      ->group(group);
  app.add_option("--thresholds", request.thresholds_file,
                 "JSON list of limits by name, type or dtype; the first match wins")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--allow-unmatched", request.allow_unmatched,
                 "Shell pattern on golden's names: these need no partner; repeatable")
      ->type_name("PATTERN")
      ->allow_extra_args(false)
      ->group(group);
  app.add_flag("--exit-zero", request.exit_zero, "Exit status 0 whatever differs")->group(group);
}

CLI::Option* add_output_options(CLI::App& app, CompareRequest& request) {
  const char* group = "Output";
  CLI::Option* output =
      app.add_option("-o,--output", request.output, "Folder for the report; default: this one")
          ->type_name("DIR")
          ->group(group);
  app.add_flag("--jsonl", request.jsonl, "The report also as JSON lines")->group(group);
  app.add_flag("--unmatched", request.unmatched, "Also list the tensors without partner")
      ->group(group);
  app.add_option("--compat", request.compat,
                 "msit: the rows and values of msit 8.2, defects included; ait-0.2: the report of "
                 "ait 0.2")
      ->check(CLI::IsMember({"none", "msit", "ait-0.2"}))
      ->group(group);
  return output;
}

void add_machine_options(CLI::App& app, CompareRequest& request, std::string& log_level) {
  const char* group = "Machine";
  app.add_option("--jobs,-j", request.jobs, "Threads; default: one a core")
      ->check(WholeNumber{})
      ->group(group);
  app.add_option("--max-memory", request.max_memory, "File pages kept in memory; default 256MiB")
      ->type_name("BYTES")
      ->group(group);
  app.add_option("-l,--log-level", log_level, "debug info warning error fatal critical")
      ->check(CLI::IsMember({"debug", "info", "warn", "warning", "error", "fatal", "critical"}))
      ->group(group);
  app.add_flag("--allow-pickle", request.allow_pickle,
               "Accepted for old scripts; pickles are never executed")
      ->group(group);
}

LogLevel log_level_of(const std::string& name) {
  if (name == "debug") return LogLevel::Debug;
  if (name == "warn" || name == "warning") return LogLevel::Warning;
  if (name == "error" || name == "fatal" || name == "critical") return LogLevel::Error;
  return LogLevel::Info;
}

}  // namespace

void add_compare_command(CLI::App& app, int& exit_status) {
  CLI::App* command =
      app.add_subcommand("compare", "Compare two runs or two tensor files, tensor by tensor");
  struct Parsed {
    CompareRequest request;
    std::string log_level = "info";
  };
  auto parsed = std::make_shared<Parsed>();
  add_input_options(*command, parsed->request);
  add_limit_options(*command, parsed->request);
  CLI::Option* output = add_output_options(*command, parsed->request);
  add_machine_options(*command, parsed->request, parsed->log_level);
  command
      ->add_flag(
          "--verdict", parsed->request.verdict,
          "The verdict also as columns and as msit_cmp_first_bad_<UTC time>.json, and in the exit "
          "status")
      ->group("Verdict");
  add_verdict_options(*command, parsed->request.verdict_options);
  command->footer(
      "example:\n"
      "  assay compare golden/ mine/ -o report --rel-l2 0.01\n\n"
      "Writes msit_cmp_report_<UTC time>.xlsx (one level: .csv), prints the worst rows and names "
      "the first wrong operator.\n"
      "Exit status: 0 same or no limit given, 1 beyond a limit, 125 not comparable as a whole, 2 "
      "wrong options or input, 3 our fault.");
  command->callback([parsed, output, &exit_status] {
    CompareRequest& request = parsed->request;
    if (request.golden_path.empty() || request.my_path.empty()) {
      exit_status =
          report_error(request.golden_path.empty()
                           ? "the golden run is missing: assay compare GOLDEN MINE"
                           : "the run to compare with golden is missing: assay compare GOLDEN MINE",
                       "assay compare --help shows every option with an example");
      return;
    }
    request.output_given = output->count() > 0;
    request.judge = request.compat == "none";
    set_log_level(log_level_of(parsed->log_level));
    exit_status = run_command(request);
  });
}

}  // namespace assay::cli
