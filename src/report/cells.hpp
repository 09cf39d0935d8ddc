// SPDX-License-Identifier: Apache-2.0
// Cells that several tables have.
#pragma once
#include <vector>

#include "report/table.hpp"

namespace assay::report {

using Cells = std::vector<Cell>;

/// The seven metrics of msit 8.2; empty cells without metrics.
void append_metrics(const compare::Row& row, Cells* cells);
/// One cell for each algorithm of the user; empty where it has no value.
void append_algorithms(const compare::Comparison& comparison, const compare::Row& row,
                       Cells* cells);
/// A count or an index; empty for -1, which stands for none.
[[nodiscard]] Cell index_cell(int64_t value);

}  // namespace assay::report
