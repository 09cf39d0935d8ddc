// SPDX-License-Identifier: Apache-2.0
// Every column of an opcheck report, in its order.
// Source of the first ones: Ascend/msit 8.2: msit_llm/opcheck/case_manager.py
#include "report/opcheck_table.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/text.hpp"
#include "report/column.hpp"

namespace assay::report {
namespace {

using measure::Judgement;
using measure::Measures;
using measure::Standard;
using opcheck::CaseDescription;
using opcheck::CaseResult;
using opcheck::Outcome;
using opcheck::OutputRow;
using opcheck::RoundingMeasures;

/// What stands in every row of a case: the verdict sticks, the reasons are joined.
struct OldVerdict {
  std::string result;
  std::string reason;
};

/// An output of a case.
struct CaseRow {
  const CaseResult& result;
  const OutputRow& row;
  size_t place = 0;  // among the outputs
  const OldVerdict& verdict;
};
using CaseColumns = Columns<CaseRow>;

std::string fixed(double value, int digits) {
  if (std::isnan(value)) return "nan";
  char text[400];  // the largest double has 309 digits before the point
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}
constexpr int kRateDigits = 16;
constexpr int kCosineDigits = 10;

Cell missing() { return Cell::of("NaN"); }  // as the original writes a value it does not have

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    text += (text.empty() ? "" : separator) + part;
  }
  return text;
}

std::string index_text(const std::vector<int64_t>& index) {
  return list_text(std::span<const int64_t>(index));
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

OldVerdict old_verdict(const CaseResult& result, const OpcheckTableOptions& options) {
  if (!result.description.in_table)
    return {"addition failed", result.rows.empty() ? "" : result.rows.front().reason};
  bool passed = !result.rows.empty();
  std::vector<std::string> reasons;
  for (const OutputRow& row : result.rows) {
    const Judgement& judgement = judgement_of(row, options.style.standard);
    passed = passed && row.compared && judgement.passed;
    reasons.push_back(row.compared ? judgement.reason : row.reason);
    for (size_t i = 0; i < row.custom.size() && i < options.custom.size(); ++i) {
      if (!row.custom[i].message.empty())
        reasons.push_back(options.custom[i] + ": " + row.custom[i].message);
    }
  }
  return {passed ? options.style.passed : options.style.failed, joined(reasons, ", ")};
}

/// "0_1@maskType" is case 0_1 with that one parameter switched off.
std::string closed_optimization(const std::string& id) {
  const size_t at = id.find('@');
  return at == std::string::npos ? "NaN" : id.substr(at + 1);
}

/// Results that lie in inputs are numbered by their place, as the original does: it knows no gaps.
Cell output_id(const CaseRow& row) {
  if (!row.row.compared) return missing();
  return Cell::of(row.row.in_place ? row.place : row.row.index);
}

Cell standard_cell(const OutputRow& row, Standard standard) {
  const auto limits = measure::legacy_limits(standard, row.measures.dtype);
  return row.compared && limits ? Cell::of(measure::precision_standard_text(*limits)) : missing();
}

Cell custom_cell(const OutputRow& row, size_t place) {
  if (place >= row.custom.size()) return missing();
  Cell cell = Cell::of(row.custom[place].value);
  const bool is_none = std::holds_alternative<std::monostate>(row.custom[place].value) ||
                       std::holds_alternative<double>(row.custom[place].value);
  return cell.kind == Cell::Kind::Empty && is_none ? missing() : cell;
}

double absolute_rate(const Measures& measures, int64_t Measures::* within) {
  const float share = static_cast<float>(measures.*within) / static_cast<float>(measures.count);
  return measures.count == 0 ? 0 : static_cast<double>(share) * 100;
}

/// A number of a row that was compared, with as many digits as the original wrote.
template <typename Value>
Column<CaseRow> old_number(std::string name, const Value& value, int digits = kRateDigits) {
  return {std::move(name), [value, digits](const CaseRow& row) {
            return row.row.compared ? Cell::of(fixed(value(row.row), digits)) : missing();
          }};
}

Column<CaseRow> old_number(std::string name, double Measures::* value, int digits = kRateDigits) {
  return old_number(
      std::move(name), [value](const OutputRow& row) { return row.measures.*value; }, digits);
}

void append_old_metrics(const OpcheckTableOptions& options, CaseColumns* columns) {
  const OpcheckStyle& style = options.style;
  columns->push_back({style.rate, [standard = style.standard](const CaseRow& row) {
                        const double rate = judgement_of(row.row, standard).rate;
                        return row.row.compared && !std::isnan(rate)
                                   ? Cell::of(fixed(rate, kRateDigits))
                                   : missing();
                      }});
  columns->push_back(old_number("max_rel_error", style.max_rel));
  if (options.absolute) {
    columns->push_back(
        old_number(style.absolute_rate, [within = style.absolute_within](const OutputRow& row) {
          return absolute_rate(row.measures, within);
        }));
    columns->push_back(old_number("max_abs_error", style.max_abs));
  }
  if (options.cosine)
    columns->push_back(old_number("cosine_similarity", &Measures::cosine, kCosineDigits));
  if (options.kl) columns->push_back(old_number("kl_divergence", &Measures::kl_divergence));
  for (size_t i = 0; i < options.custom.size(); ++i) {
    columns->push_back(
        {options.custom[i], [i](const CaseRow& row) { return custom_cell(row.row, i); }});
  }
}

void append_old_columns(const OpcheckTableOptions& options, CaseColumns* columns) {
  const auto described = [](const CaseRow& row) { return &row.result.description; };
  append_part<CaseDescription>({{"op_id", cell_of(&CaseDescription::id)},
                                {"op_name", cell_of(&CaseDescription::op_type)},
                                {"op_param", cell_of(&CaseDescription::parameters)}},
                               described, columns);
  const OpcheckStyle& style = options.style;
  columns->push_back({"tensor_path", [end = style.folder_end](const CaseRow& row) {
                        const std::string& folder = row.result.description.folder;
                        return Cell::of(folder.empty() ? folder : folder + end);
                      }});
  columns->push_back({"out_tensor_id", output_id});
  columns->push_back({"precision_standard", [standard = style.standard](const CaseRow& row) {
                        return standard_cell(row.row, standard);
                      }});
  columns->push_back(
      {style.result, [](const CaseRow& row) { return Cell::of(row.verdict.result); }});
  append_old_metrics(options, columns);
  if (style.has_reason) {
    columns->push_back(
        {"fail_reason", [](const CaseRow& row) { return Cell::of(row.verdict.reason); }});
  }
  if (options.optimization) {
    columns->push_back({"optimization_closed", [](const CaseRow& row) {
                          return Cell::of(closed_optimization(row.result.description.id));
                        }});
  }
}

// ---- ours ----

Cell verdict_cell(const OutputRow& row, Standard standard) {
  if (!row.compared) return Cell::of(opcheck::outcome_name(row.outcome));
  return Cell::of(judgement_of(row, standard).passed ? "PASS" : "FAILED");
}

Cell outcome_cell(const OutputRow& row) { return Cell::of(opcheck::outcome_name(row.outcome)); }
Cell shape_cell(const OutputRow& row) { return Cell::of(list_text(row.shape.span())); }

Column<Measures> ulp_column(const char* name, size_t place) {
  return {name, [place](const Measures& m) { return Cell::of(m.ulp_histogram[place]); }};
}

void append_measures(CaseColumns* columns) {
  append_part<Measures>(
      {{"count", cell_of(&Measures::count)},
       {"max_abs", cell_of(&Measures::max_abs_error)},
       {"mean_abs", cell_of(&Measures::mean_abs_error)},
       {"max_rel", cell_of(&Measures::max_rel_error)},
       {"mean_rel", cell_of(&Measures::mean_rel_error)},
       {"rmse", cell_of(&Measures::rmse)},
       {"cosine", cell_of(&Measures::cosine)},
       {"relative_l2", cell_of(&Measures::relative_l2)},
       {"nmse", cell_of(&Measures::nmse)},
       {"mare", cell_of(&Measures::mare)},
       {"mere", cell_of(&Measures::mere)},
       {"golden_nan", cell_of(&Measures::golden_nan)},
       {"golden_inf", cell_of(&Measures::golden_inf)},
       {"mine_nan", cell_of(&Measures::mine_nan)},
       {"mine_inf", cell_of(&Measures::mine_inf)},
       {"pattern_mismatches", cell_of(&Measures::pattern_mismatches)},
       ulp_column("ulp_0", 0),
       ulp_column("ulp_1", 1),
       ulp_column("ulp_2", 2),
       ulp_column("ulp_4", 3),
       ulp_column("ulp_8", 4),
       ulp_column("ulp_more", 5)},
      [](const CaseRow& row) { return row.row.compared ? &row.row.measures : nullptr; }, columns);
}

Cell worst_cell(double value) { return std::isnan(value) ? missing() : Cell::of(value); }

void append_worst(CaseColumns* columns) {
  append_part<OutputRow>(
      {{"worst_index", [](const OutputRow& row) { return Cell::of(index_text(row.worst.index)); }},
       {"worst_golden", [](const OutputRow& row) { return worst_cell(row.worst.golden); }},
       {"worst_mine", [](const OutputRow& row) { return worst_cell(row.worst.mine); }},
       {"worst_neighbours", [](const OutputRow& row) { return Cell::of(neighbours_text(row)); }}},
      [](const CaseRow& row) {
        return row.row.compared && row.row.measures.worst_index >= 0 ? &row.row : nullptr;
      },
      columns);
}

Column<OutputRow> judged_column(const char* name, Standard standard) {
  return {name, [standard](const OutputRow& row) { return verdict_cell(row, standard); }};
}

void append_our_columns(const OpcheckTableOptions& options, CaseColumns* columns) {
  const auto described = [](const CaseRow& row) { return &row.result.description; };
  const auto output = [](const CaseRow& row) { return &row.row; };
  const auto compared = [](const CaseRow& row) { return row.row.compared ? &row.row : nullptr; };
  append_part<CaseDescription>({{"rank", cell_of(&CaseDescription::rank)},
                                {"step", cell_of(&CaseDescription::step)},
                                {"node", cell_of(&CaseDescription::node)}},
                               described, columns);
  append_part<OutputRow>(
      {{"output", [](const OutputRow& row) { return Cell::of(output_name(row)); }},
       {"result", outcome_cell},
       {"reason", cell_of(&OutputRow::reason)},
       {"note", cell_of(&OutputRow::note)}},
      output, columns);
  columns->push_back({"variant", [](const CaseRow& row) { return Cell::of(row.result.variant); }});
  columns->push_back({"standard", [standard = options.standard](const CaseRow&) {
                        return Cell::of(measure::standard_name(standard));
                      }});
  append_part<OutputRow>({judged_column("atb_result", Standard::Atb)}, output, columns);
  append_part<Judgement>(
      {{"atb_rate(%)", cell_of(&Judgement::rate)},
       {"error_balance(%)", cell_of(&Judgement::error_balance)}},
      [](const CaseRow& row) {
        return row.row.compared ? &judgement_of(row.row, Standard::Atb) : nullptr;
      },
      columns);
  append_part<OutputRow>({judged_column("legacy_o4_result", Standard::LegacyO4),
                          judged_column("legacy_o1_result", Standard::LegacyO1),
                          judged_column("mixed_result", Standard::Mixed)},
                         output, columns);
  append_part<OutputRow>(
      {{"precision_type",
        [](const OutputRow& row) { return Cell::of(precision_name(row.accuracy.precision)); }},
       {"terms", [](const OutputRow& row) { return Cell::of(row.accuracy.terms); }},
       {"dtype", cell_of(&OutputRow::dtype)},
       {"shape", shape_cell}},
      compared, columns);
  append_measures(columns);
  append_worst(columns);
  columns->push_back({"unknown_parameters", [](const CaseRow& row) {
                        return Cell::of(joined(row.result.unknown_parameters, ", "));
                      }});
}

// ---- operators, held against what rounding explains ----

void append_rounding(CaseColumns* columns) {
  append_part<RoundingMeasures>(
      {{"z", cell_of(&RoundingMeasures::z)},
       {"e", cell_of(&RoundingMeasures::e)},
       {"worst_ulp", cell_of(&RoundingMeasures::worst_ulp)},
       {"allowed_ulp", cell_of(&RoundingMeasures::allowed_ulp)},
       {"relative_l2", cell_of(&RoundingMeasures::relative_l2)},
       {"noise_floor", cell_of(&RoundingMeasures::noise_floor)},
       {"worst_index",
        [](const RoundingMeasures& m) {
          return m.worst_index.empty() ? Cell{} : Cell::of(index_text(m.worst_index));
        }},
       {"checked", cell_of(&RoundingMeasures::extent)}},
      [](const CaseRow& row) {
        return row.row.rounding && row.row.rounding->judged ? &*row.row.rounding : nullptr;
      },
      columns);
}

CaseColumns operator_columns() {
  static const RoundingMeasures kNone;
  const auto described = [](const CaseRow& row) { return &row.result.description; };
  const auto output = [](const CaseRow& row) { return &row.row; };
  CaseColumns columns;
  append_part<CaseDescription>(
      {{"rank", cell_of(&CaseDescription::rank)}, {"step", cell_of(&CaseDescription::step)}},
      described, &columns);
  append_part<RoundingMeasures>(
      {{"module", cell_of(&RoundingMeasures::module)},
       {"module_call", [](const RoundingMeasures& m) { return Cell::of(int64_t{m.call}); }}},
      [](const CaseRow& row) { return row.row.rounding ? &*row.row.rounding : &kNone; }, &columns);
  append_part<CaseDescription>(
      {{"operator", cell_of(&CaseDescription::op_type)}, {"node", cell_of(&CaseDescription::node)}},
      described, &columns);
  append_part<OutputRow>(
      {{"output", cell_of(&OutputRow::index)},
       {"result", outcome_cell},
       {"reason", cell_of(&OutputRow::reason)},
       {"dtype", cell_of(&OutputRow::dtype)},
       {"shape",
        [](const OutputRow& row) { return row.dtype.empty() ? Cell{} : shape_cell(row); }}},
      output, &columns);
  append_rounding(&columns);
  append_part<OutputRow>({{"tensor_path", cell_of(&OutputRow::file)}}, output, &columns);
  return columns;
}

CaseColumns case_columns(const OpcheckTableOptions& options) {
  if (options.by_rounding) return operator_columns();
  CaseColumns columns;
  append_old_columns(options, &columns);
  append_our_columns(options, &columns);
  return columns;
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
  return names_of(case_columns(options));
}

std::vector<Cells> opcheck_rows(const CaseResult& result, const OpcheckTableOptions& options) {
  const CaseColumns columns = case_columns(options);
  const OldVerdict verdict = old_verdict(result, options);
  std::vector<Cells> rows;
  for (size_t place = 0; place < result.rows.size(); ++place)
    rows.push_back(cells_of(columns, {result, result.rows[place], place, verdict}));
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
    Cells cells = {Cell::of(totals.op_type)};
    for (const size_t count : {totals.cases, totals.outputs, totals.passed, totals.failed,
                               totals.not_supported, totals.errors})
      cells.push_back(Cell::of(static_cast<int64_t>(count)));
    cells.push_back(Cell::of(totals.first_reason));
    table.rows.push_back(std::move(cells));
  };
  for (const OpcheckTotals& totals : opcheck_totals(report)) add(totals);
  const opcheck::Report::Counts counts = report.counts();
  add({"total", report.cases.size(), counts.outputs, counts.passed, counts.failed,
       counts.not_supported, counts.errors, ""});
  for (const auto& [type, count] : report.unlisted) {
    Cells cells = {Cell::of(type), Cell::of(static_cast<int64_t>(count))};
    cells.resize(table.columns.size() - 1);
    cells.push_back(Cell::of("not judged"));
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace assay::report
