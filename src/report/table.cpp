// SPDX-License-Identifier: Apache-2.0
#include "report/table.hpp"

#include "base/text.hpp"
#include "formats/csv.hpp"

namespace assay::report {

bool is_listed(const compare::Comparison& comparison, const compare::Row& row,
               const TableOptions& options) {
  const bool keep_filtered = options.keep_filtered && !comparison.weights;
  const bool drop_failed = options.style.to_the_letter && comparison.statistics;
  return !(row.filtered && !keep_filtered) && !(drop_failed && !row.fail_reason.empty());
}

Table build_table(const compare::Comparison& comparison, const compare::Sheet& sheet,
                  const TableOptions& options) {
  const Columns<JudgedRow> columns =
      columns_of(comparison, options.style, options.verdicts != nullptr);
  Table table{sheet.name, names_of(columns), {}};
  for (size_t i = 0; i < sheet.rows.size(); ++i) {
    const compare::Row& row = sheet.rows[i];
    if (!is_listed(comparison, row, options)) continue;
    const RowVerdict* verdict = options.verdicts != nullptr ? &(*options.verdicts)[i] : nullptr;
    table.rows.push_back(cells_of(columns, {row, verdict}));
  }
  return table;
}

Table build_unmatched_table(const compare::Sheet& sheet, const run::Run& golden,
                            const run::Run& mine) {
  Table table;
  table.name = "unmatched";
  table.columns = {"side", "token_id", "path", "op_type", "reason"};
  for (const pair::UnmatchedRecord& entry : sheet.matching.unmatched) {
    const bool is_golden = entry.side == pair::Side::Golden;
    const run::TensorRecord& record = (is_golden ? golden : mine).records[entry.record];
    table.rows.push_back({Cell::of(is_golden ? "golden" : "my"), Cell::of(record.step),
                          Cell::of(compare::record_path(record)), Cell::of(record.op_type),
                          Cell::of(entry.reason)});
  }
  return table;
}

std::string csv_text(const Table& table, bool defuse) {
  const formats::CsvOptions options{.line_end = "\n", .defuse_formulas = defuse};
  std::string out;
  formats::append_csv_row(table.columns, options, &out);
  std::vector<std::string> texts;
  for (const Cells& cells : table.rows) {
    texts.clear();
    for (const Cell& cell : cells) texts.push_back(cell.csv_text());
    formats::append_csv_row(texts, options, &out);
  }
  return out;
}

std::string jsonl_text(const Table& table, bool with_name) {
  std::string out;
  for (const Cells& cells : table.rows) {
    out += with_name ? "{\"level\": " + json_quote(table.name) : "{";
    for (size_t i = 0; i < cells.size(); ++i) {
      out += (i == 0 && !with_name ? "" : ", ") + json_quote(table.columns[i]) + ": ";
      switch (cells[i].kind) {
        case Cell::Kind::Empty:
          out += "null";
          break;
        case Cell::Kind::Integer:
          out += std::to_string(cells[i].integer);
          break;
        case Cell::Kind::Number:
          out += json_number(cells[i].number);
          break;
        case Cell::Kind::Text:
          out += json_quote(cells[i].text);
          break;
      }
    }
    out += "}\n";
  }
  return out;
}

}  // namespace assay::report
