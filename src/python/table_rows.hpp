// SPDX-License-Identifier: Apache-2.0
// Rows of a report as dictionaries: keys are the columns, empty cells None.
#pragma once
#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "python/module.hpp"
#include "report/table.hpp"

namespace assay::python {

inline nanobind::object cell_object(const report::Cell& cell) {
  switch (cell.kind) {
    case report::Cell::Kind::Empty:
      break;
    case report::Cell::Kind::Integer:
      return nanobind::int_(cell.integer);
    case report::Cell::Kind::Number:
      return nanobind::float_(cell.number);
    case report::Cell::Kind::Text:
      return to_str(cell.text);
  }
  return nanobind::none();
}

inline nanobind::dict row_dict(const std::vector<std::string>& columns,
                               const std::vector<report::Cell>& cells) {
  nanobind::dict row;
  for (size_t i = 0; i < cells.size(); ++i)
    row[nanobind::str(columns[i].c_str())] = cell_object(cells[i]);
  return row;
}

inline nanobind::list table_rows(const report::Table& table, bool with_level) {
  nanobind::list rows;
  for (size_t i = 0; i < table.rows.size(); ++i) {
    nanobind::dict row = row_dict(table.columns, table.rows[i]);
    if (with_level) row["level"] = nanobind::str(table.name.c_str());
    rows.append(row);
  }
  return rows;
}

}  // namespace assay::python
