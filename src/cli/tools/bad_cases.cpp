// SPDX-License-Identifier: Apache-2.0
// bcanalyze and analyze: the cases of an evaluation that passed on one side only.
// docs/commands/bad-cases.md
// Source: Ascend/msit: msit/components/llm/msit_llm/{badcase_analyze/bad_case_analyze.py,
// bc_analyze/analyzer.py}
#include <algorithm>
#include <map>
#include <memory>

#include "base/ascii.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/tools/tool_support.hpp"
#include "formats/csv.hpp"

namespace assay::cli {
namespace {

constexpr const char* kFolder = "msit_bad_case/analyzer";

/// What differs between the two tools.
struct Analysis {
  std::vector<std::string> required;
  std::vector<std::string> keys;  // columns that say which case it is; those both sides have
  std::string stem;               // of the report's name
};

const Analysis kBadCaseAnalysis = {{"key", "passed"}, {"key", "queries"}, "msit_bad_case_result"};
const Analysis kAnalysis = {
    {"queries", "input_token_ids", "output_token_ids", "passed"}, {"queries"}, ""};

struct AnalysisRequest {
  std::string golden;
  std::string mine;
  std::string log_level = "info";
};

// ---- cases ----

/// "True" and "Correct" are one verdict, "False" and "Wrong" the other.
std::string verdict_of(const std::string& cell) {
  const std::string text = lower_case(cell);
  if (text == "correct") return "true";
  return text == "wrong" ? "false" : text;
}

/// Numbers are equal however they are written: "7", "7.0", "007".
std::string key_of(const std::string& cell) {
  const std::optional<double> number = parse_number<double>(cell);
  return number ? python_repr(*number) : cell;
}

/// What pandas reads as a missing value.
bool is_missing(const std::string& cell) {
  for (const std::string_view text : {"", "NA", "N/A", "NaN", "nan", "None", "null", "NULL"}) {
    if (cell == text) return true;
  }
  return false;
}

struct Side {
  CsvColumns table;
  [[nodiscard]] const std::string& cell(size_t row, const std::string& column) const {
    return table.rows[row][*table.find(column)];
  }
};

Result<Side> read_side(const std::string& path, const Analysis& analysis, const Voice& voice) {
  voice.old_info("Checking if path " + quoted(path) + " is valid...");
  ASSAY_TRY(CsvColumns table, read_csv_columns(path));
  voice.old_info("Checking if the header of csv is valid...");
  for (const std::string& problem : table.problems) voice.warning(problem);
  if (!table.find("passed")) {
    if (const std::optional<size_t> column = table.find("pass")) table.names[*column] = "passed";
  }
  std::string expected;
  bool complete = true;
  for (const std::string& name : analysis.required) {
    complete = complete && table.find(name);
    expected += (expected.empty()                     ? "'"
                 : &name == &analysis.required.back() ? " and '"
                                                      : ", '") +
                name + "'";
  }
  if (!complete) {
    return fail(Error{Errc::Invalid, path, std::nullopt,
                      "Unmatched csv columns, expected to have " + expected});
  }
  const size_t before = table.rows.size();
  std::erase_if(table.rows, [&](const std::vector<std::string>& row) {
    return std::any_of(analysis.required.begin(), analysis.required.end(),
                       [&](const std::string& name) { return is_missing(row[*table.find(name)]); });
  });
  if (table.rows.size() != before) {
    voice.warning(path + ": " + std::to_string(before - table.rows.size()) +
                  " rows have an empty cell and were left out");
  }
  return Side{std::move(table)};
}

/// A left join: every golden case with every case of equal keys on the other side.
class Join {
 public:
  Join(const Side& golden, const Side& mine, const Analysis& analysis)
      : golden_(golden), mine_(mine) {
    for (const std::string& key : analysis.keys) {
      if (golden.table.find(key) && mine.table.find(key)) keys_.push_back(key);
    }
    for (const char* column : {"input_token_ids", "output_token_ids"}) {
      if (golden.table.find(column) && mine.table.find(column)) shown_.emplace_back(column);
    }
    shown_.emplace_back("passed");
    std::map<std::vector<std::string>, std::vector<size_t>> places;
    for (size_t i = 0; i < mine.table.rows.size(); ++i) places[case_of(mine, i)].push_back(i);
    for (size_t i = 0; i < golden.table.rows.size(); ++i) {
      const auto found = places.find(case_of(golden, i));
      if (found == places.end()) {
        unmatched_.push_back(golden.cell(i, keys_[0]));
        continue;
      }
      for (const size_t other : found->second) {
        if (verdict_of(golden.cell(i, "passed")) != verdict_of(mine.cell(other, "passed")))
          differing_.emplace_back(i, other);
      }
    }
  }

  [[nodiscard]] bool empty() const { return differing_.empty(); }
  [[nodiscard]] size_t differing_count() const { return differing_.size(); }
  [[nodiscard]] const std::vector<std::string>& unmatched() const { return unmatched_; }

  [[nodiscard]] std::string csv(bool normalise_verdicts) const {
    const formats::CsvOptions options{.line_end = "\n", .defuse_formulas = true};
    std::vector<std::string> cells = keys_;
    for (const std::string& column : shown_) {
      cells.push_back(column + "_golden");
      cells.push_back(column + "_test");
    }
    std::string text;
    formats::append_csv_row(cells, options, &text);
    for (const auto& [i, other] : differing_) {
      cells.clear();
      for (const std::string& key : keys_) cells.push_back(golden_.cell(i, key));
      for (const std::string& column : shown_) {
        const bool verdict = normalise_verdicts && column == "passed";
        const auto add = [&](const std::string& cell) {
          cells.push_back(verdict ? verdict_of(cell) : cell);
        };
        add(golden_.cell(i, column));
        add(mine_.cell(other, column));
      }
      formats::append_csv_row(cells, options, &text);
    }
    return text;
  }

 private:
  [[nodiscard]] std::vector<std::string> case_of(const Side& side, size_t row) const {
    std::vector<std::string> names;
    for (const std::string& key : keys_) names.push_back(key_of(side.cell(row, key)));
    return names;
  }

  const Side& golden_;
  const Side& mine_;
  std::vector<std::string> keys_;
  std::vector<std::string> shown_;
  std::vector<std::pair<size_t, size_t>> differing_;  // rows of golden and mine, in golden's order
  std::vector<std::string> unmatched_;
};

void warn_of_unmatched(const std::vector<std::string>& cases, const Voice& voice) {
  constexpr size_t kShown = 5;
  if (cases.empty()) return;
  std::string text = "There are '" + std::to_string(cases.size()) +
                     "' quer(ies) not matched, below is a partial display of these unmatched "
                     "queries: ";
  for (size_t i = 0; i < std::min(cases.size(), kShown); ++i)
    text += (i > 0 ? ", '" : "'") + cases[i] + "'";
  voice.warning(text);
}

int run_analysis(const ToolCall& call, const Analysis& analysis, const AnalysisRequest& request) {
  const Result<Side> golden = read_side(request.golden, analysis, call.voice);
  if (!golden) return tool_failure(call, golden.error());
  const Result<Side> mine = read_side(request.mine, analysis, call.voice);
  if (!mine) return tool_failure(call, mine.error());
  call.voice.old_info("Analyzing...");
  const Join join(*golden, *mine, analysis);
  int status = kSame;
  if (join.empty()) {
    call.voice.warning(
        "'Analyzer' detected that there is no difference between the given golden result and test "
        "result. Hence no result is saved");
  } else {
    const bool bad_cases = &analysis == &kBadCaseAnalysis;
    const Result<std::string> report = write_stamped_csv(
        kFolder, analysis.stem, report_stamp(call, std::time(nullptr)), join.csv(bad_cases));
    if (!report) return tool_failure(call, report.error());
    call.voice.info("'Analyzer' has successfully finished the analysis, the result is stored at " +
                    quoted(*report));
    if (call.name == DumpName::Assay) status = kDiffers;
  }
  warn_of_unmatched(join.unmatched(), call.voice);
  return status;
}

Command analysis_command(const Caller& caller, const Analysis& analysis,
                         std::string_view golden_row, std::string_view mine_row) {
  Command command(caller, "Name the cases whose verdict differs between two evaluations.");
  const auto request = std::make_shared<AnalysisRequest>();
  command.require(golden_row, "Golden result, a csv file.", request->golden);
  command.require(mine_row, "Result under test, a csv file.", request->mine);
  add_log_level(command, request->log_level);
  command.run = [caller, request, &analysis](const ParsedArguments&) {
    return run_analysis({caller, request->log_level}, analysis, *request);
  };
  return command;
}

}  // namespace

Command bcanalyze_command(const Caller& caller) {
  Command command = analysis_command(caller, kBadCaseAnalysis, "--golden-path, -gp GOLDEN_PATH",
                                     "--my-path, -mp MY_PATH");
  command.example = caller.program + " -gp gpu.csv -mp npu.csv";
  return command;
}

Command analyze_command(const Caller& caller) {
  Command command = analysis_command(caller, kAnalysis, "--golden, -g GOLDEN", "--test, -t TEST");
  command.example = caller.program + " -g gpu.csv -t npu.csv";
  return command;
}

}  // namespace assay::cli
