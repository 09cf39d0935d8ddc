// SPDX-License-Identifier: Apache-2.0
// casefilter: the cases of an evaluation whose text misses a limit.   docs/commands/bad-cases.md
// Source: Ascend/msit: msit/components/llm/msit_llm/metrics/case_filter.py, a Python class there
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>

#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/tools/tool_support.hpp"
#include "formats/csv.hpp"
#include "measure/text_metrics.hpp"

namespace assay::cli {
namespace {

constexpr const char* kTexts[] = {"model input", "model output", "gold standard"};

std::string metric_problem(std::string_view text) {
  const Result<measure::CaseMetric> metric = measure::parse_case_metric(text);
  return metric ? std::string() : metric.error().message;
}

struct FilterRequest {
  std::string input;
  Words metrics;
  std::string output = "./";
  std::string log_level = "info";
};

/// Scores of the cases that missed a limit, in the order in which the metrics found them.
struct Findings {
  std::vector<size_t> cases;
  std::map<size_t, std::vector<std::optional<double>>> scores;  // one a metric

  void add(size_t row, size_t metric, size_t metric_count, double score) {
    const auto [found, is_new] = scores.try_emplace(row, metric_count);
    if (is_new) cases.push_back(row);
    found->second[metric] = score;
  }
};

/// Python's round(value, 5).
double round_to_five_decimals(double value) {
  char text[400];
  std::snprintf(text, sizeof(text), "%.5f", value);
  return std::strtod(text, nullptr);
}

std::string csv_of(const CsvColumns& table, const std::vector<measure::CaseMetric>& metrics,
                   const Findings& findings) {
  const formats::CsvOptions options{.line_end = "\n", .defuse_formulas = true};
  std::vector<std::string> cells(std::begin(kTexts), std::end(kTexts));
  for (const measure::CaseMetric& metric : metrics) cells.emplace_back(metric.name);
  std::string text;
  formats::append_csv_row(cells, options, &text);
  // pandas prints whole numbers only where the column has no hole.
  std::vector<bool> whole;
  for (size_t m = 0; m < metrics.size(); ++m) {
    bool full = metrics[m].is_integer();
    for (const auto& [row, scores] : findings.scores) full = full && scores[m];
    whole.push_back(full);
  }
  for (const size_t row : findings.cases) {
    cells.clear();
    for (const char* name : kTexts) cells.push_back(table.rows[row][*table.find(name)]);
    const std::vector<std::optional<double>>& scores = findings.scores.at(row);
    for (size_t m = 0; m < metrics.size(); ++m) {
      cells.push_back(!scores[m] ? "PASSED"
                      : whole[m] ? std::to_string(static_cast<int64_t>(*scores[m]))
                                 : python_repr(round_to_five_decimals(*scores[m])));
    }
    formats::append_csv_row(cells, options, &text);
  }
  return text;
}

int run_casefilter(const ToolCall& call, const FilterRequest& request) {
  const std::string& path = request.input;
  const Result<CsvColumns> table = read_csv_columns(path);
  if (!table) return tool_failure(call, table.error());
  for (const std::string& problem : table->problems) call.voice.warning(problem);
  for (const char* name : kTexts) {
    if (!table->find(name)) {
      return tool_failure(
          call, {Errc::Invalid, path, std::nullopt, "has no column '" + std::string(name) + "'"});
    }
  }
  std::vector<measure::CaseMetric> metrics;
  for (const std::string& text : request.metrics)
    metrics.push_back(measure::parse_case_metric(text).value());  // the parser refused what is none
  const size_t output = *table->find("model output");
  const size_t expected = *table->find("gold standard");
  Findings findings;
  for (size_t m = 0; m < metrics.size(); ++m) {
    call.voice.old_info("Current metrics: " + std::string(metrics[m].name));
    for (size_t row = 0; row < table->rows.size(); ++row) {
      const Result<double> score =
          measure::case_score(metrics[m], table->rows[row][output], table->rows[row][expected]);
      if (!score) {
        call.voice.warning("case " + std::to_string(row) + " has no " +
                           std::string(metrics[m].name) + ": " + score.error().message);
      } else if (!metrics[m].passes(*score)) {
        findings.add(row, m, metrics.size(), *score);
      }
    }
  }
  if (findings.cases.empty()) {
    call.voice.warning(
        "Bad cases are unexpectedly empty: No data to save and hence no file will be created. If "
        "this is normal, please ignore.");
    return kSame;
  }
  const Result<std::string> report =
      write_stamped_csv(request.output, "msit_filter_result", time_stamp(0, std::time(nullptr)),
                        csv_of(*table, metrics, findings));
  if (!report) return tool_failure(call, report.error());
  call.voice.info("Filtering finished: " + std::to_string(findings.cases.size()) + " cases in " +
                  quoted(*report));
  return call.name == DumpName::Assay ? kDiffers : kSame;
}

}  // namespace

Command casefilter_command(const Caller& caller) {
  Command command(caller, "Name the cases whose text misses a limit.");
  const auto request = std::make_shared<FilterRequest>();
  command.require("--input, -i INPUT",
                  "A csv file with the columns model input, model output, gold standard.",
                  request->input);
  command.require("--metrics, -m METRIC ...",
                  "accuracy, edit_distance, bleu[_1 ... _4], rouge[_1 _2 _l], relative_abnormal, "
                  "relative_distinct[_1 ... _4]; with a limit: rouge_1=0.5.",
                  request->metrics, metric_problem);
  command.add("--output, -o OUTPUT", "Folder of the report, default './'.", request->output);
  add_log_level(command, request->log_level);
  command.example = caller.program + " -i cases.csv -m accuracy rouge_1=0.5 -o result";
  command.run = [caller, request](const ParsedArguments&) {
    return run_casefilter({caller, request->log_level}, *request);
  };
  return command;
}

}  // namespace assay::cli
