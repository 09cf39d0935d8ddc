// SPDX-License-Identifier: Apache-2.0
#include "report/opcheck_table.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/text.hpp"
#include "report/cells.hpp"
#include "report/operator_rows.hpp"

namespace assay::report {
namespace {

using measure::Judgement;
using measure::Measures;
using measure::Standard;
using opcheck::CaseResult;
using opcheck::Outcome;
using opcheck::OutputRow;

// Ascend/msit 8.2: msit_llm/opcheck/case_manager.py; of ait 0.2: llm/opcheck/opchecker.py
const std::vector<std::string> kFirstColumns = {
    "op_id", "op_name", "op_param", "tensor_path", "out_tensor_id", "precision_standard"};

const std::vector<std::string> kOurColumns = {"rank",
                                              "step",
                                              "node",
                                              "output",
                                              "result",
                                              "reason",
                                              "note",
                                              "variant",
                                              "standard",
                                              "atb_result",
                                              "atb_rate(%)",
                                              "error_balance(%)",
                                              "legacy_o4_result",
                                              "legacy_o1_result",
                                              "mixed_result",
                                              "precision_type",
                                              "terms",
                                              "dtype",
                                              "shape",
                                              "count",
                                              "max_abs",
                                              "mean_abs",
                                              "max_rel",
                                              "mean_rel",
                                              "rmse",
                                              "cosine",
                                              "relative_l2",
                                              "nmse",
                                              "mare",
                                              "mere",
                                              "golden_nan",
                                              "golden_inf",
                                              "mine_nan",
                                              "mine_inf",
                                              "pattern_mismatches",
                                              "ulp_0",
                                              "ulp_1",
                                              "ulp_2",
                                              "ulp_4",
                                              "ulp_8",
                                              "ulp_more",
                                              "worst_index",
                                              "worst_golden",
                                              "worst_mine",
                                              "worst_neighbours",
                                              "unknown_parameters"};

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "nan";
  char text[400];  // the largest double has 309 digits before the point
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}
constexpr int kRateDigits = 16;
constexpr int kCosineDigits = 10;

Cell text_cell(std::string text) { return Cell::of(std::move(text)); }
Cell missing() { return text_cell("NaN"); }  // as the original writes a value it does not have

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    text += (text.empty() ? "" : separator) + part;
  }
  return text;
}

const Judgement& judgement_of(const OutputRow& row, Standard standard) {
  return row.judgements[static_cast<size_t>(standard)];
}

std::string_view precision_name(opcheck::Precision precision) {
  constexpr std::array<std::string_view, 9> kNames = {
      "MOVE",          "CAST",      "INTEGER", "QUANT", "FLOAT", "FLOAT_HIGH_PRECISION",
      "VECTOR_FUSION", "CV_FUSION", "RAND"};
  return kNames[static_cast<size_t>(precision)];
}

// ---- the original's columns ----

/// What stands in every row of a case: the verdict sticks, the reasons are joined.
struct OldVerdict {
  std::string result;
  std::string reason;
};

OldVerdict old_verdict(const CaseResult& result, const OpcheckTableOptions& options) {
  OldVerdict verdict;
  if (!result.description.in_table) {
    verdict.result = "addition failed";
    verdict.reason = result.rows.empty() ? "" : result.rows.front().reason;
    return verdict;
  }
  const Standard standard = options.o1_names ? Standard::LegacyO1 : Standard::LegacyO4;
  bool passed = !result.rows.empty();
  std::vector<std::string> reasons;
  for (const OutputRow& row : result.rows) {
    const Judgement& judgement = judgement_of(row, standard);
    passed = passed && row.compared && judgement.passed;
    reasons.push_back(row.compared ? judgement.reason : row.reason);
    for (size_t i = 0; i < row.custom.size() && i < options.custom.size(); ++i) {
      if (!row.custom[i].message.empty())
        reasons.push_back(options.custom[i] + ": " + row.custom[i].message);
    }
  }
  verdict.result = options.o1_names ? (passed ? "execution successful" : "execution failed")
                                    : (passed ? "PASS" : "FAILED");
  verdict.reason = joined(reasons, ", ");
  return verdict;
}

Cell custom_cell(const opcheck::CustomMetric::Value& value) {
  if (const auto* number = std::get_if<double>(&value.value))
    return std::isnan(*number) ? missing() : Cell::of(*number);
  if (const auto* integer = std::get_if<int64_t>(&value.value)) return Cell::of(*integer);
  if (const auto* text = std::get_if<std::string>(&value.value)) return Cell::of(*text);
  return missing();
}

void append_old_metrics(const OutputRow& row, const OpcheckTableOptions& options, Cells* cells) {
  const Measures& m = row.measures;
  const bool o1 = options.o1_names;
  const auto add = [&](const std::string& text) {
    cells->push_back(row.compared ? text_cell(text) : missing());
  };
  const Judgement& judgement = judgement_of(row, o1 ? Standard::LegacyO1 : Standard::LegacyO4);
  add(std::isnan(judgement.rate) ? "NaN" : fixed(judgement.rate, kRateDigits));
  add(fixed(o1 ? m.legacy_o1_max_rel : m.legacy_o4_max_rel, kRateDigits));
  if (options.absolute) {
    const int64_t within = o1 ? m.legacy_o1_abs_within : m.legacy_abs_within;
    const float share = static_cast<float>(within) / static_cast<float>(m.count);
    add(fixed(m.count == 0 ? 0 : static_cast<double>(share) * 100, kRateDigits));
    add(fixed(o1 ? m.legacy_o1_max_abs : m.legacy_max_abs, kRateDigits));
  }
  if (options.cosine) add(fixed(m.cosine, kCosineDigits));
  if (options.kl) add(fixed(m.kl_divergence, kRateDigits));
  for (size_t i = 0; i < options.custom.size(); ++i)
    cells->push_back(i < row.custom.size() ? custom_cell(row.custom[i]) : missing());
}

/// Results that lie in inputs are numbered by their place, as the original does: it knows no gaps.
Cell output_id(const CaseResult& result, size_t place) {
  const OutputRow& row = result.rows[place];
  if (!row.compared) return missing();
  return Cell::of(static_cast<int64_t>(row.in_place ? place : row.index));
}

Cell standard_cell(const OutputRow& row, bool o1) {
  if (!row.compared) return missing();
  const auto limits =
      measure::legacy_limits(o1 ? Standard::LegacyO1 : Standard::LegacyO4, row.measures.dtype);
  return limits ? text_cell(measure::precision_standard_text(*limits)) : missing();
}

/// "0_1@maskType" is case 0_1 with that one parameter switched off.
std::string closed_optimization(const std::string& id) {
  const size_t at = id.find('@');
  return at == std::string::npos ? "NaN" : id.substr(at + 1);
}

// ---- ours ----

Cell verdict_cell(const OutputRow& row, Standard standard) {
  if (!row.compared) return text_cell(std::string(opcheck::outcome_name(row.outcome)));
  return text_cell(judgement_of(row, standard).passed ? "PASS" : "FAILED");
}

std::string index_text(const std::vector<int64_t>& index) {
  return list_text(std::span<const int64_t>(index));
}

void append_measures(const OutputRow& row, Cells* cells) {
  const Measures& m = row.measures;
  for (const double value : {m.max_abs_error, m.mean_abs_error, m.max_rel_error, m.mean_rel_error,
                             m.rmse, m.cosine, m.relative_l2, m.nmse, m.mare, m.mere})
    cells->push_back(Cell::of(value));
  for (const int64_t value :
       {m.golden_nan, m.golden_inf, m.mine_nan, m.mine_inf, m.pattern_mismatches})
    cells->push_back(Cell::of(value));
  for (const int64_t value : m.ulp_histogram) cells->push_back(Cell::of(value));
}

/// Columns from precision_type to worst_neighbours, empty for a row without comparison.
constexpr size_t kComparedColumns = 30;

void append_compared(const OutputRow& row, Cells* cells) {
  if (!row.compared) {
    cells->resize(cells->size() + kComparedColumns);
    return;
  }
  cells->push_back(text_cell(std::string(precision_name(row.accuracy.precision))));
  cells->push_back(Cell::of(row.accuracy.terms));
  cells->push_back(text_cell(row.dtype));
  cells->push_back(text_cell(list_text(row.shape.span())));
  cells->push_back(Cell::of(row.measures.count));
  append_measures(row, cells);
  if (row.measures.worst_index < 0) {
    cells->resize(cells->size() + 4);
    return;
  }
  cells->push_back(text_cell(index_text(row.worst.index)));
  for (const double value : {row.worst.golden, row.worst.mine})
    cells->push_back(std::isnan(value) ? missing() : Cell::of(value));
  cells->push_back(text_cell(neighbours_text(row)));
}

void append_ours(const CaseResult& result, const OutputRow& row, const OpcheckTableOptions& options,
                 Cells* cells) {
  const opcheck::CaseDescription& description = result.description;
  cells->push_back(Cell::of(int64_t{description.rank}));
  for (const std::string& text :
       {description.step, description.node, output_name(row),
        std::string(opcheck::outcome_name(row.outcome)), row.reason, row.note, result.variant,
        std::string(measure::standard_name(options.standard))})
    cells->push_back(text_cell(text));
  cells->push_back(verdict_cell(row, Standard::Atb));
  const Judgement& atb = judgement_of(row, Standard::Atb);
  cells->push_back(row.compared ? Cell::of(atb.rate) : Cell{});
  cells->push_back(row.compared ? Cell::of(atb.error_balance) : Cell{});
  for (const Standard standard : {Standard::LegacyO4, Standard::LegacyO1, Standard::Mixed})
    cells->push_back(verdict_cell(row, standard));
  append_compared(row, cells);
  cells->push_back(text_cell(joined(result.unknown_parameters, ", ")));
}

std::string short_list(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) {
    char number[32];
    std::snprintf(number, sizeof(number), "%s%.7g", text.empty() ? "" : " ", value);
    text += number;
  }
  return text;
}

}  // namespace

std::string output_name(const OutputRow& row) {
  if (!row.name.empty()) return row.name;
  const std::string number = std::to_string(row.index);
  return row.in_place ? "intensor" + number + " after" : "outtensor" + number;
}

std::string worst_text(const OutputRow& row) {
  if (!row.compared || row.measures.worst_index < 0) return {};
  return index_text(row.worst.index) + ": golden " + short_list({row.worst.golden}) + ", mine " +
         short_list({row.worst.mine});
}

std::string neighbours_text(const OutputRow& row) {
  if (!row.compared || row.worst.golden_values.empty()) return {};
  return "golden " + short_list(row.worst.golden_values) + ", mine " +
         short_list(row.worst.mine_values);
}

std::vector<std::string> opcheck_columns(const OpcheckTableOptions& options) {
  if (options.by_rounding) return operator_columns();
  std::vector<std::string> columns = kFirstColumns;
  const bool o1 = options.o1_names;
  columns.emplace_back(o1 ? "excuted_information" : "precision_result");
  columns.emplace_back(o1 ? "precision_result(%)" : "rel_precision_rate(%)");
  columns.emplace_back("max_rel_error");
  if (options.absolute) {
    columns.emplace_back(o1 ? "abs_precision_result(%)" : "abs_precision_rate(%)");
    columns.emplace_back("max_abs_error");
  }
  if (options.cosine) columns.emplace_back("cosine_similarity");
  if (options.kl) columns.emplace_back("kl_divergence");
  columns.insert(columns.end(), options.custom.begin(), options.custom.end());
  if (!o1) columns.emplace_back("fail_reason");
  if (options.optimization) columns.emplace_back("optimization_closed");
  columns.insert(columns.end(), kOurColumns.begin(), kOurColumns.end());
  return columns;
}

std::vector<std::vector<Cell>> opcheck_rows(const CaseResult& result,
                                            const OpcheckTableOptions& options) {
  if (options.by_rounding) return operator_rows(result);
  const opcheck::CaseDescription& description = result.description;
  const OldVerdict verdict = old_verdict(result, options);
  std::vector<Cells> rows;
  for (size_t place = 0; place < result.rows.size(); ++place) {
    const OutputRow& row = result.rows[place];
    // The oldest version names the folder of the tensors.
    const bool names_after = options.o1_names && !description.folder.empty();
    Cells cells = {text_cell(description.id),
                   text_cell(description.op_type),
                   text_cell(description.parameters),
                   text_cell(description.folder + (names_after ? "/after" : "")),
                   output_id(result, place),
                   standard_cell(row, options.o1_names),
                   text_cell(verdict.result)};
    append_old_metrics(row, options, &cells);
    if (!options.o1_names) cells.push_back(text_cell(verdict.reason));
    if (options.optimization) cells.push_back(text_cell(closed_optimization(description.id)));
    append_ours(result, row, options, &cells);
    rows.push_back(std::move(cells));
  }
  return rows;
}

std::vector<OpcheckTotals> opcheck_totals(const opcheck::Report& report) {
  std::map<std::string, OpcheckTotals> by_type;
  for (const CaseResult& one : report.cases) {
    OpcheckTotals& totals = by_type[one.description.op_type];
    totals.op_type = one.description.op_type;
    ++totals.cases;
    totals.outputs += one.rows.size();
    size_t& count = one.outcome == Outcome::Pass           ? totals.passed
                    : one.outcome == Outcome::Failed       ? totals.failed
                    : one.outcome == Outcome::NotSupported ? totals.not_supported
                                                           : totals.errors;
    ++count;
    if (one.outcome == Outcome::Pass || !totals.first_reason.empty()) continue;
    for (const OutputRow& row : one.rows) {
      if (row.outcome != one.outcome) continue;
      totals.first_reason = one.description.id + " " + output_name(row) + ": " + row.reason;
      break;
    }
  }
  std::vector<OpcheckTotals> list;
  for (auto& [type, totals] : by_type) list.push_back(std::move(totals));
  return list;
}

Table build_opcheck_summary(const opcheck::Report& report) {
  Table table;
  table.name = "summary";
  table.columns = {"op_name", "cases",         "outputs", "passed",
                   "failed",  "not_supported", "errors",  "first_reason"};
  const auto add = [&](const OpcheckTotals& totals) {
    Cells cells = {text_cell(totals.op_type)};
    for (const size_t count : {totals.cases, totals.outputs, totals.passed, totals.failed,
                               totals.not_supported, totals.errors})
      cells.push_back(Cell::of(static_cast<int64_t>(count)));
    cells.push_back(text_cell(totals.first_reason));
    table.rows.push_back(std::move(cells));
  };
  for (const OpcheckTotals& totals : opcheck_totals(report)) add(totals);
  const opcheck::Report::Counts counts = report.counts();
  add({"total", report.cases.size(), counts.outputs, counts.passed, counts.failed,
       counts.not_supported, counts.errors, ""});
  for (const auto& [type, count] : report.unlisted) {
    Cells cells = {text_cell(type), Cell::of(static_cast<int64_t>(count))};
    cells.resize(table.columns.size() - 1);
    cells.push_back(text_cell("not judged"));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace assay::report
