// SPDX-License-Identifier: Apache-2.0
// Every column of an opcheck report, in its order.
// Source of the first ones: Ascend/msit 8.2: msit_llm/opcheck/case_manager.py
#include "report/opcheck_table.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "base/text.hpp"
#include "report/column.hpp"
#include "report/opcheck_terminal.hpp"

namespace assay::report {

/// What stands in every row of a case: the verdict sticks, the reasons are joined.
struct OldVerdict {
  std::string result;
  std::string reason;
};

/// An output of a case.
struct CaseRow {
  const opcheck::CaseResult& result;
  const opcheck::OutputRow& row;
  size_t place = 0;  // among the outputs
  const OldVerdict& verdict;
};

namespace {

using measure::Judgement;
using measure::Measures;
using measure::Standard;
using opcheck::CaseDescription;
using opcheck::CaseResult;
using opcheck::CheckOutcome;
using opcheck::OutputRow;
using opcheck::RoundingMeasures;

using CaseColumns = Columns<CaseRow>;

// The parts of a row; null: this row has none.
const CaseDescription* described(const CaseRow& row) { return &row.result.description; }
const CaseResult* result(const CaseRow& row) { return &row.result; }
const OldVerdict* old(const CaseRow& row) { return &row.verdict; }
const OutputRow* output(const CaseRow& row) { return &row.row; }
const OutputRow* compared(const CaseRow& row) { return row.row.compared ? &row.row : nullptr; }
const Measures* measured(const CaseRow& row) {
  return row.row.compared ? &row.row.measures : nullptr;
}
const OutputRow* with_worst(const CaseRow& row) {
  return row.row.compared && row.row.measures.worst_index >= 0 ? &row.row : nullptr;
}
const Judgement* judged_by_atb(const CaseRow& row) {
  return row.row.compared ? &row.row.judgements[static_cast<size_t>(Standard::Atb)] : nullptr;
}
const RoundingMeasures* rounded(const CaseRow& row) {
  return row.row.rounding && row.row.rounding->judged ? &*row.row.rounding : nullptr;
}

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
std::string closed_optimization(const CaseDescription& one) {
  const size_t at = one.id.find('@');
  return at == std::string::npos ? "NaN" : one.id.substr(at + 1);
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
  using D = CaseDescription;
  const OpcheckStyle& style = options.style;
  const auto path = [end = style.folder_end](const D& one) {
    return one.folder.empty() ? std::string() : one.folder + end;
  };
  const auto precision = [standard = style.standard](const OutputRow& row) {
    return standard_cell(row, standard);
  };
  *columns = {{"op_id", of(described, &D::id)},
              {"op_name", of(described, &D::op_type)},
              {"op_param", of(described, &D::parameters)},
              {"tensor_path", of(described, path)},
              {"out_tensor_id", output_id},
              {"precision_standard", of(output, precision)},
              {style.result, of(old, &OldVerdict::result)}};
  append_old_metrics(options, columns);
  if (style.has_reason) columns->push_back({"fail_reason", of(old, &OldVerdict::reason)});
  if (options.optimization)
    columns->push_back({"optimization_closed", of(described, closed_optimization)});
}

// ---- ours ----

template <Standard kStandard>
std::string_view verdict_by(const OutputRow& row) {
  if (!row.compared) return opcheck::outcome_name(row.outcome);
  return judgement_of(row, kStandard).passed ? "PASS" : "FAILED";
}
std::string_view outcome_of(const OutputRow& row) { return opcheck::outcome_name(row.outcome); }
std::string shape_of(const OutputRow& row) { return list_text(row.shape.span()); }
std::string_view precision_of(const OutputRow& row) {
  return precision_name(row.accuracy.precision);
}
std::string unknown_of(const CaseResult& one) { return joined(one.unknown_parameters, ", "); }
auto terms_of(const OutputRow& row) { return row.accuracy.terms; }
template <size_t kPlace>
int64_t ulp(const Measures& measures) {
  return measures.ulp_histogram[kPlace];
}
std::string worst_index(const OutputRow& row) { return index_text(row.worst.index); }
Cell worst_cell(double value) { return std::isnan(value) ? missing() : Cell::of(value); }
Cell worst_golden(const OutputRow& row) { return worst_cell(row.worst.golden); }
Cell worst_mine(const OutputRow& row) { return worst_cell(row.worst.mine); }

CaseColumns our_columns(const OpcheckTableOptions& options) {
  using D = CaseDescription;
  using M = Measures;
  const auto standard = [name = measure::standard_name(options.standard)](const OutputRow&) {
    return name;
  };
  return {{"rank", of(described, &D::rank)},
          {"step", of(described, &D::step)},
          {"node", of(described, &D::node)},
          {"output", of(output, output_name)},
          {"result", of(output, outcome_of)},
          {"reason", of(output, &OutputRow::reason)},
          {"note", of(output, &OutputRow::note)},
          {"variant", of(result, &CaseResult::variant)},
          {"standard", of(output, standard)},
          {"atb_result", of(output, verdict_by<Standard::Atb>)},
          {"atb_rate(%)", of(judged_by_atb, &Judgement::rate)},
          {"error_balance(%)", of(judged_by_atb, &Judgement::error_balance)},
          {"legacy_o4_result", of(output, verdict_by<Standard::LegacyO4>)},
          {"legacy_o1_result", of(output, verdict_by<Standard::LegacyO1>)},
          {"mixed_result", of(output, verdict_by<Standard::Mixed>)},
          {"precision_type", of(compared, precision_of)},
          {"terms", of(compared, terms_of)},
          {"dtype", of(compared, &OutputRow::dtype)},
          {"shape", of(compared, shape_of)},
          {"count", of(measured, &M::count)},
          {"max_abs", of(measured, &M::max_abs_error)},
          {"mean_abs", of(measured, &M::mean_abs_error)},
          {"max_rel", of(measured, &M::max_rel_error)},
          {"mean_rel", of(measured, &M::mean_rel_error)},
          {"rmse", of(measured, &M::rmse)},
          {"cosine", of(measured, &M::cosine)},
          {"relative_l2", of(measured, &M::relative_l2)},
          {"nmse", of(measured, &M::nmse)},
          {"mare", of(measured, &M::mare)},
          {"mere", of(measured, &M::mere)},
          {"golden_nan", of(measured, &M::golden_nan)},
          {"golden_inf", of(measured, &M::golden_inf)},
          {"mine_nan", of(measured, &M::mine_nan)},
          {"mine_inf", of(measured, &M::mine_inf)},
          {"pattern_mismatches", of(measured, &M::pattern_mismatches)},
          {"ulp_0", of(measured, ulp<0>)},
          {"ulp_1", of(measured, ulp<1>)},
          {"ulp_2", of(measured, ulp<2>)},
          {"ulp_4", of(measured, ulp<3>)},
          {"ulp_8", of(measured, ulp<4>)},
          {"ulp_more", of(measured, ulp<5>)},
          {"worst_index", of(with_worst, worst_index)},
          {"worst_golden", of(with_worst, worst_golden)},
          {"worst_mine", of(with_worst, worst_mine)},
          {"worst_neighbours", of(with_worst, neighbours_text)},
          {"unknown_parameters", of(result, unknown_of)}};
}

// ---- operators, held against what rounding explains ----

std::string module_of(const OutputRow& row) { return row.rounding ? row.rounding->module : ""; }
uint32_t call_of(const OutputRow& row) { return row.rounding ? row.rounding->call : 0; }
std::string operator_shape(const OutputRow& row) { return row.dtype.empty() ? "" : shape_of(row); }
Cell rounded_worst(const RoundingMeasures& m) {
  return m.worst_index.empty() ? Cell{} : Cell::of(index_text(m.worst_index));
}

CaseColumns operator_columns() {
  using D = CaseDescription;
  using R = RoundingMeasures;
  return {{"rank", of(described, &D::rank)},
          {"step", of(described, &D::step)},
          {"module", of(output, module_of)},
          {"module_call", of(output, call_of)},
          {"operator", of(described, &D::op_type)},
          {"node", of(described, &D::node)},
          {"output", of(output, &OutputRow::index)},
          {"result", of(output, outcome_of)},
          {"reason", of(output, &OutputRow::reason)},
          {"dtype", of(output, &OutputRow::dtype)},
          {"shape", of(output, operator_shape)},
          {"z", of(rounded, &R::z)},
          {"e", of(rounded, &R::e)},
          {"worst_ulp", of(rounded, &R::worst_ulp)},
          {"allowed_ulp", of(rounded, &R::allowed_ulp)},
          {"relative_l2", of(rounded, &R::relative_l2)},
          {"noise_floor", of(rounded, &R::noise_floor)},
          {"worst_index", of(rounded, rounded_worst)},
          {"checked", of(rounded, &R::extent)},
          {"tensor_path", of(output, &OutputRow::file)}};
}

CaseColumns case_columns(const OpcheckTableOptions& options) {
  if (options.by_rounding) return operator_columns();
  CaseColumns columns;
  append_old_columns(options, &columns);
  std::ranges::move(our_columns(options), std::back_inserter(columns));
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

OpcheckTable::OpcheckTable(const OpcheckTableOptions& options)
    : options_(options), columns_(case_columns(options)) {}

std::vector<Cells> OpcheckTable::rows(const CaseResult& result) const {
  const OldVerdict verdict = old_verdict(result, options_);
  std::vector<Cells> rows;
  for (size_t place = 0; place < result.rows.size(); ++place)
    rows.push_back(cells_of(columns_, {result, result.rows[place], place, verdict}));
  return rows;
}

namespace {
Mark verdict_mark(const opcheck::Report& report) {
  const opcheck::Report::Counts counts = report.counts();
  if (counts.failed > 0 || counts.errors > 0) return Mark::Bad;
  return counts.passed == 0 || report.interrupted ? Mark::Doubt : Mark::Good;
}
}  // namespace

std::vector<OpcheckTotals> opcheck_totals(const opcheck::Report& report) {
  std::map<std::string, OpcheckTotals> by_type;
  for (size_t number = 0; number < report.cases.size(); ++number) {
    const CaseResult& one = report.cases[number];
    OpcheckTotals& totals = by_type[one.description.op_type];
    totals.op_type = one.description.op_type;
    ++totals.cases;
    totals.outputs += one.rows.size();
    size_t& count = one.outcome == CheckOutcome::Pass           ? totals.passed
                    : one.outcome == CheckOutcome::Failed       ? totals.failed
                    : one.outcome == CheckOutcome::NotSupported ? totals.not_supported
                                                                : totals.errors;
    ++count;
    if (one.outcome == CheckOutcome::Pass || !totals.first_reason.empty()) continue;
    const auto row = std::ranges::find(one.rows, one.outcome, &OutputRow::outcome);
    if (row == one.rows.end()) continue;
    totals.first_reason = one.description.id + " " + output_name(*row) + ": " + row->reason;
    totals.first = {number, static_cast<size_t>(row - one.rows.begin())};
  }
  std::vector<OpcheckTotals> list;
  for (auto& [type, totals] : by_type) list.push_back(std::move(totals));
  return list;
}

Table build_opcheck_summary(const opcheck::Report& report) {
  Table table;
  table.name = "summary";
  table.title = Cell::of(opcheck_verdict(report)).marked(verdict_mark(report));
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
  const auto remark = [&](const std::string& name, Cell count, Cell text) {
    Cells cells = {Cell::of(name), std::move(count)};
    cells.resize(table.columns.size() - 1);
    cells.push_back(std::move(text));
    table.rows.push_back(std::move(cells));
  };
  for (const auto& [type, count] : report.unlisted)
    remark(type, Cell::of(count), Cell::of("not judged"));
  if (!report.coverage.empty()) remark("coverage", {}, Cell::of(report.coverage));
  for (const std::string& warning : report.warnings)
    remark("warning", {}, Cell::of(warning).marked(Mark::Doubt));
  return table;
}

}  // namespace assay::report
