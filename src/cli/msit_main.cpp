// SPDX-License-Identifier: Apache-2.0
// Command line of Ascend/msit 8.2: msit/components/llm/msit_llm/__main__.py
// docs/commands/msit-llm-compare.md
#include "cli/msit_main.hpp"

#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/text.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/command.hpp"

namespace assay::cli {
namespace {

constexpr int kArgparseError = 2;
constexpr int kException = 1;

// ---- a parser that behaves like Python's argparse ----

enum class Takes : uint8_t { Nothing, One, OneOrMore };

struct Argument {
  std::string_view long_name;
  std::string_view short_name;
  Takes takes;
  std::string_view metavar;
  std::string_view help;
  bool required = false;
  std::vector<std::string_view> choices = {};
};

const std::vector<Argument>& compare_arguments() {
  static const std::vector<Argument> kArguments = {
      {"--help", "-h", Takes::Nothing, "", "show this help message and exit"},
      {"--golden-path", "-gp", Takes::One, "GOLDEN_PATH",
       "Golden data path. It supports directory or file.", true},
      {"--my-path", "-mp", Takes::One, "MY_PATH",
       "Compared data path. It supports directory or file.", true},
      {"--log-level",
       "-l",
       Takes::One,
       "",
       "Log level, default info.",
       false,
       {"debug", "info", "warn", "warning", "error", "fatal", "critical"}},
      {"--output", "-o", Takes::One, "OUTPUT", "Data output directory, default './'."},
      {"--op-mapping-file", "-mf", Takes::One, "OP_MAPPING_FILE",
       "Folder with op_mapping_file.json (not available yet)."},
      {"--cmp-level",
       "-cl",
       Takes::One,
       "",
       "Compare level; default: layer, module and api.",
       false,
       {"layer", "module", "api", "logits"}},
      {"--custom-algorithms", "-alg", Takes::OneOrMore, "CUSTOM_ALGORITHMS",
       "FILE.py:FUNC (not available yet)."},
      {"--weight", "-w", Takes::Nothing, "", "Compare weights (not available yet)."},
      {"--stats", "-st", Takes::Nothing, "", "Compare statistics."},
      {"--rank", "-r", Takes::One, "RANK", "Compare only this rank."},
      {"--compat",
       "",
       Takes::One,
       "",
       "msit: values of msit 8.2, defects included. Default none: corrected.",
       false,
       {"none", "msit"}},
  };
  return kArguments;
}

std::string display_name(const Argument& argument) {
  std::string text(argument.long_name);
  if (!argument.short_name.empty()) text += "/" + std::string(argument.short_name);
  return text;
}

std::string metavar_of(const Argument& argument) {
  if (argument.choices.empty()) return std::string(argument.metavar);
  std::string text = "{";
  for (const std::string_view choice : argument.choices) {
    text += (text.size() > 1 ? "," : "") + std::string(choice);
  }
  return text + "}";
}

std::string usage_text(const std::string& program) {
  std::string text = "usage: " + program;
  for (const Argument& argument : compare_arguments()) {
    std::string word(argument.long_name == "--help" ? argument.short_name : argument.long_name);
    if (argument.takes != Takes::Nothing) word += " " + metavar_of(argument);
    if (argument.takes == Takes::OneOrMore) word += " [" + std::string(argument.metavar) + " ...]";
    text += argument.required ? " " + word : " [" + word + "]";
  }
  return text + "\n";
}

std::string help_text(const std::string& program) {
  std::string text =
      usage_text(program) + "\nCompare golden data with the data under test.\n\noptions:\n";
  for (const Argument& argument : compare_arguments()) {
    std::string names(argument.long_name);
    if (!argument.short_name.empty()) names += ", " + std::string(argument.short_name);
    const std::string value = argument.takes == Takes::Nothing ? "" : " " + metavar_of(argument);
    text += "  " + names + value + "\n                        " + std::string(argument.help) + "\n";
  }
  text += "\nexample:\n  " + program +
          " -gp msit_dump_G/torch_tensors/cpu_1 -mp msit_dump_M/torch_tensors/cpu_2 -o report -cl "
          "layer\n";
  return text;
}

struct ParsedArguments {
  // Values by long name; a switch that was given has an empty list.
  std::vector<std::pair<std::string_view, std::vector<std::string>>> values;

  [[nodiscard]] const std::vector<std::string>* find(std::string_view name) const {
    for (auto value = values.rbegin(); value != values.rend(); ++value) {
      if (value->first == name) return &value->second;
    }
    return nullptr;
  }
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise = {}) const {
    const std::vector<std::string>* found = find(name);
    return found != nullptr && !found->empty() ? found->front() : std::string(otherwise);
  }
  [[nodiscard]] bool given(std::string_view name) const { return find(name) != nullptr; }
};

// Underscores are the spelling of the first day's long names.
std::string with_dashes(std::string name) {
  if (name.starts_with("--")) std::replace(name.begin() + 2, name.end(), '_', '-');
  return name;
}

// The argument that `name` means: exact, or a long name that it is a unique beginning of.
Result<const Argument*> find_argument(const std::string& spelled) {
  const std::string name = with_dashes(spelled);
  std::vector<const Argument*> candidates;
  for (const Argument& argument : compare_arguments()) {
    if (argument.long_name == name || argument.short_name == name) return &argument;
    if (name.size() > 2 && name.starts_with("--") && argument.long_name.starts_with(name)) {
      candidates.push_back(&argument);
    }
  }
  if (candidates.size() == 1) return candidates[0];
  if (candidates.empty()) return nullptr;
  std::string names;
  for (const Argument* candidate : candidates) {
    names += (names.empty() ? "" : ", ") + std::string(candidate->long_name);
  }
  return fail(Errc::Usage, "ambiguous option: " + spelled + " could match " + names);
}

Status check_choice(const Argument& argument, const std::string& value) {
  if (argument.choices.empty() || std::find(argument.choices.begin(), argument.choices.end(),
                                            value) != argument.choices.end()) {
    return {};
  }
  std::string names;
  for (const std::string_view choice : argument.choices) {
    names += (names.empty() ? "'" : ", '") + std::string(choice) + "'";
  }
  return fail(Errc::Usage, "argument " + display_name(argument) + ": invalid choice: '" + value +
                               "' (choose from " + names + ")");
}

bool looks_like_option(const std::string& word) { return word.size() > 1 && word.starts_with('-'); }

// Takes the values of one option from `words`, starting at *next.
Result<std::vector<std::string>> take_values(const Argument& argument,
                                             const std::optional<std::string>& attached,
                                             const std::vector<std::string>& words, size_t* next) {
  std::vector<std::string> values;
  if (attached) values.push_back(*attached);
  const bool many = argument.takes == Takes::OneOrMore;
  while (!attached && *next < words.size() && !looks_like_option(words[*next]) &&
         (many || values.empty())) {
    values.push_back(words[(*next)++]);
  }
  if (values.empty()) {
    return fail(Errc::Usage, "argument " + display_name(argument) + ": expected " +
                                 (many ? "at least one argument" : "one argument"));
  }
  for (const std::string& value : values) ASSAY_TRY_STATUS(check_choice(argument, value));
  return values;
}

Result<ParsedArguments> parse_arguments(const std::vector<std::string>& words) {
  ParsedArguments parsed;
  std::string unknown;
  for (size_t next = 0; next < words.size();) {
    const std::string& word = words[next++];
    std::optional<std::string> attached;
    std::string name = word;
    if (const size_t equals = word.find('=');
        looks_like_option(word) && equals != std::string::npos) {
      name = word.substr(0, equals);
      attached = word.substr(equals + 1);
    }
    const Argument* argument = nullptr;
    if (looks_like_option(word)) {
      ASSAY_TRY(argument, find_argument(name));
    }
    if (argument == nullptr) {
      unknown += " " + word;
      continue;
    }
    std::vector<std::string> values;
    if (argument->takes != Takes::Nothing) {
      ASSAY_TRY(values, take_values(*argument, attached, words, &next));
    } else if (attached) {
      return fail(Errc::Usage, "argument " + display_name(*argument) +
                                   ": ignored explicit argument '" + *attached + "'");
    }
    parsed.values.emplace_back(argument->long_name, std::move(values));
  }
  if (parsed.given("--help")) return parsed;
  std::string missing;
  for (const Argument& argument : compare_arguments()) {
    if (argument.required && !parsed.given(argument.long_name)) {
      missing += (missing.empty() ? "" : ", ") + display_name(argument);
    }
  }
  if (!missing.empty()) {
    return fail(Errc::Usage, "the following arguments are required: " + missing);
  }
  if (!unknown.empty()) return fail(Errc::Usage, "unrecognized arguments:" + unknown);
  return parsed;
}

int argparse_error(const std::string& program, const std::string& message) {
  std::fprintf(stderr, "%s%s: error: %s\n", usage_text(program).c_str(), program.c_str(),
               message.c_str());
  return kArgparseError;
}

// ---- the original's log ----

enum class MsitLevel : uint8_t { Debug, Info, Warning, Error, Critical };

MsitLevel level_of(const std::string& name) {
  if (name == "debug") return MsitLevel::Debug;
  if (name == "warn" || name == "warning") return MsitLevel::Warning;
  if (name == "error") return MsitLevel::Error;
  if (name == "fatal" || name == "critical") return MsitLevel::Critical;
  return MsitLevel::Info;
}

class MsitLog {
 public:
  explicit MsitLog(MsitLevel threshold) : threshold_(threshold) {}

  /// "2026-01-01 08:00:00,123 - 4242 - msit_llm_logger - INFO - message", local time, to stderr.
  void write(MsitLevel level, const std::string& message) const {
    if (level < threshold_) return;
    static constexpr const char* kNames[] = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"};
    timeval now{};
    ::gettimeofday(&now, nullptr);
    std::tm parts{};
    ::localtime_r(&now.tv_sec, &parts);
    char time[32];
    std::strftime(time, sizeof(time), "%Y-%m-%d %H:%M:%S", &parts);
    std::string text = message;
    for (char& c : text) {
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '_';
    }
    std::fprintf(stderr, "%s,%03d - %d - msit_llm_logger - %s - %s\n", time,
                 static_cast<int>(now.tv_usec / 1000), static_cast<int>(::getpid()),
                 kNames[static_cast<size_t>(level)], text.c_str());
  }
  void info(const std::string& message) const { write(MsitLevel::Info, message); }
  void warning(const std::string& message) const { write(MsitLevel::Warning, message); }
  void error(const std::string& message) const { write(MsitLevel::Error, message); }

 private:
  MsitLevel threshold_;
};

// ---- the command ----

CompareRequest request_of(const ParsedArguments& parsed) {
  CompareRequest request;
  request.golden_path = parsed.text("--golden-path");
  request.my_path = parsed.text("--my-path");
  request.level = parsed.text("--cmp-level");
  request.output = parsed.text("--output", "./");
  request.stats = parsed.given("--stats");
  request.rank = parsed.text("--rank");
  request.compat = parsed.text("--compat", "none");
  request.weight = parsed.given("--weight");
  request.op_mapping_file = parsed.text("--op-mapping-file");
  if (const auto* algorithms = parsed.find("--custom-algorithms"))
    request.custom_algorithms = *algorithms;
  request.exit_zero = true;
  return request;
}

// The metrics of two files as Python prints a dictionary.
std::string metrics_text(const compare::Row& row) {
  std::string text = "{";
  if (row.metrics && row.comparable) {
    const compare::PairMetrics& m = *row.metrics;
    const std::pair<const char*, double> metrics[] = {
        {"cosine_similarity", m.cosine_similarity},
        {"max_relative_error", m.max_relative_error},
        {"mean_relative_error", m.mean_relative_error},
        {"max_absolute_error", m.max_absolute_error},
        {"mean_absolute_error", m.mean_absolute_error},
        {"kl_divergence", m.kl_divergence},
        {"relative_euclidean_distance", m.relative_euclidean_distance}};
    for (const auto& [name, value] : metrics) {
      if (!std::isnan(value)) text += "'" + std::string(name) + "': " + python_repr(value) + ", ";
    }
  }
  return text + "'cmp_fail_reason': '" + row.fail_reason + "'}";
}

void log_outcome(const CompareOutcome& outcome, const MsitLog& log) {
  const compare::Comparison& comparison = outcome.comparison;
  for (const std::string& note : outcome.notes) log.warning(note);
  for (const std::string& warning : comparison.warnings) log.warning(warning);
  if (outcome.two_files) {
    for (const compare::Row& row : comparison.sheets.back().rows) {
      log.info("Compared results: " + metrics_text(row));
    }
    return;
  }
  const auto type_text = [](const std::string& type) { return type.empty() ? "None" : type; };
  const compare::Matching& matching = comparison.sheets.back().matching;
  log.info("golden_layer_type: " + type_text(matching.golden_layer_type));
  if (comparison.sheets.back().name == "api")
    log.info("my_layer_type: " + type_text(matching.mine_layer_type));
  if (const size_t filtered = comparison.counts().filtered; filtered > 0) {
    log.info(std::to_string(filtered) + " rows left out of the csv report");
  }
  for (const std::string& file : outcome.files) log.info("Saved comparing results: " + file);
}

bool exists(const std::string& path) {
  struct stat info{};
  return ::stat(path.c_str(), &info) == 0;
}

int log_failure(const Error& error, const CompareRequest& request, const MsitLog& log) {
  if (error.message.find("must both be directory or file") != std::string::npos) {
    struct stat info{};
    const bool golden_is_file =
        ::stat(request.golden_path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
    log.error("cannot parse data path(" + (golden_is_file ? request.golden_path : request.my_path) +
              "). it is not a atb dump path or a torch dump path.");
    return kSame;
  }
  if (error.code == Errc::Unsupported &&
      error.message.find("not available yet") == std::string::npos && exists(error.path)) {
    log.error("cannot parse data path(" + error.path +
              "). it is not a atb dump path or a torch dump path.");
    return kSame;
  }
  log.error(error.describe());
  if (error.message.find("cannot be matched") != std::string::npos) return kSame;
  return error.message.find("not available yet") != std::string::npos ? kUsageOrInput : kException;
}

int run_compare(const std::string& program, const std::vector<std::string>& words) {
  const Result<ParsedArguments> parsed = parse_arguments(words);
  if (!parsed) return argparse_error(program, parsed.error().message);
  if (parsed->given("--help")) {
    std::fputs(help_text(program).c_str(), stdout);
    return kSame;
  }
  const MsitLog log(level_of(parsed->text("--log-level", "info")));
  const CompareRequest request = request_of(*parsed);
  const Result<CompareOutcome> outcome = run_comparison(request);
  if (!outcome) return log_failure(outcome.error(), request, log);
  log_outcome(*outcome, log);
  return kSame;
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

bool is_old_name(std::string_view program) {
  return base_name(program) == "msit" || base_name(program) == "ait";
}

int msit_main(int argc, char** argv) {
  const std::string name(base_name(argv[0]));
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto is_help = [](const std::string& word) { return word == "-h" || word == "--help"; };
  const std::string usage = "usage: " + name + " llm compare [options]\n";
  if (words.empty() || (words.size() >= 1 && is_help(words[0])) ||
      (words[0] == "llm" && (words.size() == 1 || is_help(words[1])))) {
    std::printf(
        "%s\ncommands:\n  llm compare (cc)    compare two dumps: %s llm compare -gp GOLDEN -mp "
        "MINE -o OUT\n",
        usage.c_str(), name.c_str());
    return kSame;
  }
  if (words[0] != "llm") {
    std::fprintf(stderr,
                 "%s%s: error: argument command: invalid choice: '%s' (choose from 'llm')\n",
                 usage.c_str(), name.c_str(), words[0].c_str());
    return kArgparseError;
  }
  if (words[1] == "compare" || words[1] == "cc") {
    return run_compare(name + " llm compare", {words.begin() + 2, words.end()});
  }
  for (const std::string_view later : {"dump", "dd", "opcheck", "errcheck", "transform", "analyze",
                                       "logitsdump", "logitscmp", "bcanalyze"}) {
    if (words[1] == later) {
      std::fprintf(stderr, "%s llm %s: error: not available yet\n", name.c_str(), words[1].c_str());
      return kArgparseError;
    }
  }
  std::fprintf(
      stderr,
      "%s%s llm: error: argument command: invalid choice: '%s' (choose from 'compare', 'cc')\n",
      usage.c_str(), name.c_str(), words[1].c_str());
  return kArgparseError;
}

}  // namespace assay::cli
