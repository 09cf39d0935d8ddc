// SPDX-License-Identifier: Apache-2.0
// Tables of a comparison, and their csv and JSON lines.   docs/commands/compare.md
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compare/compare.hpp"
#include "report/cell.hpp"
#include "report/judged_rows.hpp"
#include "report/style.hpp"

namespace assay::report {

/// A click on a cell leads to the row of a table of the same workbook.
struct Link {
  size_t row = 0, column = 0;         // of the cell
  size_t table = 0;                   // place in the workbook
  std::optional<size_t> target = {};  // its row; none: the top of its sheet
};

struct Table {
  std::string name;  // of the sheet
  std::vector<std::string> columns;
  std::vector<Cells> rows;
  // Of workbooks only:
  Cell title = {};  // a sentence above the header; may be empty
  std::vector<Link> links = {};
};

struct TableOptions {
  const Style& style = kOurStyle;
  bool keep_filtered = false;  // also the rows that a csv leaves out
  /// Of the sheet's rows, for the columns of --verdict; null: without them.
  const std::vector<RowVerdict>* verdicts = nullptr;
};

/// Whether a table has this row of its sheet.
[[nodiscard]] bool is_listed(const compare::Comparison& comparison, const compare::Row& row,
                             const TableOptions& options = {});

/// One row a compared pair or weight, in execution order.
[[nodiscard]] Table build_table(const compare::Comparison& comparison, const compare::Sheet& sheet,
                                const TableOptions& options = {});

/// side, token_id, path, op_type, reason of every tensor that has no partner.
[[nodiscard]] Table build_unmatched_table(const compare::Sheet& sheet, const run::Run& golden,
                                          const run::Run& mine);

/// The csv file of a table. `defuse`: cells that a spreadsheet would run are marked as text.
[[nodiscard]] std::string csv_text(const Table& table, bool defuse);
/// One JSON object a line, keys as the columns; empty cells are null.
/// with_name   also the key "level", the table's name
[[nodiscard]] std::string jsonl_text(const Table& table, bool with_name = true);

}  // namespace assay::report
