// SPDX-License-Identifier: Apache-2.0
#include "report/cells.hpp"

namespace assay::report {
namespace {

Cell algorithm_cell(const compare::AlgorithmValue& value) {
  if (const auto* number = std::get_if<double>(&value.value)) return Cell::of(*number);
  if (const auto* integer = std::get_if<int64_t>(&value.value)) return Cell::of(*integer);
  if (const auto* text = std::get_if<std::string>(&value.value)) return Cell::of(*text);
  return {};
}

}  // namespace

void append_metrics(const compare::Row& row, Cells* cells) {
  const measure::PairMetrics m = row.metrics.value_or(measure::PairMetrics{});
  for (const measure::MetricField& metric : measure::kMsitMetrics)
    cells->push_back(Cell::of(m.*metric.value));
}

void append_algorithms(const compare::Comparison& comparison, const compare::Row& row,
                       Cells* cells) {
  for (size_t i = 0; i < comparison.algorithms.size(); ++i)
    cells->push_back(i < row.custom.size() ? algorithm_cell(row.custom[i]) : Cell{});
}

Cell index_cell(int64_t value) { return value < 0 ? Cell{} : Cell::of(value); }

}  // namespace assay::report
