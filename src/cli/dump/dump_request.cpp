// SPDX-License-Identifier: Apache-2.0
// Options and their checks: Ascend/msit: msit/components/llm/msit_llm/{__main__,common/utils}.py
#include "cli/dump/dump_request.hpp"

#include <algorithm>

#include "base/ascii.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/assignments.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"

namespace assay::cli {
namespace {

bool is_digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

constexpr int64_t kLargestRun = INT32_MAX;    // what the probes can count
constexpr int64_t kLargestSeed = UINT32_MAX;  // PYTHONHASHSEED takes no other

/// "2, 3_1" as the original's documents write it: without blanks at the commas and at the ends. A
/// blank elsewhere stays, and is refused: "1 2" is not 12.
std::string without_blanks(std::string_view text) {
  std::string out;
  for (const std::string_view part : split(text, ',')) {
    const size_t first = part.find_first_not_of(" \t");
    const size_t last = part.find_last_not_of(" \t");
    if (!out.empty() || part.data() != text.data()) out += ',';
    if (first != std::string_view::npos) out += part.substr(first, last - first + 1);
  }
  return out;
}

std::optional<int64_t> integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return parse_number<int64_t>(text);
}

// ---- checks of single values; the texts are the original's ----

/// Empty, or ids like "2,3_1": digits joined by '_', lists joined by ','.
std::string ids_problem(std::string_view given) {
  const std::string text = without_blanks(given);
  if (text.empty()) return {};
  for (const std::string_view id : split(text, ',')) {
    for (const std::string_view part : split(id, '_')) {
      if (!is_digits(part))
        return "dym range string \"" + std::string(given) + "\" is not a legal string";
    }
  }
  return {};
}

std::string range_problem(std::string_view given) {
  const std::string text = without_blanks(given);
  if (text.empty() || text == "all") return {};
  const std::vector<std::string_view> parts = split(text, ',');
  for (const std::string_view part : parts) {
    if (!part.empty() && !is_digits(part))
      return "output size \"" + std::string(given) + "\" is not a legal number";
    if (!part.empty() && integer(part).value_or(INT64_MAX) > kLargestRun)
      return "\"" + std::string(given) + "\": expected numbers from 0 to " +
             std::to_string(kLargestRun);
  }
  // The original took both of these and then captured nothing, without a word.
  if (parts.size() % 2 != 0) {
    return "\"" + std::string(given) + "\" has no end for its last range; give pairs: first,last";
  }
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    const int64_t first = integer(parts[i]).value_or(0);
    const int64_t last = integer(parts[i + 1]).value_or(0);
    if (first > last) return "\"" + std::string(given) + "\" ends before it begins";
  }
  return {};
}

std::optional<bool> bool_word(std::string_view given) {
  const std::string word = lower_case(given);
  for (const std::string_view yes : {"yes", "true", "t", "y", "1"}) {
    if (word == yes) return true;
  }
  for (const std::string_view no : {"no", "false", "f", "n", "0"}) {
    if (word == no) return false;
  }
  return std::nullopt;
}

std::string child_problem(std::string_view given) {
  if (bool_word(given)) return {};
  return "Boolean value expected true, 1, false, 0 with case insensitive.";
}

std::string integer_problem(std::string_view given, const char* check, int64_t last) {
  const std::optional<int64_t> value = integer(given);
  if (!value) return "invalid " + std::string(check) + " value: '" + std::string(given) + "'";
  if (*value < 0 || *value > last) return std::string(given) + " is an invalid int value";
  return {};
}

/// The same for an option; `check` is the name of the original's function.
Check integer_up_to(int64_t last, const char* check) {
  return [=](std::string_view given) { return integer_problem(given, check, last); };
}

std::string device_problem(std::string_view given) {
  const std::string text = without_blanks(given);
  for (const std::string_view device : split(text, ',')) {
    if (std::string problem = integer_problem(device, "check_device_integer", INT32_MAX);
        !problem.empty())
      return problem;
  }
  return {};
}
std::string seed_problem(std::string_view given) {
  const std::optional<int64_t> seed = integer(given);
  if (!seed) return std::string(given) + " can not convert to int.";
  if (*seed < 0 || *seed > kLargestSeed)
    return std::string(given) + " is no seed: Python takes 0 to " + std::to_string(kLargestSeed);
  return {};
}
std::string steps_problem(std::string_view given) {
  const Result<std::string> range = range_of_steps(given);
  return range ? std::string() : range.error().message;
}
std::string ranks_problem(std::string_view given) {
  const Result<std::string> range = range_of_ranks(given);
  return range ? std::string() : range.error().message;
}
std::string bytes_problem(std::string_view given) {
  const Result<uint64_t> bytes = parse_bytes(given);
  return bytes ? std::string() : bytes.error().message;
}
std::string queue_problem(std::string_view given) {
  const std::optional<int64_t> value = integer(given);
  return value && *value >= 1 && *value <= (int64_t{1} << 20)
             ? std::string()
             : "'" + std::string(given) + "' is no number of MiB from 1 to 1048576";
}

/// The characters outside quotes that a command may hold; '\0'-free. The others need a shell.
bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./=:,[] ;").find(c) != std::string_view::npos;
}

void append_type(std::vector<std::string>* types, std::string_view type) {
  if (std::find(types->begin(), types->end(), type) == types->end()) types->emplace_back(type);
}

std::vector<std::string> complete_types(std::vector<std::string> given) {
  std::vector<std::string> types;
  for (const std::string& type : given) append_type(&types, type);
  const auto has = [&](std::string_view type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  if (has("stats")) append_type(&types, "tensor");
  if (has("onnx")) {
    append_type(&types, "model");
    append_type(&types, "op");
  }
  return types;
}

/// A list as without_blanks() leaves it; an empty one changes nothing.
Store list_into(std::string& target) {
  return [&target](const Words& values) -> Status {
    if (std::string list = without_blanks(values.front()); !list.empty()) target = list;
    return {};
  };
}

constexpr std::string_view kTypeRow =
    "--type {model,layer,op,kernel,tensor,cpu_profiling,onnx,stats} ...";

/// What every name has, in the original's order.
void add_common_rows(Command& command, const Caller& caller, DumpRequest& request) {
  const bool ours = caller.is_ours();
  const bool ait = caller.name == DumpName::Ait;
  command.add(kTypeRow,
              ait ? "What to capture, default: tensor" : "What to capture, default: tensor model",
              request.types);
  command.add("--only-save-desc, -sd", "Only dtype, format and shape of each tensor.",
              request.description_only);
  command.add_list("--save-operation-ids, -ids IDS", "Only these operations: 2,3_1. Default: all.",
                   list_into(request.ids), ids_problem);
  command.add_list("--execute-range, -er RANGE",
                   ours ? "Steps to capture, in pairs first,last: 0,0 (default), 3,5,7,7, or all."
                        : "Runs to capture, in pairs first,last: 0,0 (default), 3,5,7,7, or all.",
                   list_into(request.range), range_problem);
  command.add(
      "--save-operation-child, -child BOOL",
      "Also the children of the chosen operations, default true.",
      [&request](const Words& values) -> Status {
        request.child = bool_word(values.front()).value_or(true);
        return {};
      },
      child_problem);
  command.add("--save-time, -time N",
              ait ? "0 before, 1 after (default), 2 both."
                  : "0 before, 1 after, 2 both, 3 inputs before and outputs after the operation "
                    "(default).",
              request.save_time, integer_up_to(ait ? 2 : 3, "check_dump_time_integer"));
  command.add_list("--operation-name, -opname NAMES",
                   "Only operations whose type begins with one of these: selfattention,linear.",
                   request.operation_names, safe_string_problem);
  command.add("--save-tiling, -tiling", "Also the tiling data of kernels.", request.tiling);
  command.add("--save-tensor-part, -stp N", "0 inputs, 1 outputs, 2 both (default).",
              request.tensor_part, integer_up_to(2, "check_positive_integer"));
  command.add("--output, -o OUTPUT",
              ours ? "Folder for everything, default assay_dump_<time>."
                   : "Folder for everything, default './'.",
              request.output);
  command.add_list("--device-id, -device IDS", "Only these devices: 0 or 0,1. Default: all.",
                   list_into(request.device), device_problem);
  add_log_level(command, request.log_level);
  command.add(
      "-seed [SEED]", "Makes the run repeatable; 2024 when no number follows.",
      [&request](const Words& values) -> Status {
        request.seed = values.empty() ? 2024 : integer(values.front());
        return {};
      },
      seed_problem);
  command.add("--enable-symlink, -symlink", "Store equal tensors once; the others become links.",
              request.symlink);
  command.add("--config-path, -config FILE",
              "JSON file that can be changed while the program runs; replaces -ids -er -child "
              "-device.",
              request.config_path);
}

/// Ours that need no knowledge of PyTorch and ggml, which the old names have, too.
void add_queue_rows(Command& command, DumpRequest& request) {
  command.add(
      "--queue MIB", "Memory for tensors on their way to disk, default 256.",
      [&request](const Words& values) -> Status {
        request.queue_bytes = static_cast<uint64_t>(*integer(values.front())) << 20;
        return {};
      },
      queue_problem);
  command.add("--drop-when-full", "Lose tensors and count them instead of waiting for the disk.",
              request.drop_when_full);
  command.add("--sync",
              "Write in the program's own threads: for programs that end by _exit or a signal.",
              request.synchronous);
  command.add("--filter-rows",
              "Let -ids, -opname and -er choose the rows of the op and kernel lists, too.",
              request.filter_rows);
  command.add("--probe-library FILE", "Another ATB probe library than our own.",
              request.probe_library);
  command.add("--compat {none,msit}", "msit: statistics in the original's text form.",
              chosen(request.compat_text, {{"none", false}, {"msit", true}}));
}

/// What only our own name has.
void add_our_rows(Command& command, DumpRequest& request) {
  command.add_list("--steps STEPS", "The same as -er as a list: 0,2-4, or all.",
                   parsed_into(request.range, range_of_steps), steps_problem);
  command.add_list("--ranks RANKS",
                   "PyTorch: only these ranks of the job capture and write: 0,8-15, or all "
                   "(default).",
                   parsed_into(request.ranks, range_of_ranks), ranks_problem);
  command.add("--parallel SIZES",
              "PyTorch: sizes of the job's parallel groups, the fastest first: tp=2,pp=2,dp=2.",
              request.parallel);
  command.add("--node-memory BYTES",
              "PyTorch: memory of all ranks of a host for tensors on their way to disk: 8GiB.",
              parsed_into(request.node_memory, parse_bytes), bytes_problem);
  command.add("--disk-budget BYTES",
              "PyTorch: what all ranks of a host may write together: 500GiB.",
              parsed_into(request.disk_budget, parse_bytes), bytes_problem);
  command.add("--modules PATTERN ...",
              "PyTorch: only these module paths: model.layers.*.mlp; ggml: only nodes of these "
              "names: ffn_*",
              request.modules);
  command.add("--exclude PATTERN ...", "ggml: no nodes of these names.", request.exclude);
  command.add("--statistics", "Statistics of each tensor instead of its data: --type tensor stats.",
              request.statistics);
  command.add("--layout {native,strict}",
              "PyTorch, ATB: folder layout, default native; strict: that of the original tool.",
              chosen(request.strict, {{"native", false}, {"strict", true}}));
  command.add("--level {module,operator}",
              "PyTorch: inputs and outputs of modules, or of every operator inside them, too; "
              "default module.",
              chosen(request.operators, {{"module", false}, {"operator", true}}));
  command.add("--weights",
              "PyTorch: parameters and buffers, too; ggml: weights, as they lie in memory.",
              request.weights);
  command.add("--caches",
              "ggml: what nodes read of the key and value caches and write to them, too.",
              request.caches);
  command.add("--digest", "The XXH3-128 digest of each tensor, too; with -sd instead of its data.",
              request.digest);
  command.add("--force", "Remove the run that the output folder holds already.", request.force);
  command.add("--require",
              "End with status 125 when nothing, or less than asked, was captured, and the program "
              "itself ended with 0.",
              request.require);
  command.add("--json", "What was captured as one JSON object, the last line of stdout.",
              request.json);
  command.add("--next COMMAND", "What to name as the next command behind a capture.", request.next);
  command.add("--host {auto,atb,torch,ggml}",
              "What to capture in the program, default auto: everything.", request.host);
}

}  // namespace

bool DumpRequest::has_type(std::string_view type) const {
  return std::find(types.begin(), types.end(), type) != types.end();
}

std::string safe_string_problem(std::string_view text) {
  constexpr std::string_view kOthers = "_ \"'><=[])(,}{:/.~-";
  for (const char c : text) {
    const bool alphanumeric =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!alphanumeric && (c == '\0' || kOthers.find(c) == std::string_view::npos))
      return "invalid safe_string value: '" + std::string(text) + "'";
  }
  return {};
}

namespace {

/// "0,2-4" -> "0,0,2,4"; `noun` is what the numbers count.
Result<std::string> range_of(std::string_view given, const std::string& noun,
                             const std::string& example) {
  const std::string text = without_blanks(given);
  if (text.empty() || text == "all") return std::string("all");
  std::string range;
  for (const std::string_view part : split(text, ',')) {
    const size_t dash = part.find('-');
    const std::string_view first = part.substr(0, dash);
    const std::string_view last = dash == std::string_view::npos ? first : part.substr(dash + 1);
    if (!is_digits(first) || !is_digits(last) || !integer(first) || !integer(last))
      return fail(Errc::Usage,
                  "'" + std::string(given) + "' is no list of " + noun + "s like " + example);
    if (*integer(last) > kLargestRun)
      return fail(Errc::Usage, "'" + std::string(given) + "': a " + noun +
                                   " is a number from 0 to " + std::to_string(kLargestRun));
    if (*integer(first) > *integer(last))
      return fail(Errc::Usage, "'" + std::string(given) + "' ends before it begins");
    range += (range.empty() ? "" : ",") + std::string(first) + "," + std::string(last);
  }
  return range;
}

}  // namespace

Result<std::string> range_of_steps(std::string_view given) {
  return range_of(given, "step", "0,2-4");
}

Result<std::string> range_of_ranks(std::string_view given) {
  return range_of(given, "rank", "0,8-15");
}

std::string list_of_range(const std::string& range) {
  if (range == "all") return {};
  std::string list;
  const std::vector<std::string_view> parts = split(range, ',');
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    list += (list.empty() ? "" : ",") + std::string(parts[i]);
    if (parts[i] != parts[i + 1]) list += "-" + std::string(parts[i + 1]);
  }
  return list;
}

Result<std::vector<std::string>> split_command(std::string_view command) {
  std::vector<std::string> words;
  std::string word;
  bool in_word = false;
  char quote = '\0';
  for (const char c : command) {
    if (quote != '\0') {
      if (c == quote) {
        quote = '\0';
      } else {
        word += c;
      }
    } else if (c == '"' || c == '\'') {
      quote = c;
      in_word = true;
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f') {
      if (in_word) words.push_back(std::move(word));
      word.clear();
      in_word = false;
    } else if (!is_plain(c)) {
      std::string why = "no shell runs the command, so '" + std::string(1, c) + "' means nothing";
      if (c == '>' || c == '<')
        why = "redirection ('" + std::string(1, c) + "') is not supported, use a script";
      if (c == '~') why = "'~' is not expanded, write the whole path";
      return fail(Errc::Invalid,
                  "The command contains invalid characters. Only the "
                  "'^[a-zA-Z0-9_\\-./=:,\\[\\] ]+$' pattern is allowed: " +
                      why);
    } else {
      word += c;
      in_word = true;
    }
  }
  if (quote != '\0')
    return fail(Errc::Invalid,
                "The command has no closing quotation mark (" + std::string(1, quote) + ")");
  if (in_word) words.push_back(std::move(word));
  return words;
}

void add_program_row(Command& command, std::string_view help, std::string& exec) {
  command.require("--exec EXEC", help, exec, safe_string_problem);
  command.takes_command = true;
  if (!command.caller.is_ours()) return;
  command.short_usage = "[OPTIONS] -- CMD ARGS ...";
  command.bare_command = true;
}

Command dump_options(const Caller& caller, DumpRequest& request) {
  request.name = caller.name;
  request.types = {"tensor"};
  if (caller.name != DumpName::Ait) request.types.emplace_back("model");
  if (caller.name == DumpName::Ait) request.save_time = 1;
  request.output = caller.is_ours() ? "" : "./";
  request.host = caller.is_ours() ? "auto" : "atb";

  Command command(caller, "Runs a program and captures what its operators compute.");
  add_program_row(command,
                  "The program to run and its arguments in one string; quotes keep words together, "
                  "no shell is involved.",
                  request.exec);
  add_common_rows(command, caller, request);
  add_queue_rows(command, request);
  command.example = caller.program + " --type tensor model -er 0,1 -o out --exec \"python run.py\"";
  if (!caller.is_ours()) return command;
  add_our_rows(command, request);
  command.example = caller.program + " -o out --steps 0,1 -- python run.py";
  command.epilogue =
      "The exit status is the program's (128 + n when signal n ended it); 1 when it could not be "
      "run, 2 for wrong options; 125 with --require.";
  return command;
}

Status complete_request(const ParsedArguments& parsed, DumpRequest* request) {
  if (request->statistics) request->types.emplace_back("stats");
  request->types = complete_types(std::move(request->types));
  if (parsed.given("--steps") && parsed.given("--execute-range"))
    return fail(Errc::Usage, "argument --steps: not allowed with argument --execute-range/-er");
  request->range_given = parsed.given("--execute-range") || parsed.given("--steps");
  if (request->strict && (request->operators || request->weights || request->digest)) {
    return fail(Errc::Usage, std::string("argument --layout strict: not allowed with argument ") +
                                 (request->weights  ? "--weights"
                                  : request->digest ? "--digest"
                                                    : "--level operator"));
  }
  if (parsed.has_command && parsed.given("--exec"))
    return fail(Errc::Usage, "argument --exec: not allowed with a command behind '--'");
  if (parsed.has_command && (parsed.command.empty() || parsed.command[0].empty()))
    return fail(Errc::Usage, "expected a command behind '--'");
  return {};
}

Status read_program(const ParsedArguments& parsed, DumpRequest* request) {
  request->command = parsed.command;
  if (parsed.has_command) return {};
  ASSAY_TRY(request->command, split_command(request->exec));
  request->assignments = take_assignments(&request->command);
  return {};
}

}  // namespace assay::cli
