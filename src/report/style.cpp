// SPDX-License-Identifier: Apache-2.0
// Every column that a table of a comparison can have, by name, and the choice of a style among them.
#include "report/style.hpp"

#include <algorithm>

#include "base/result.hpp"
#include "base/text.hpp"
#include "pair/rule.hpp"
#include "pair/tokens.hpp"

namespace assay::report {
namespace {

using compare::Row;
using compare::SideSummary;
using measure::PairMetrics;
using measure::SummaryErrors;

constexpr std::string_view kAlgorithms = "[algorithms]";

Cell token_cell(const Row& row) {
  return row.token_id == pair::kWarmupToken ? Cell::of("warmup") : Cell::of(row.token_id);
}

void append_row_columns(Columns<JudgedRow>* all) {
  append_part<Row>(
      {{"token_id", token_cell},
       {"data_id", cell_of(&Row::data_id)},
       {"weight_name", cell_of(&Row::label)},
       {"node", cell_of(&Row::label)},
       {"rank", cell_of(&Row::rank)},
       {"matched_by", [](const Row& row) { return Cell::of(pair::rule_name(row.matched_by)); }},
       {"confidence", cell_of(&Row::confidence)},
       {"cmp_fail_reason", cell_of(&Row::fail_reason)},
       {"note", cell_of(&Row::note)},
       {"result", [](const Row& row) { return Cell::of(compare::outcome_name(row.outcome)); }},
       {"exceeded", cell_of(&Row::exceeded)},
       {"sqnr_db", cell_of(&Row::sqnr_db)},
       {"quantisation", cell_of(&Row::quantisation)},
       {"outside_tolerance",
        [](const Row& row) {
          return row.metrics ? Cell::of_index(row.outside_tolerance) : Cell{};
        }}},
      [](const JudgedRow& row) { return &row.row; }, all);
}

void append_side_columns(Columns<JudgedRow>* all) {
  const Columns<SideSummary> columns = {{"data_path", cell_of(&SideSummary::path)},
                                        {"op_type", cell_of(&SideSummary::op_type)},
                                        {"dtype", cell_of(&SideSummary::dtype)},
                                        {"shape", cell_of(&SideSummary::shape)},
                                        {"max_value", cell_of(&SideSummary::max)},
                                        {"min_value", cell_of(&SideSummary::min)},
                                        {"mean_value", cell_of(&SideSummary::mean)},
                                        {"l2norm_value", cell_of(&SideSummary::l2_norm)}};
  append_part(columns, [](const JudgedRow& row) { return &row.row.golden; }, all, "golden_");
  append_part(columns, [](const JudgedRow& row) { return &row.row.mine; }, all, "my_");
}

// "nan_only_in_mine" is "nan_only_in_my" in a report.
std::string count_name(std::string name) {
  if (name.ends_with("_mine")) name.replace(name.size() - 4, 4, "my");
  return name;
}

void append_metric_columns(Columns<JudgedRow>* all) {
  Columns<PairMetrics> columns = {{"kl_row_mean", cell_of(&PairMetrics::kl_row_mean)},
                                  {"kl_row_max", cell_of(&PairMetrics::kl_row_max)}};
  for (const auto& [name, field] : measure::kMetricFields)
    columns.push_back({name, cell_of(field)});
  for (const auto& [name, field] : measure::kCountFields) {
    columns.push_back({count_name(name), [field = field](const PairMetrics& metrics) {
                         return Cell::of_index(metrics.*field);
                       }});
  }
  append_part(
      columns, [](const JudgedRow& row) { return row.row.metrics ? &*row.row.metrics : nullptr; },
      all);
}

void append_statistics_columns(Columns<JudgedRow>* all) {
  Columns<SummaryErrors> columns;
  for (const auto& [name, field] : measure::kSummaryFields) {
    const std::string stem = std::string(name) + "_stat_";
    columns.push_back({stem + "absolute_error", [field = field](const SummaryErrors& errors) {
                         return Cell::of((errors.*field).absolute);
                       }});
    columns.push_back({stem + "relative_error", [field = field](const SummaryErrors& errors) {
                         return Cell::of((errors.*field).relative);
                       }});
  }
  append_part(
      columns, [](const JudgedRow& row) { return row.row.summary ? &*row.row.summary : nullptr; },
      all);
}

void append_verdict_columns(Columns<JudgedRow>* all) {
  append_part<RowVerdict>(
      {{"err_in", cell_of(&RowVerdict::err_in)},
       {"err_out", cell_of(&RowVerdict::err_out)},
       {"err_own", cell_of(&RowVerdict::err_own)},
       {"own_source",
        [](const RowVerdict& row) { return Cell::of(locate::own_source_name(row.own_source)); }},
       {"noise_floor", cell_of(&RowVerdict::noise_floor)},
       {"amplification", cell_of(&RowVerdict::amplification)},
       {"verdict",
        [](const RowVerdict& row) { return Cell::of(locate::judgement_name(row.verdict)); }},
       {"verdict_confidence", cell_of(&RowVerdict::confidence)}},
      [](const JudgedRow& row) { return row.verdict; }, all);
}

Columns<JudgedRow> every_column() {
  Columns<JudgedRow> all;
  append_row_columns(&all);
  append_side_columns(&all);
  append_metric_columns(&all);
  append_statistics_columns(&all);
  append_verdict_columns(&all);
  return all;
}

Column<JudgedRow> algorithm_column(const std::string& name, size_t place) {
  return {name, [place](const JudgedRow& row) {
            const auto& values = row.row.custom;
            return place < values.size() ? Cell::of(values[place].value) : Cell{};
          }};
}

}  // namespace

Columns<JudgedRow> columns_of(const compare::Comparison& comparison, const Style& style,
                              bool with_verdicts) {
  Columns<JudgedRow> known =
      style.own_columns != nullptr ? style.own_columns() : Columns<JudgedRow>{};
  std::ranges::move(every_column(), std::back_inserter(known));
  Columns<JudgedRow> columns;
  const auto append = [&](std::string_view names) {
    for (const std::string_view name : split(names, ' ')) {
      if (name == kAlgorithms) {
        for (size_t i = 0; i < comparison.algorithms.size(); ++i)
          columns.push_back(algorithm_column(comparison.algorithms[i], i));
      } else if (!name.empty()) {
        const auto found = std::ranges::find(known, name, &Column<JudgedRow>::name);
        ASSAY_CHECK(found != known.end(), "a style names columns that there are");
        columns.push_back(*found);
      }
    }
  };
  append(comparison.weights      ? style.weights
         : comparison.statistics ? style.statistics
                                 : style.tensors);
  append(comparison.weights      ? style.more_weights
         : comparison.statistics ? style.more_statistics
                                 : style.more_tensors);
  if (with_verdicts && !comparison.weights) append(style.verdict);
  return columns;
}

}  // namespace assay::report
