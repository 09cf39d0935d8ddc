// SPDX-License-Identifier: Apache-2.0
// Columns: the one place where a table's header and its cells come from, whatever the format of the file.
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

/// The cell of a member.
template <typename Row, typename Value>
[[nodiscard]] auto cell_of(Value Row::* member) {
  return [member](const Row& row) { return Cell::of(row.*member); };
}

/// The columns that hold for rows with a part (a side, metrics), as columns of the rows; the cell is empty where
/// `part_of` gives nullptr.
template <typename Part, typename Row, typename PartOf>
void append_part(const Columns<Part>& of_part, const PartOf& part_of, Columns<Row>* columns,
                 std::string_view prefix = "") {
  for (const Column<Part>& column : of_part) {
    columns->push_back(
        {std::string(prefix) + column.name, [cell = column.cell, part_of](const Row& row) {
           const Part* part = part_of(row);
           return part != nullptr ? cell(*part) : Cell{};
         }});
  }
}

}  // namespace assay::report
