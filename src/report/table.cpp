// SPDX-License-Identifier: Apache-2.0
#include "report/table.hpp"

#include <cmath>

#include "base/text.hpp"
#include "formats/csv.hpp"
#include "pair/tree.hpp"
#include "report/cells.hpp"
#include "report/weights_table.hpp"

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Row;
using compare::SideSummary;
using measure::PairMetrics;

// ---- tensors: Ascend/msit 8.2 columns, then ours ----

const std::vector<std::string> kTensorColumns = {"token_id",
                                                 "data_id",
                                                 "golden_data_path",
                                                 "golden_op_type",
                                                 "golden_dtype",
                                                 "golden_shape",
                                                 "golden_max_value",
                                                 "golden_min_value",
                                                 "golden_mean_value",
                                                 "my_data_path",
                                                 "my_op_type",
                                                 "my_dtype",
                                                 "my_shape",
                                                 "my_max_value",
                                                 "my_min_value",
                                                 "my_mean_value",
                                                 "cosine_similarity",
                                                 "max_relative_error",
                                                 "mean_relative_error",
                                                 "max_absolute_error",
                                                 "mean_absolute_error",
                                                 "kl_divergence",
                                                 "relative_euclidean_distance",
                                                 "cmp_fail_reason"};

const std::vector<std::string> kStatisticsColumns = {"token_id",
                                                     "data_id",
                                                     "golden_data_path",
                                                     "golden_op_type",
                                                     "my_data_path",
                                                     "my_op_type",
                                                     "max_stat_absolute_error",
                                                     "max_stat_relative_error",
                                                     "min_stat_absolute_error",
                                                     "min_stat_relative_error",
                                                     "mean_stat_absolute_error",
                                                     "mean_stat_relative_error",
                                                     "l2norm_stat_absolute_error",
                                                     "l2norm_stat_relative_error"};

const std::vector<std::string> kOurTensorColumns = {
    "kl_row_mean",          "kl_row_max",           "value_count",      "compared_count",
    "masked_count",         "nan_only_in_golden",   "nan_only_in_my",   "nan_in_both",
    "inf_only_in_golden",   "inf_only_in_my",       "inf_in_both",      "inf_sign_mismatches",
    "worst_absolute_index", "worst_relative_index", "outside_tolerance"};

const std::vector<std::string> kOurStatisticsColumns = {
    "golden_max_value", "golden_min_value", "golden_mean_value", "golden_l2norm_value",
    "my_max_value",     "my_min_value",     "my_mean_value",     "my_l2norm_value"};

const std::vector<std::string> kOurLastColumns = {"node", "rank",   "matched_by", "confidence",
                                                  "note", "result", "exceeded"};

const std::vector<std::string> kVerdictColumns = {
    "err_in",      "err_out",       "err_own", "own_source",
    "noise_floor", "amplification", "verdict", "verdict_confidence"};

// The report of ait 0.2: four metrics, no operator types.
const std::vector<std::string> kAit02Columns = {"token_id",
                                                "data_id",
                                                "golden_data_path",
                                                "golden_dtype",
                                                "golden_shape",
                                                "golden_max_value",
                                                "golden_min_value",
                                                "golden_mean_value",
                                                "my_data_path",
                                                "my_dtype",
                                                "my_shape",
                                                "my_max_value",
                                                "my_min_value",
                                                "my_mean_value",
                                                "cosine_similarity",
                                                "max_relative_error",
                                                "mean_relative_error",
                                                "relative_euclidean_distance",
                                                "cmp_fail_reason"};

void append_identity(const Row& row, Cells* cells) {
  cells->push_back(row.token_id == pair::kWarmupToken ? Cell::of(std::string("warmup"))
                                                      : Cell::of(row.token_id));
  cells->push_back(Cell::of(row.data_id));
}

void append_tensor_side(const SideSummary& side, Cells* cells) {
  for (const std::string& text : {side.path, side.op_type, side.dtype, side.shape}) {
    cells->push_back(Cell::of(text));
  }
  for (const double value : {side.max, side.min, side.mean}) cells->push_back(Cell::of(value));
}

void append_our_tensor_columns(const Row& row, Cells* cells) {
  if (!row.metrics) {
    cells->resize(cells->size() + kOurTensorColumns.size());
    return;
  }
  const PairMetrics& m = *row.metrics;
  cells->push_back(Cell::of(m.kl_row_mean));
  cells->push_back(Cell::of(m.kl_row_max));
  for (const int64_t count :
       {m.value_count, m.compared_count, m.masked_count, m.nan_only_in_golden, m.nan_only_in_mine,
        m.nan_in_both, m.inf_only_in_golden, m.inf_only_in_mine, m.inf_in_both,
        m.inf_sign_mismatches, m.worst_absolute_index, m.worst_relative_index,
        row.outside_tolerance}) {
    cells->push_back(index_cell(count));
  }
}

void append_our_last_columns(const Row& row, Cells* cells) {
  cells->push_back(Cell::of(row.label));
  cells->push_back(Cell::of(int64_t{row.rank}));
  cells->push_back(Cell::of(std::string(pair::rule_name(row.matched_by))));
  cells->push_back(Cell::of(row.confidence));
  cells->push_back(Cell::of(row.note));
  cells->push_back(Cell::of(std::string(compare::outcome_name(row.outcome))));
  cells->push_back(Cell::of(row.exceeded));
}

void append_verdict_columns(const RowVerdict& verdict, Cells* cells) {
  for (const double value : {verdict.err_in, verdict.err_out, verdict.err_own})
    cells->push_back(Cell::of(value));
  cells->push_back(Cell::of(std::string(locate::own_source_name(verdict.own_source))));
  cells->push_back(Cell::of(verdict.noise_floor));
  cells->push_back(Cell::of(verdict.amplification));
  cells->push_back(Cell::of(std::string(locate::judgement_name(verdict.verdict))));
  cells->push_back(Cell::of(verdict.confidence));
}

Cells ait02_cells(const Row& row) {
  Cells cells;
  append_identity(row, &cells);
  for (const SideSummary* side : {&row.golden, &row.mine}) {
    for (const std::string& text : {side->path, side->dtype, side->shape})
      cells.push_back(Cell::of(text));
    for (const double value : {side->max, side->min, side->mean}) cells.push_back(Cell::of(value));
  }
  const compare::Ait02Metrics metrics = row.ait02.value_or(compare::Ait02Metrics{});
  cells.push_back(Cell::of(metrics.cosine_similarity));
  for (const double value : {metrics.max_relative_error, metrics.mean_relative_error,
                             metrics.relative_euclidean_distance})
    cells.push_back(Cell::of(value));
  cells.push_back(Cell::of(row.fail_reason));
  return cells;
}

Cells tensor_cells(const Comparison& comparison, const Row& row, bool ours) {
  Cells cells;
  append_identity(row, &cells);
  append_tensor_side(row.golden, &cells);
  append_tensor_side(row.mine, &cells);
  append_metrics(row, &cells);
  cells.push_back(Cell::of(row.fail_reason));
  append_algorithms(comparison, row, &cells);
  if (ours) {
    append_our_tensor_columns(row, &cells);
    append_our_last_columns(row, &cells);
  }
  return cells;
}

Cells statistics_cells(const Row& row, bool ours) {
  Cells cells;
  append_identity(row, &cells);
  for (const SideSummary* side : {&row.golden, &row.mine}) {
    cells.push_back(Cell::of(side->path));
    cells.push_back(Cell::of(side->op_type));
  }
  const measure::SummaryErrors errors = row.summary.value_or(measure::SummaryErrors{});
  for (const measure::SummaryError& error : {errors.max, errors.min, errors.mean, errors.l2_norm}) {
    cells.push_back(Cell::of(error.absolute));
    cells.push_back(Cell::of(error.relative));
  }
  if (!ours) return cells;
  cells.push_back(Cell::of(row.fail_reason));
  for (const SideSummary* side : {&row.golden, &row.mine}) {
    for (const double value : {side->max, side->min, side->mean, side->l2_norm}) {
      cells.push_back(Cell::of(value));
    }
  }
  append_our_last_columns(row, &cells);
  return cells;
}

std::vector<std::string> columns_of(const Comparison& comparison, bool with_verdicts) {
  const bool statistics = comparison.statistics;
  if (comparison.ait02) return kAit02Columns;
  std::vector<std::string> columns = statistics ? kStatisticsColumns : kTensorColumns;
  if (!statistics) {
    columns.insert(columns.end(), comparison.algorithms.begin(), comparison.algorithms.end());
  }
  if (comparison.msit) return columns;
  const auto append = [&](const std::vector<std::string>& more) {
    columns.insert(columns.end(), more.begin(), more.end());
  };
  if (statistics) columns.emplace_back("cmp_fail_reason");
  append(statistics ? kOurStatisticsColumns : kOurTensorColumns);
  append(kOurLastColumns);
  if (with_verdicts) append(kVerdictColumns);
  return columns;
}

}  // namespace

Cell Cell::of(int64_t value) {
  Cell cell;
  cell.kind = Kind::Integer;
  cell.integer = value;
  return cell;
}
Cell Cell::of(double value) {
  Cell cell;
  if (std::isnan(value)) return cell;
  cell.kind = Kind::Number;
  cell.number = value;
  return cell;
}
Cell Cell::of(std::string value) {
  Cell cell;
  if (value.empty()) return cell;
  cell.kind = Kind::Text;
  cell.text = std::move(value);
  return cell;
}

std::string Cell::csv_text() const {
  switch (kind) {
    case Kind::Empty:
      break;
    case Kind::Integer:
      return std::to_string(integer);
    case Kind::Number:
      return python_repr(number);
    case Kind::Text:
      return printable(text);
  }
  return {};
}

Table build_table(const Comparison& comparison, const compare::Sheet& sheet, bool keep_filtered,
                  const std::vector<RowVerdict>* verdicts) {
  if (comparison.weights) return build_weights_table(comparison, sheet);
  Table table;
  table.name = sheet.name;
  table.columns = columns_of(comparison, verdicts != nullptr);
  const bool ours = !comparison.msit;
  for (size_t i = 0; i < sheet.rows.size(); ++i) {
    const Row& row = sheet.rows[i];
    if (row.filtered && !keep_filtered) continue;
    // The original drops statistics rows that have a reason.
    if (comparison.statistics && comparison.msit && !row.fail_reason.empty()) continue;
    table.rows.push_back(comparison.ait02        ? ait02_cells(row)
                         : comparison.statistics ? statistics_cells(row, ours)
                                                 : tensor_cells(comparison, row, ours));
    if (ours && verdicts != nullptr && !comparison.ait02)
      append_verdict_columns((*verdicts)[i], &table.rows.back());
  }
  return table;
}

Table build_unmatched_table(const compare::Sheet& sheet, const run::Run& golden,
                            const run::Run& mine) {
  Table table;
  table.name = "unmatched";
  table.columns = {"side", "token_id", "path", "op_type", "reason"};
  for (const pair::UnmatchedRecord& entry : sheet.matching.unmatched) {
    const bool is_golden = entry.side == pair::Side::Golden;
    const run::TensorRecord& record = (is_golden ? golden : mine).records[entry.record];
    table.rows.push_back({Cell::of(std::string(is_golden ? "golden" : "my")), Cell::of(record.step),
                          Cell::of(compare::record_path(record)), Cell::of(record.op_type),
                          Cell::of(entry.reason)});
  }
  return table;
}

std::string csv_text(const Table& table, bool defuse) {
  const formats::CsvOptions options{.line_end = "\n", .defuse_formulas = defuse};
  std::string out;
  formats::append_csv_row(table.columns, options, &out);
  std::vector<std::string> texts;
  for (const Cells& cells : table.rows) {
    texts.clear();
    for (const Cell& cell : cells) texts.push_back(cell.csv_text());
    formats::append_csv_row(texts, options, &out);
  }
  return out;
}

std::string jsonl_text(const Table& table, bool with_name) {
  std::string out;
  for (const Cells& cells : table.rows) {
    out += with_name ? "{\"level\": " + json_quote(table.name) : "{";
    for (size_t i = 0; i < cells.size(); ++i) {
      out += (i == 0 && !with_name ? "" : ", ") + json_quote(table.columns[i]) + ": ";
      switch (cells[i].kind) {
        case Cell::Kind::Empty:
          out += "null";
          break;
        case Cell::Kind::Integer:
          out += std::to_string(cells[i].integer);
          break;
        case Cell::Kind::Number:
          out += json_number(cells[i].number);
          break;
        case Cell::Kind::Text:
          out += json_quote(cells[i].text);
          break;
      }
    }
    out += "}\n";
  }
  return out;
}

}  // namespace assay::report
