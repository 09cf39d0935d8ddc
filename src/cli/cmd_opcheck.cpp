// SPDX-License-Identifier: Apache-2.0
// Command line of Ascend/msit 8.2: msit/components/llm/msit_llm/__main__.py; of ait 0.2.2 its -c.
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/file_source.hpp"
#include "base/numbers.hpp"
#include "base/shell_words.hpp"
#include "base/text.hpp"
#include "cli/answer.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"
#include "cli/custom_metrics.hpp"
#include "cli/interrupt.hpp"
#include "cli/output.hpp"
#include "cli/part_pipe.hpp"
#include "cli/progress_bar.hpp"
#include "cli/ranges.hpp"
#include "cli/ray.hpp"
#include "cli/tools/tool_support.hpp"
#include "compare/algorithms.hpp"
#include "engines/engines.hpp"
#include "locate/judge/operator_check.hpp"
#include "opcheck/check.hpp"
#include "opcheck/registry.hpp"
#include "report/files.hpp"
#include "report/opcheck_files.hpp"
#include "report/opcheck_table.hpp"
#include "report/opcheck_terminal.hpp"
#include "vendor/ait/report.hpp"

namespace assay::cli {
namespace {

// ---- checks of single values; texts as argparse prints them ------------------------------------

std::string input_problem(std::string_view text) {
  const std::string path(text);
  const Result<FileFacts> facts = file_facts(path);
  if (!facts) return "Input path not found: " + path;
  if (facts->kind != FileFacts::Kind::Folder) return "Input path is not a directory: " + path;
  if (!is_elsewhere(path) && ::access(path.c_str(), R_OK | X_OK) != 0)
    return "Input path is not readable: " + path;
  return {};
}

std::string csv_problem(std::string_view text) {
  const std::string path(text);
  const Result<FileFacts> facts = file_facts(path);
  if (!facts) return "csv file not found: " + path;
  if (facts->kind != FileFacts::Kind::File) return "csv path is not a file: " + path;
  if (!is_elsewhere(path) && ::access(path.c_str(), R_OK) != 0)
    return "csv file is not readable: " + path;
  return {};
}

// "24_1,2_3_5"
std::string ids_problem(std::string_view text) {
  if (text.empty()) return {};
  for (const std::string_view id : split(text, ',')) {
    for (const std::string_view number : split(id, '_')) {
      if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos)
        return "'" + std::string(text) + "' is no list of ids such as 24_1,2_3_5";
    }
  }
  return {};
}

std::string device_problem(std::string_view text) {
  const auto value = parse_number<int64_t>(text);
  return value && *value >= 0 ? std::string()
                              : "'" + std::string(text) + "' is no device number (0, 1, ...)";
}

std::string old_jobs_problem(std::string_view text) {
  const auto value = parse_number<int>(text);
  return value && *value >= 1 && *value <= 8
             ? std::string()
             : "'" + std::string(text) + "' is no number of jobs from 1 to 8";
}

// ---- what the options mean ---------------------------------------------------------------------

struct Request {
  std::string input;
  std::string output = "./";
  opcheck::CaseOptions cases;
  opcheck::CheckOptions check;
  report::OpcheckTableOptions table;
  Words algorithms;
  Words formats = {"xlsx"};
  std::string html;  // path of the page; empty: none
  std::set<std::string> fail_on;
  std::string log_level = "info";
  bool rerun = false;
  bool ops_list = false;
  bool json = false;
  RayRequest ray;
};

Store list_into(std::vector<std::string>& target) {
  return [&target](const Words& values) -> Status {
    target.clear();
    for (const std::string_view part : split(values.front(), ',')) {
      if (!part.empty()) target.emplace_back(part);
    }
    return {};
  };
}

/// "json" is the lines of JSON, too; nothing is written twice.
Store formats_into(Words& formats) {
  return [&formats](const Words& values) -> Status {
    formats.clear();
    for (const std::string& value : values) {
      const std::string name = value == "json" ? "jsonl" : value;
      if (std::find(formats.begin(), formats.end(), name) == formats.end()) formats.push_back(name);
    }
    return {};
  };
}

Store metrics_into(report::OpcheckTableOptions& table) {
  return [&table](const Words& values) -> Status {
    const auto has = [&](const char* name) {
      return std::find(values.begin(), values.end(), name) != values.end();
    };
    table.absolute = has("abs");
    table.cosine = has("cos_sim");
    table.kl = has("kl");
    return {};
  };
}

Result<measure::Standard> parse_standard(const std::string& name) {
  return *measure::standard_from_name(name);  // one of the choices
}

/// What follows from several options.
Status complete(Request* request) {
  request->check.kl_divergence = request->table.kl;
  request->table.standard = request->check.standard;
  ASSAY_TRY(const auto algorithms, compare::load_algorithms(request->algorithms));
  request->check.custom = custom_metrics(algorithms);
  for (const opcheck::CustomMetric& metric : request->check.custom)
    request->table.custom.push_back(metric.name);
  return {};
}

/// Why operations cannot be run again here.
std::string rerun_refusal() {
  const std::string why =
      "-rerun needs an NPU, libopchecker.so and the speed library of the acceleration library: ";
  const std::string home = environment("ATB_SPEED_HOME_PATH");
  if (home.empty()) return why + "ATB_SPEED_HOME_PATH is not set";
  const std::string library = home + "/lib/libatb_speed_torch.so";
  if (::access(library.c_str(), R_OK) != 0) return why + library + " is not there";
  return why +
         "running them again is not available in this version; without -rerun the dumped "
         "outputs are judged";
}

int print_operators() {
  Output output;
  for (const opcheck::OperationRow& op : opcheck::all_operators()) {
    output.line(op.name);
    output.line("    variants    " + std::string(op.variants));
    output.line("    outputs     " + std::string(op.outputs));
    output.line("    standard    " + std::string(op.precision));
    if (!op.parameters.empty()) output.line("    parameters  " + std::string(op.parameters));
  }
  if (const Status written = output.finish(); !written) return report_error(written.error());
  return kSame;
}

// ---- the run -----------------------------------------------------------------------------------

/// A dump of the moment before the operations has nothing to judge.
bool was_only_before(const opcheck::CaseList& cases) {
  const auto has_after = [](const opcheck::CaseEntry& entry) {
    const auto& inputs = entry.tensors.inputs;
    return !entry.tensors.outputs.empty() ||
           std::any_of(inputs.begin(), inputs.end(), [](const opcheck::CaseTensors::Slot& slot) {
             return slot.after != nullptr;
           });
  };
  return !cases.entries().empty() &&
         std::none_of(cases.entries().begin(), cases.entries().end(), has_after);
}

/// The old names check dumps of ATB and nothing else.
Result<locate::CheckSubject> find_subject(const Request& request, bool operators) {
  if (operators) {
    ASSAY_TRY(
        locate::CheckSubject subject,
        locate::find_check_subject(request.input, request.cases, request.check, engines::all()));
    const report::OpcheckTableOptions& table = request.table;
    if (subject.operators && (table.absolute || table.cosine))
      return fail(Errc::Usage, "--precision-metric: only for dumps of ATB");
    return subject;
  }
  locate::CheckSubject subject;
  ASSAY_TRY(subject.operations, opcheck::list_cases(request.input, request.cases));
  return subject;
}

struct Checked {
  opcheck::Report report;
  std::vector<std::string> files;
};

Result<Checked> check(const Request& request, bool operators) {
  ASSAY_TRY(const locate::CheckSubject subject, find_subject(request, operators));
  if (subject.operations && was_only_before(*subject.operations))
    return fail(Errc::Usage,
                "Only the rerun mode allows checking dumped data before executing operators.");
  Checked outcome;
  report::OpcheckTableOptions table = request.table;
  table.by_rounding = subject.operators != nullptr;
  ASSAY_TRY(
      report::OpcheckWriter writer,
      report::OpcheckWriter::open(
          {request.output, report::opcheck_timestamp(), request.formats, request.html}, table));
  opcheck::CheckOptions options = request.check;
  Status written;
  options.finished = [&](const opcheck::CaseResult& result) {
    if (written) written = writer.add(result);
  };
  options.interrupted = &interrupted();
  ASSAY_TRY(const std::unique_ptr<run::PartRunner> parts,
            part_runner({.compat = "none", .custom_algorithms = request.algorithms}));
  options.parts = parts.get();
  {
    const InterruptGuard guard;
    ProgressBar bar;
    options.progress = [&](size_t done, size_t total) { bar.update(done, total); };
    ASSAY_TRY(outcome.report,
              locate::check_subject(subject, request.cases.names, options, engines::all()));
  }
  ASSAY_TRY_STATUS(std::move(written));
  ASSAY_TRY(outcome.files, writer.finish(outcome.report));
  return outcome;
}

int status_of(const ToolCall& call, const opcheck::Report& report, const Request& request) {
  if (report.interrupted) return kInterrupted;
  const opcheck::Report::Counts counts = report.counts();
  const bool fails = (counts.failed > 0 && request.fail_on.contains("failed")) ||
                     (counts.errors > 0 && request.fail_on.contains("error")) ||
                     (counts.not_supported > 0 && request.fail_on.contains("not_supported"));
  if (fails) return kDiffers;
  const bool judged = counts.passed > 0 || counts.failed > 0 || counts.errors > 0;
  return judged || call.name != DumpName::Assay ? kSame : kCannotJudge;
}

std::string hint_for(const Error& error) {
  if (error.code == Errc::WrongKind)
    return "capture one with: assay dump --type tensor -o OUT -- CMD";
  if (error.code == Errc::NotCaptured)
    return "capture them with: assay dump --level operator -o OUT -- CMD";
  return {};
}

bool is_wrong(const opcheck::CaseResult& one) {
  return one.outcome == opcheck::CheckOutcome::Failed ||
         one.outcome == opcheck::CheckOutcome::Error;
}

// The first that is wrong; nothing when none is.
const opcheck::CaseResult* first_wrong(const opcheck::Report& report) {
  const auto found = std::ranges::find_if(report.cases, is_wrong);
  return found == report.cases.end() ? nullptr : &*found;
}

// What is wrong is looked at; a run that is right by itself is held against another.
std::string next_of(const opcheck::Report& report, const Request& request) {
  const std::string run = shell_quote(request.input);
  const opcheck::Report::Counts counts = report.counts();
  if (const opcheck::CaseResult* wrong = first_wrong(report)) {
    const opcheck::CaseDescription& place = wrong->description;
    return "assay show " + run + " " + shell_quote(place.node.empty() ? place.id : place.node);
  }
  return counts.passed > 0 ? "assay compare GOLDEN " + run : "assay show " + run;
}

Answer answer_of(const opcheck::Report& report, const Request& request, int status) {
  const bool judged = report.counts().passed > 0;
  return {"opcheck",
          first_wrong(report) != nullptr ? "wrong"
          : judged                       ? "right"
                                         : "not_judged",
          report::opcheck_verdict(report), next_of(report, request), status};
}

JsonObject json_of(const Answer& answer, const Checked& checked) {
  const opcheck::Report::Counts counts = checked.report.counts();
  JsonObject json = answer_json(answer);
  json.add("passed", counts.passed)
      .add("failed", counts.failed)
      .add("errors", counts.errors)
      .add("not_supported", counts.not_supported)
      .add("outputs", counts.outputs);
  std::vector<const opcheck::CaseResult*> wrong;
  for (const opcheck::CaseResult& one : checked.report.cases) {
    if (is_wrong(one)) wrong.push_back(&one);
  }
  const auto place = [](const opcheck::CaseResult* one) {
    return JsonObject()
        .add("node", one->description.node)
        .add("operation", one->description.op_type)
        .add("id", one->description.id)
        .add("result", opcheck::outcome_name(one->outcome))
        .add("reason", one->rows.front().reason)
        .text();
  };
  json.add_json("wrong", json_list(wrong, place));
  json.add_json("warnings", json_texts(checked.report.warnings));
  return std::move(json.add_json("files", json_texts(checked.files)));
}

int run_ours(const ToolCall& call, Request& request) {
  const auto refused = [&](const Error& error, std::string_view hint = {},
                           const std::string& next = {}) {
    return report_failure("opcheck", error, hint, request.json, next);
  };
  const auto usage = [](std::string message) {
    return Error{Errc::Usage, {}, std::nullopt, std::move(message)};
  };
  if (request.rerun) return refused(usage(rerun_refusal()));
  if (request.input.empty()) return refused(usage("no run was given: assay opcheck RUN"));
  if (const Status ready = complete(&request); !ready) return refused(ready.error());
  if (const Status page = check_page_path(request.html); !page) return refused(page.error());
  const Result<Checked> outcome = check(request, true);
  if (!outcome) return refused(outcome.error(), hint_for(outcome.error()));
  if (outcome->report.cases.empty() && !outcome->report.interrupted)
    return refused(usage("nothing was checked: " + (outcome->report.nothing_matched.empty()
                                                        ? "the run holds no operation"
                                                        : outcome->report.nothing_matched)),
                   {}, "assay show " + shell_quote(request.input));
  const report::OpcheckTerminalOptions terminal{
      .width = std::max(60, terminal_width(STDOUT_FILENO)),
      .colour = use_colour(STDOUT_FILENO),
      .files = outcome->files};
  const Answer answer =
      answer_of(outcome->report, request, status_of(call, outcome->report, request));
  return print_answer(answer, report::opcheck_terminal_report(outcome->report, terminal),
                      request.json, json_of(answer, *outcome));
}

/// The original ends with 0 whatever happened after its options were read.
int run_old(const ToolCall& call, Request& request) {
  const Error refused{Errc::Usage, {}, std::nullopt, {}};
  const auto refuse = [&](const std::string& message) {
    Error error = refused;
    error.message = message;
    call.voice.error(error);
    // Status 0 looks like success, and the log may be switched off or lost among others.
    std::fprintf(stderr, "%s: error: %s; nothing was checked\n", call.program.c_str(),
                 message.c_str());
    return kSame;
  };
  struct stat info{};
  if (::stat(request.output.c_str(), &info) != 0 || !S_ISDIR(info.st_mode))
    return refuse("Output path not found: " + request.output);
  if (request.rerun) return refuse(rerun_refusal());
  if (const Status ready = complete(&request); !ready) {
    call.voice.error(ready.error());
    return kSame;
  }
  const Result<Checked> outcome = check(request, false);
  if (!outcome) {
    call.voice.error(outcome.error());
    return kSame;
  }
  const opcheck::Report& report = outcome->report;
  for (const std::string& warning : report.warnings) call.voice.warning(warning);
  if (!report.nothing_matched.empty())
    call.voice.warning("nothing was checked: " + report.nothing_matched);
  for (const opcheck::CaseResult& one : report.cases) {
    if (one.outcome == opcheck::CheckOutcome::Pass) continue;
    call.voice.warning(one.description.id + " " + one.description.op_type + ": " +
                       std::string(opcheck::outcome_name(one.outcome)) + ": " +
                       one.rows.front().reason);
  }
  for (const std::string& file : outcome->files) call.voice.info("opcheck result saved: " + file);
  char text[96];
  std::snprintf(text, sizeof(text), "Total cases: %zu; Total time: %.2f seconds",
                report.cases.size(), report.seconds);
  std::printf("%s\n", text);
  return status_of(call, report, request);
}

// ---- the command line --------------------------------------------------------------------------

/// Which operations, and what is measured of them.
void add_subject_rows(Command& command, Request& request) {
  const bool ours = command.caller.is_ours();
  command
      .add(ours ? "RUN, --input, -i DIR" : "--input, -i DIR",
           ours ? "A dump of ATB operations, or any folder inside one down to one operation; or a "
                  "run captured with operators."
                : "A dump of ATB operations, or any folder inside one down to one operation.",
           request.input, ours ? Check() : Check(input_problem))
      .required = !ours;
  command.add("--csv-path, -c FILE",
              "List of operations (operation_tensors_N.csv): its rows are checked, with its "
              "parameters where a folder has none.",
              request.cases.csv_path, csv_problem);
  command.add("--output, -o DIR", "Folder for the report, default './'.", request.output);
  command.add_list("--operation-ids, -ids IDS",
                   "Only these operations and all below them: 24_1,2_3_5.",
                   list_into(request.cases.ids), ids_problem);
  command.add_list("--operation-name, -opname NAMES",
                   "Only types whose name contains one of these, in any case: self,linear.",
                   list_into(request.cases.names), safe_string_problem);
  command.add("--precision-metric, -metric [{abs,cos_sim,kl} ...]",
              "More columns: absolute error, cosine similarity, KL divergence.",
              metrics_into(request.table));
}

/// How they are computed again.
void add_computing_rows(Command& command, Request& request) {
  using opcheck::PrecisionMode;
  const bool ours = command.caller.is_ours();
  command.add(
      "--device-id, -device N", "Accepted and not needed: goldens are computed on the CPU.",
      [](const Words&) { return Status(); }, device_problem);
  command.add("--atb-rerun, -rerun",
              "Run the operations again on an NPU instead of judging the dumped outputs.",
              request.rerun);
  command.add("--custom-algorithms, -alg SPEC ...",
              "FILE.py:FUNC or FILE.so:FUNC, one more column each.", request.algorithms);
  command.add(
      "--precision-mode, -pmode {keep_origin_dtype,force_fp16,force_fp32}",
      "Convert float tensors before anything is computed; default keep_origin_dtype.",
      chosen(request.check.precision_mode, {{"keep_origin_dtype", PrecisionMode::KeepOrigin},
                                            {"force_fp16", PrecisionMode::ForceFp16},
                                            {"force_fp32", PrecisionMode::ForceFp32}}));
  if (ours) {
    add_jobs(command, request.check.jobs,
             "Threads, default one per core. Results do not depend on it.");
  } else {
    command.add("--jobs, -j N", "Threads, 1 to 8, default 1. Results do not depend on it.",
                request.check.jobs, old_jobs_problem);
  }
  command.add("--optimization-identify, -opt",
              "Switch attention's optimisations off one by one; only together with -rerun.",
              request.table.optimization);
}

/// How they are judged and reported.
void add_judging_rows(Command& command, Request& request) {
  add_log_level(command, request.log_level);
  command.add("--standard {atb,legacy-o4,legacy-o4-strict,legacy-o1,mixed}",
              "Limits that decide, default atb; all are in the report.",
              parsed_into(request.check.standard, parse_standard));
  command.add("--format {xlsx,csv,json,jsonl,html} ...", "Report files, default xlsx.",
              formats_into(request.formats));
  if (command.caller.is_ours()) {
    command.add("--html FILE", "One page to open in a browser, without a network", request.html);
    command.add("--json", "One JSON object for programs, instead of the table.", request.json);
  }
  command.add("--fail-on {failed,error,not_supported,none} ...",
              command.caller.is_ours() ? "What makes the exit status 1, default: failed error."
                                       : "What makes the exit status 1, default: none.",
              [&request](const Words& values) -> Status {
                request.fail_on = {values.begin(), values.end()};
                return {};
              });
  command.add("--max-memory SIZE", "Working memory, default 2GiB.",
              parsed_into(request.check.max_memory, parse_bytes));
  command.add("--no-kernels", "Leave the kernels of operations out, where they were captured.",
              [&request](const Words&) -> Status {
                request.cases.kernels = false;
                return {};
              });
  command.add("--ops-list",
              "Print the operations that can be checked, with their variants, and end.",
              request.ops_list);
}

}  // namespace

Command opcheck_command(const Caller& caller) {
  const bool ours = caller.is_ours();
  Command command(
      caller, ours ? "Recomputes each operation of an ATB dump, or operator of a captured run, "
                     "in fp64 from its own inputs and judges what it produced."
                   : "Recomputes each captured operation in fp64 from its own inputs and judges "
                     "what it produced.");
  const auto request = std::make_shared<Request>();
  request->cases.kernels = ours;
  request->check.jobs = ours ? 0 : 1;
  if (ours) command.short_usage = "[RUN] [OPTIONS]";
  command.ends_with_next = ours;
  if (ours) request->fail_on = {"failed", "error"};
  add_subject_rows(command, *request);
  add_computing_rows(command, *request);
  add_judging_rows(command, *request);
  if (ours) add_ray_options(command, request->ray, true);
  command.example = caller.program + (ours ? " dump/msit_dump_20250102_030405 -o report"
                                           : " -i msit_dump_20250102_030405/tensors/0_4711/2 -o "
                                             "report");
  command.run = [caller, request](const ParsedArguments& parsed) {
    if (request->ops_list) return print_operators();
    if (caller.name == DumpName::Ait && parsed.given("--csv-path"))
      request->table.style = vendor::ait::opcheck_style();
    if (has_to_hand_over(request->ray) && !request->input.empty())
      return hand_over_to_ray(request->ray, "opcheck", parsed.all, {request->input});
    const ToolCall call(caller, request->log_level);
    return caller.is_ours() ? run_ours(call, *request) : run_old(call, *request);
  };
  return command;
}

}  // namespace assay::cli
