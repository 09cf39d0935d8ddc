// SPDX-License-Identifier: Apache-2.0
// A table as a page holds it: column by column, each in the smallest form that its cells allow.
//   docs/formats/page.md, "Tables"
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "report/column.hpp"
#include "report/html/page.hpp"
#include "report/table.hpp"

namespace assay::report::html {

/// A column of the rows 0, 1 ... `cell` is called from several threads.
struct PageColumn {
  std::string name;
  std::function<Cell(size_t row)> cell;
};

/// Columns of rows that are made when they are asked for.
/// row_at   of a row's number; its results need not live longer than the call
template <typename Row, typename RowAt>
[[nodiscard]] std::vector<PageColumn> page_columns(const Columns<Row>& columns, RowAt row_at) {
  std::vector<PageColumn> made;
  for (const Column<Row>& column : columns) {
    made.push_back(
        {column.name, [cell = column.cell, row_at](size_t row) { return cell(row_at(row)); }});
  }
  return made;
}

/// Adds a blob for each column that is not constant. One column at a time (one a core) is in
/// memory as cells.
/// prefix    of the names of these blobs
/// returns   {"rows": N, "columns": [{"name", "form", ...}, ...]}
[[nodiscard]] Json add_table(size_t rows, const std::vector<PageColumn>& columns,
                             const std::string& prefix, std::vector<Blob>* blobs);
[[nodiscard]] Json add_table(const std::vector<std::string>& names, const std::vector<Cells>& rows,
                             const std::string& prefix, std::vector<Blob>* blobs);

}  // namespace assay::report::html
