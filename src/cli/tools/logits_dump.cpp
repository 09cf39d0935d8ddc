// SPDX-License-Identifier: Apache-2.0
// logitsdump: runs modeltest on the bad cases of an evaluation, so that it saves their logits.
// docs/commands/logitsdump.md
// Source: Ascend/msit: msit/components/llm/msit_llm/logits_dump/logits_dump.py
#include <array>
#include <memory>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/dump/child_process.hpp"
#include "cli/tools/tool_support.hpp"

namespace assay::cli {
namespace {

// HumanEval-X: one list of cases for each language, in this order.
constexpr std::array<std::string_view, 5> kLanguages = {"CPP", "Go", "Java", "JavaScript",
                                                        "Python"};

std::string token_range_problem(std::string_view value) {
  const std::optional<int64_t> number = parse_number<int64_t>(value);
  if (number && *number > 0) return {};
  return "invalid check_token_range value: '" + std::string(value) + "'";
}

struct LogitsDumpRequest {
  std::string exec;
  std::string bad_cases;
  std::string token_range = "1";
  std::string log_level = "info";
};

std::string list_text(const std::vector<int64_t>& numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) {
    text += (text.size() > 1 ? ", " : "") + std::to_string(number);
  }
  return text + "]";
}

/// The number behind the slash of "HumanEval/12".
Result<int64_t> number_of(std::string_view key) {
  const std::vector<std::string_view> parts = split(key, '/');
  const std::optional<int64_t> number =
      parts.size() > 1 ? parse_number<int64_t>(parts[1]) : std::nullopt;
  if (number) return *number;
  return fail(Errc::Invalid, "The format of key column is wrong, please check bad_case_result_csv");
}

Result<std::string> list_of_languages(const std::vector<std::string>& keys) {
  std::array<std::vector<int64_t>, kLanguages.size()> cases;
  for (const std::string& key : keys) {
    const std::string_view prefix = split(key, '/')[0];
    const auto language = std::find(kLanguages.begin(), kLanguages.end(), prefix);
    if (language == kLanguages.end()) {
      return fail(
          Errc::Invalid,
          "Humaneval-X must has prefix in 'CPP/Go/Java/JavaScript/Python' (got " + key + ")");
    }
    ASSAY_TRY(const int64_t number, number_of(key));
    cases[static_cast<size_t>(language - kLanguages.begin())].push_back(number);
  }
  std::string text = "[";
  for (const std::vector<int64_t>& of_language : cases) {
    text += (text.size() > 1 ? ", " : "") + list_text(of_language);
  }
  return text + "]";
}

Result<std::string> list_of_human_eval(const std::vector<std::string>& keys) {
  std::vector<int64_t> cases;
  for (const std::string& key : keys) {
    if (split(key, '/')[0] != "HumanEval")
      return fail(Errc::Invalid, "Humaneval must has prefix 'HumanEval'");
    ASSAY_TRY(const int64_t number, number_of(key));
    cases.push_back(number);
  }
  return list_text(cases);
}

Result<std::string> list_of_numbers(const std::vector<std::string>& keys) {
  std::vector<int64_t> cases;
  for (const std::string& key : keys) {
    const std::optional<int64_t> number = parse_number<int64_t>(key);
    if (!number) {
      return fail(Errc::Invalid,
                  "The values in the key column must be strings with the prefix for 'humaneval' "
                  "or 'humanevalx', or all be integers.");
    }
    if (*number < 0) {
      return fail(Errc::Invalid,
                  "The values in the key column must be of the int type and greater than or equal "
                  "to 0");
    }
    cases.push_back(*number);
  }
  return list_text(cases);
}

/// BAD_CASE_LIST: the text of a Python list, as modeltest reads it.
Result<std::string> bad_case_list(const std::string& path, const Voice& voice) {
  voice.old_info("Extract the key column to build BAD_CASE_LIST from bad case csv result");
  ASSAY_TRY(const CsvColumns table, read_csv_columns(path));
  for (const std::string& problem : table.problems) voice.warning(problem);
  const std::optional<size_t> column = table.find("key");
  if (!column) return fail(Error{Errc::Invalid, path, std::nullopt, "has no column 'key'"});
  std::vector<std::string> keys;
  for (const std::vector<std::string>& row : table.rows) keys.push_back(row[*column]);
  if (keys.empty()) return fail(Errc::Invalid, "Bad case list is empty, no need to dump logits");
  if (keys[0].find('/') == std::string::npos) return list_of_numbers(keys);
  const std::string_view prefix = split(keys[0], '/')[0];
  if (std::find(kLanguages.begin(), kLanguages.end(), prefix) != kLanguages.end())
    return list_of_languages(keys);
  if (prefix == "HumanEval") return list_of_human_eval(keys);
  return fail(Errc::Invalid,
              "When the 'key' column is of character type, only the HumanEval and HumanEvalX "
              "datasets are supported.");
}

int run_logitsdump(const ToolCall& call, const LogitsDumpRequest& request,
                   const ParsedArguments& parsed) {
  const auto failed = [&](const Error& error) { return tool_failure(call, error); };
  const Result<std::string> cases = bad_case_list(request.bad_cases, call.voice);
  if (!cases) return failed(cases.error());
  call.voice.old_info("Build bad case list success");
  Words command = parsed.command;
  if (!parsed.has_command) {
    Result<Words> words = split_command(request.exec);
    if (!words) return failed(words.error());
    command = *std::move(words);
  }
  if (command.empty())
    return failed({Errc::Usage, {}, std::nullopt, "The input command is empty."});
  if (command[0] != "torchrun" && command[0] != "modeltest") {
    return failed({Errc::Usage,
                   {},
                   std::nullopt,
                   "The input command is invalid. It needs to start with either 'torchrun' or "
                   "'modeltest'."});
  }
  std::string text;
  for (const std::string& word : command) text += " " + word;
  call.voice.old_info("Execute command:" + text);
  const Result<ChildEnd> end =
      run_program(command, {{"BAD_CASE_LOGITS_DUMP", "True"},
                            {"LOGITS_DUMP_TOKEN_MAX_LENGTH", request.token_range},
                            {"BAD_CASE_LIST", *cases}});
  if (!end) return failed(end.error());
  if (end->exit_status != 0) {
    const int status = tool_failure(
        call, {Errc::Io,
               {},
               std::nullopt,
               "Failed to execute modeltest cmd, error code: " + std::to_string(end->exit_status)});
    return call.name == DumpName::Assay ? end->exit_status : status;
  }
  call.voice.info(
      "'Logits Dump' has successfully finished, the logits is stored at "
      "'{output_dir}/data/{DEVICE_TYPE}/precision_test/{dataset}/{data_type}/{model_name}/logits/"
      "'");
  return kSame;
}

}  // namespace

Command logitsdump_command(const Caller& caller) {
  Command command(caller, "Run modeltest on the bad cases of an evaluation and save their logits.");
  const auto request = std::make_shared<LogitsDumpRequest>();
  command.require("--exec, -e EXEC", "The command of modeltest, or torchrun with it; batch size 1.",
                  request->exec, safe_string_problem);
  command.require("--bad-case-result, -bcr BAD_CASE_RESULT_CSV",
                  "Bad cases as bcanalyze writes them: a csv with the column key.",
                  request->bad_cases);
  command.add("--token-range, -tr TOKEN_RANGE",
              "Logits of this many tokens from the first on, default 1.", request->token_range,
              token_range_problem);
  add_log_level(command, request->log_level);
  command.takes_command = true;
  command.example = caller.program +
                    " -e \"modeltest --batch_size 1 --tp 1\" -bcr msit_bad_case_result.csv -tr 10";
  command.run = [caller, request](const ParsedArguments& parsed) {
    return run_logitsdump({caller, request->log_level}, *request, parsed);
  };
  return command;
}

}  // namespace assay::cli
