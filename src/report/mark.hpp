// SPDX-License-Identifier: Apache-2.0
// Which cells of a workbook are red and which amber, for every table.
#pragma once
#include "report/table.hpp"

namespace assay::report {

/// Marks the cells of columns that judge, by the column's name: red what is wrong, amber what could
/// not be judged or is worth a look. Cells that have a mark keep it.
void mark_cells(Table* table);

}  // namespace assay::report
