// SPDX-License-Identifier: Apache-2.0
#include "report/operator_rows.hpp"

#include "base/text.hpp"
#include "report/cells.hpp"
#include "report/opcheck_table.hpp"

namespace assay::report {
namespace {

constexpr size_t kMeasureColumns = 8;  // from z to checked

void append_rounding(const opcheck::RoundingMeasures& measures, Cells* cells) {
  if (!measures.judged) {
    cells->resize(cells->size() + kMeasureColumns);
    return;
  }
  for (const double value : {measures.z, measures.e, measures.worst_ulp, measures.allowed_ulp,
                             measures.relative_l2, measures.noise_floor})
    cells->push_back(Cell::of(value));
  cells->push_back(measures.worst_index.empty()
                       ? Cell{}
                       : Cell::of(list_text(std::span<const int64_t>(measures.worst_index))));
  cells->push_back(Cell::of(std::string(measures.extent)));
}

}  // namespace

std::vector<std::string> operator_columns() {
  return {"rank",        "step",        "module",      "module_call", "operator",
          "node",        "output",      "result",      "reason",      "dtype",
          "shape",       "z",           "e",           "worst_ulp",   "allowed_ulp",
          "relative_l2", "noise_floor", "worst_index", "checked",     "tensor_path"};
}

std::vector<std::vector<Cell>> operator_rows(const opcheck::CaseResult& result) {
  const opcheck::CaseDescription& one = result.description;
  std::vector<Cells> rows;
  for (const opcheck::OutputRow& row : result.rows) {
    const opcheck::RoundingMeasures measures = row.rounding.value_or(opcheck::RoundingMeasures{});
    Cells cells = {Cell::of(int64_t{one.rank}),
                   Cell::of(one.step),
                   Cell::of(measures.module),
                   Cell::of(int64_t{measures.call}),
                   Cell::of(one.op_type),
                   Cell::of(one.node),
                   Cell::of(static_cast<int64_t>(row.index)),
                   Cell::of(std::string(opcheck::outcome_name(row.outcome))),
                   Cell::of(row.reason),
                   Cell::of(row.dtype),
                   Cell::of(row.dtype.empty() ? "" : list_text(row.shape.span()))};
    append_rounding(measures, &cells);
    cells.push_back(Cell::of(row.file));
    rows.push_back(std::move(cells));
  }
  return rows;
}

}  // namespace assay::report
