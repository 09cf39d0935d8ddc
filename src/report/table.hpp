// SPDX-License-Identifier: Apache-2.0
// The columns of a comparison report, in the original's order, ours to the right.
// docs/commands/compare.md
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "compare/compare.hpp"
#include "report/judged_rows.hpp"

namespace assay::report {

/// One value of a table. Number cells that are NaN are empty cells, as pandas writes them.
struct Cell {
  enum class Kind : uint8_t { Empty, Integer, Number, Text };
  Kind kind = Kind::Empty;
  int64_t integer = 0;
  double number = 0;
  std::string text;

  [[nodiscard]] static Cell of(int64_t value);
  [[nodiscard]] static Cell of(double value);
  [[nodiscard]] static Cell of(std::string value);  // empty text gives an empty cell
  /// As pandas prints it: shortest digits, "inf", "" for an empty cell.
  [[nodiscard]] std::string csv_text() const;
};

struct Table {
  std::string name;  // of the sheet
  std::vector<std::string> columns;
  std::vector<std::vector<Cell>> rows;
};

/// One row a compared pair, in execution order.
///
/// keep_filtered    also the rows the original's csv leaves out (its workbook kept them)
/// verdicts         of the sheet's rows, for the columns of --verdict; null: without them
[[nodiscard]] Table build_table(const compare::Comparison& comparison, const compare::Sheet& sheet,
                                bool keep_filtered,
                                const std::vector<RowVerdict>* verdicts = nullptr);

/// side, token_id, path, op_type, reason of every tensor that has no partner.
[[nodiscard]] Table build_unmatched_table(const compare::Sheet& sheet, const run::Run& golden,
                                          const run::Run& mine);

/// The csv file of a table. `defuse`: cells that a spreadsheet would run are marked as text.
[[nodiscard]] std::string csv_text(const Table& table, bool defuse);
/// One JSON object a line, keys as the columns; empty cells are null.
/// with_name   also the key "level", the table's name
[[nodiscard]] std::string jsonl_text(const Table& table, bool with_name = true);

}  // namespace assay::report
