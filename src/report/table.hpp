// SPDX-License-Identifier: Apache-2.0
// Tables of a comparison, and their csv and JSON lines.   docs/commands/compare.md
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.hpp"
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

/// Rows of a table: kept, or made each time they are read, so that a table of a million rows takes
/// no room. Reading is safe from several threads.
class TableRows {
 public:
  TableRows() = default;
  TableRows(std::initializer_list<Cells> kept) : kept_(kept), size_(kept_.size()) {}
  TableRows(size_t size, std::function<Cells(size_t row)> make)
      : size_(size), make_(std::move(make)) {}

  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }
  [[nodiscard]] Cells operator[](size_t row) const;
  /// Of rows that are kept.
  void push_back(Cells cells);
  /// Every row that is read goes through `change` from now on.
  void change(const std::function<void(Cells* cells)>& change);

 private:
  std::vector<Cells> kept_;
  size_t size_ = 0;
  std::function<Cells(size_t row)> make_;
};

struct Table {
  std::string name;  // of the sheet
  std::vector<std::string> columns;
  TableRows rows;
  // Of workbooks only:
  Cell title = {};  // a sentence above the header; may be empty
  std::vector<Link> links = {};
};

struct TableOptions {
  const Style& style = kOurStyle;
  bool keep_filtered = false;  // also the rows that a csv leaves out
  /// Of the sheet's rows, for the columns of --verdict; null: without them.
  std::shared_ptr<const std::vector<RowVerdict>> verdicts = nullptr;
};

/// Whether a table has this row of its sheet.
[[nodiscard]] bool is_listed(const compare::Comparison& comparison, const compare::Row& row,
                             const TableOptions& options = {});

/// One row a compared pair or weight, in execution order. Comparison and sheet outlive
/// the table.
[[nodiscard]] Table build_table(const compare::Comparison& comparison, const compare::Sheet& sheet,
                                const TableOptions& options = {});

/// side, token_id, path, op_type, reason of every tensor that has no partner.
[[nodiscard]] Table build_unmatched_table(const compare::Sheet& sheet, const run::Run& golden,
                                          const run::Run& mine);

/// The csv file of a table. `defuse`: cells that a spreadsheet would run are marked as text.
[[nodiscard]] std::string csv_text(const Table& table, bool defuse);
/// The same, of tables of the same columns one below the other; texts are made and handed on piece
/// by piece, by all cores.
/// errors   of `sink`
[[nodiscard]] Status write_csv(std::span<const Table> tables, bool defuse, const ByteSink& sink);
/// One JSON object a line, keys as the columns; empty cells are null.
/// with_name   also the key "level", the table's name
[[nodiscard]] std::string jsonl_text(const Table& table, bool with_name = true);
[[nodiscard]] Status write_jsonl(const Table& table, bool with_name, const ByteSink& sink);

}  // namespace assay::report
