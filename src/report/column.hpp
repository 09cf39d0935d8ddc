// SPDX-License-Identifier: Apache-2.0
// Columns: the one place where a table's header and its cells come from, whatever
// the format of the file.
#pragma once
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/cell.hpp"

namespace assay::report {

/// The name of a column in every format, and the cell that a row has in it.
template <typename Row>
struct Column {
  std::string name;
  std::function<Cell(const Row&)> cell;
};

template <typename Row>
using Columns = std::vector<Column<Row>>;

template <typename Row>
[[nodiscard]] std::vector<std::string> names_of(const Columns<Row>& columns) {
  std::vector<std::string> names;
  for (const Column<Row>& column : columns) names.push_back(column.name);
  return names;
}

template <typename Row>
[[nodiscard]] Cells cells_of(const Columns<Row>& columns, const Row& row) {
  Cells cells;
  cells.reserve(columns.size());
  for (const Column<Row>& column : columns) cells.push_back(column.cell(row));
  return cells;
}

/// The cell of what `value`, a member or a function, says of a part of the row; empty where there
/// is no such part.
template <typename Row, typename Part, typename Value>
[[nodiscard]] auto of(const Part* (*part_of)(const Row&), Value value) {
  return [part_of, value](const Row& row) {
    const Part* part = part_of(row);
    return part != nullptr ? Cell::of(std::invoke(value, *part)) : Cell{};
  };
}

}  // namespace assay::report
