// SPDX-License-Identifier: Apache-2.0
// Rows of a report as dictionaries: keys are the columns, empty cells None.
#pragma once
#include <string>
#include <vector>

#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "report/table.hpp"

namespace assay::python {

inline binding::Object cell_object(const report::Cell& cell) {
  switch (cell.kind) {
    case report::Cell::Kind::Empty:
      break;
    case report::Cell::Kind::Integer:
      return binding::cast(cell.integer);
    case report::Cell::Kind::Number:
      return binding::cast(cell.number);
    case report::Cell::Kind::Text:
      return to_str(cell.text);
  }
  return binding::none();
}

inline binding::Dict row_dict(const std::vector<std::string>& columns,
                              const std::vector<report::Cell>& cells) {
  binding::Dict row;
  for (size_t i = 0; i < cells.size(); ++i)
    row[binding::Str(columns[i].c_str())] = cell_object(cells[i]);
  return row;
}

inline binding::List table_rows(const report::Table& table, bool with_level) {
  binding::List rows;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    binding::Dict row = row_dict(table.columns, table.rows[i]);
    if (with_level) row["level"] = binding::Str(table.name.c_str());
    rows.append(row);
  }
  return rows;
}

}  // namespace assay::python
