// SPDX-License-Identifier: Apache-2.0
#include "report/weights_table.hpp"

#include "report/cells.hpp"

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Row;
using compare::SideSummary;
using measure::PairMetrics;

// Ascend/msit 8.2: msit_llm/common/constant.py, CSV_CMP_WEIGHT_HEADER
const std::vector<std::string> kColumns = {"weight_name",        "golden_dtype",
                                           "golden_shape",       "golden_max_value",
                                           "golden_min_value",   "golden_mean_value",
                                           "my_dtype",           "my_shape",
                                           "my_max_value",       "my_min_value",
                                           "my_mean_value",      "cosine_similarity",
                                           "max_relative_error", "mean_relative_error",
                                           "max_absolute_error", "mean_absolute_error",
                                           "kl_divergence",      "relative_euclidean_distance"};

const std::vector<std::string> kOurColumns = {"sqnr_db",
                                              "quantisation",
                                              "value_count",
                                              "compared_count",
                                              "nan_only_in_golden",
                                              "nan_only_in_my",
                                              "nan_in_both",
                                              "inf_only_in_golden",
                                              "inf_only_in_my",
                                              "inf_in_both",
                                              "inf_sign_mismatches",
                                              "worst_absolute_index",
                                              "outside_tolerance",
                                              "golden_data_path",
                                              "my_data_path",
                                              "matched_by",
                                              "note",
                                              "result",
                                              "exceeded"};

void append_side_cells(const SideSummary& side, Cells* cells) {
  cells->push_back(Cell::of(side.dtype));
  cells->push_back(Cell::of(side.shape));
  for (const double value : {side.max, side.min, side.mean}) cells->push_back(Cell::of(value));
}

void append_counts(const Row& row, Cells* cells) {
  if (!row.metrics) {
    cells->resize(cells->size() + 11);
    return;
  }
  const PairMetrics& m = *row.metrics;
  for (const int64_t count :
       {m.value_count, m.compared_count, m.nan_only_in_golden, m.nan_only_in_mine, m.nan_in_both,
        m.inf_only_in_golden, m.inf_only_in_mine, m.inf_in_both, m.inf_sign_mismatches,
        m.worst_absolute_index, row.outside_tolerance}) {
    cells->push_back(index_cell(count));
  }
}

void append_ours(const Comparison& comparison, const Row& row, Cells* cells) {
  cells->push_back(Cell::of(row.fail_reason));
  append_algorithms(comparison, row, cells);
  cells->push_back(Cell::of(row.sqnr_db));
  cells->push_back(Cell::of(row.quantisation));
  append_counts(row, cells);
  cells->push_back(Cell::of(row.golden.path));
  cells->push_back(Cell::of(row.mine.path));
  cells->push_back(Cell::of(std::string(pair::rule_name(row.matched_by))));
  cells->push_back(Cell::of(row.note));
  cells->push_back(Cell::of(std::string(compare::outcome_name(row.outcome))));
  cells->push_back(Cell::of(row.exceeded));
}

}  // namespace

Table build_weights_table(const Comparison& comparison, const compare::Sheet& sheet) {
  Table table;
  table.name = sheet.name;
  table.columns = kColumns;
  if (!comparison.msit) {
    table.columns.emplace_back("cmp_fail_reason");
    for (const std::string& name : comparison.algorithms) table.columns.push_back(name);
    table.columns.insert(table.columns.end(), kOurColumns.begin(), kOurColumns.end());
  }
  for (const Row& row : sheet.rows) {
    if (row.filtered) continue;
    Cells cells = {Cell::of(row.label)};
    append_side_cells(row.golden, &cells);
    append_side_cells(row.mine, &cells);
    append_metrics(row, &cells);
    if (!comparison.msit) append_ours(comparison, row, &cells);
    table.rows.push_back(std::move(cells));
  }
  return table;
}

}  // namespace assay::report
