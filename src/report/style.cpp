// SPDX-License-Identifier: Apache-2.0
// Every column that a table of a comparison can have, by name, and the choice of a style among
// them.
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
using measure::PairNumbers;
using measure::Patterns;
using measure::SummaryErrors;

constexpr std::string_view kAlgorithms = "[algorithms]";

// The parts of a row; null: this row has none.
const Row* row_of(const JudgedRow& row) { return &row.row; }
const SideSummary* golden_of(const JudgedRow& row) { return &row.row.golden; }
const SideSummary* mine_of(const JudgedRow& row) { return &row.row.mine; }
const PairNumbers* metrics_of(const JudgedRow& row) {
  return row.row.metrics ? &*row.row.metrics : nullptr;
}
const Patterns* patterns_of(const JudgedRow& row) {
  static constexpr Patterns kNone;
  if (!row.row.metrics) return nullptr;
  return row.row.patterns ? &*row.row.patterns : &kNone;
}
const SummaryErrors* errors_of(const JudgedRow& row) {
  return row.row.summary ? &*row.row.summary : nullptr;
}
const RowVerdict* verdict_of(const JudgedRow& row) { return row.verdict; }

Cell token_cell(const Row& row) {
  return row.token_id == pair::kWarmupToken ? Cell::of("warmup") : Cell::of(row.token_id);
}
std::string_view rule_of(const Row& row) { return pair::rule_name(row.matched_by); }
std::string_view result_of(const Row& row) { return compare::outcome_name(row.outcome); }
Cell outside_cell(const Row& row) {
  return row.metrics ? Cell::of_index(row.outside_tolerance) : Cell{};
}
std::string_view source_of(const RowVerdict& row) {
  return locate::own_source_name(row.own_source);
}
// Not a bit differs: that is no noise.
std::string_view word_of(const JudgedRow& row) {
  if (row.verdict == nullptr) return "";
  const bool is_equal = row.row.identical && row.verdict->verdict == locate::RowJudgement::Noise;
  return is_equal ? "equal" : locate::judgement_name(row.verdict->verdict);
}

std::string path_of(const SideSummary& side) { return side.path.str(); }

void append_side(const std::string& name, const SideSummary* (*side)(const JudgedRow&),
                 Columns<JudgedRow>* all) {
  using S = SideSummary;
  const Columns<JudgedRow> columns = {
      {"data_path", of(side, path_of)},   {"op_type", of(side, &S::op_type)},
      {"dtype", of(side, &S::dtype)},     {"shape", of(side, &S::shape)},
      {"max_value", of(side, &S::max)},   {"min_value", of(side, &S::min)},
      {"mean_value", of(side, &S::mean)}, {"l2norm_value", of(side, &S::l2_norm)}};
  for (const Column<JudgedRow>& column : columns)
    all->push_back({name + "_" + column.name, column.cell});
}

// "nan_only_in_mine" is "nan_only_in_my" in a report.
std::string count_name(std::string name) {
  if (name.ends_with("_mine")) name.replace(name.size() - 4, 4, "my");
  return name;
}

Columns<JudgedRow> every_column() {
  using V = RowVerdict;
  Columns<JudgedRow> all = {
      {"token_id", of(row_of, token_cell)},
      {"data_id", of(row_of, &Row::data_id)},
      {"weight_name", of(row_of, &Row::label)},
      {"node", of(row_of, &Row::label)},
      {"rank", of(row_of, &Row::rank)},
      {"matched_by", of(row_of, rule_of)},
      {"confidence", of(row_of, &Row::confidence)},
      {"cmp_fail_reason", of(row_of, &Row::fail_reason)},
      {"note", of(row_of, &Row::note)},
      {"result", of(row_of, result_of)},
      {"exceeded", of(row_of, &Row::exceeded)},
      {"sqnr_db", of(row_of, &Row::sqnr_db)},
      {"quantisation", of(row_of, &Row::quantisation)},
      {"outside_tolerance", of(row_of, outside_cell)},
      {"kl_row_mean", of(metrics_of, &PairNumbers::kl_row_mean)},
      {"kl_row_max", of(metrics_of, &PairNumbers::kl_row_max)},
      {"err_in", of(verdict_of, &V::err_in)},
      {"err_out", of(verdict_of, &V::err_out)},
      {"err_own", of(verdict_of, &V::err_own)},
      {"own_source", of(verdict_of, source_of)},
      {"noise_floor", of(verdict_of, &V::noise_floor)},
      {"amplification", of(verdict_of, &V::amplification)},
      {"verdict", [](const JudgedRow& row) { return Cell::of(word_of(row)); }},
      {"verdict_confidence", of(verdict_of, &V::confidence)}};
  append_side("golden", golden_of, &all);
  append_side("my", mine_of, &all);
  for (const auto& [name, field] : measure::kMetricFields)
    all.push_back({name, of(metrics_of, field)});
  for (const auto& [name, field] : measure::kCountFields) {
    const auto cell = [field = field](const PairNumbers& metrics) {
      return Cell::of_index(metrics.*field);
    };
    all.push_back({name, of(metrics_of, cell)});
  }
  for (const auto& [name, field] : measure::kPatternFields)
    all.push_back({count_name(name), of(patterns_of, field)});
  for (const auto& [name, field] : measure::kSummaryFields) {
    const std::string stem = std::string(name) + "_stat_";
    all.push_back({stem + "absolute_error", of(errors_of, [field = field](const SummaryErrors& e) {
                     return (e.*field).absolute;
                   })});
    all.push_back({stem + "relative_error", of(errors_of, [field = field](const SummaryErrors& e) {
                     return (e.*field).relative;
                   })});
  }
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
