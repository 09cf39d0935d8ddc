// SPDX-License-Identifier: Apache-2.0
// The cells of a row are made when the row is written, so that no table of millions of rows is
// held. A few threads make texts of blocks of rows, which are written in order.
#include "report/table.hpp"

#include <algorithm>
#include <memory>

#include "base/result.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "formats/csv.hpp"

namespace assay::report {

bool is_listed(const compare::Comparison& comparison, const compare::Row& row,
               const TableOptions& options) {
  const bool keep_filtered = options.keep_filtered && !comparison.weights;
  const bool drop_failed = options.style.to_the_letter && comparison.statistics;
  return !(row.filtered && !keep_filtered) && !(drop_failed && !row.fail_reason.empty());
}

Cells TableRows::operator[](size_t row) const { return make_ ? make_(row) : kept_[row]; }

void TableRows::push_back(Cells cells) {
  ASSAY_CHECK(!make_, "rows are kept, or all of them are made");
  kept_.push_back(std::move(cells));
  size_ = kept_.size();
}

void TableRows::change(const std::function<void(Cells* cells)>& change) {
  for (Cells& cells : kept_) change(&cells);
  if (!make_) return;
  make_ = [make = std::move(make_), change](size_t row) {
    Cells cells = make(row);
    change(&cells);
    return cells;
  };
}

Table build_table(const compare::Comparison& comparison, const compare::Sheet& sheet,
                  const TableOptions& options) {
  auto columns = std::make_shared<const Columns<JudgedRow>>(
      columns_of(comparison, options.style, options.verdicts != nullptr));
  // Most tables list every row of their sheet.
  auto listed = std::make_shared<std::vector<uint32_t>>();
  const auto is_row = [&](size_t i) { return is_listed(comparison, sheet.rows[i], options); };
  size_t count = 0;
  while (count < sheet.rows.size() && is_row(count)) ++count;
  const bool lists_all = count == sheet.rows.size();
  for (size_t i = 0; !lists_all && i < sheet.rows.size(); ++i) {
    if (is_row(i)) listed->push_back(static_cast<uint32_t>(i));
  }
  return {sheet.name, names_of(*columns),
          TableRows(lists_all ? count : listed->size(), [columns, listed, lists_all, &sheet,
                                                         verdicts = options.verdicts](size_t row) {
            const size_t i = lists_all ? row : (*listed)[row];
            return cells_of(*columns, {sheet.rows[i], verdicts ? &(*verdicts)[i] : nullptr});
          })};
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

namespace {

// So many rows become one text, by one thread.
constexpr size_t kRowsTogether = 256;

/// Texts of the rows of a table, in their order; a few threads make some of them at a time.
Status write_rows(const TableRows& rows, const ByteSink& sink,
                  const std::function<void(const Cells& cells, std::string* out)>& append) {
  if (rows.size() <= kRowsTogether) {
    std::string text;
    for (size_t row = 0; row < rows.size(); ++row) append(rows[row], &text);
    return text.empty() ? Status() : sink(as_bytes(text));
  }
  const unsigned jobs = resolve_job_count(0);
  const size_t chunks = (rows.size() + kRowsTogether - 1) / kRowsTogether;
  std::vector<std::string> texts(std::min<size_t>(chunks, size_t{4} * jobs));
  for (size_t first = 0; first < chunks; first += texts.size()) {
    const size_t count = std::min(texts.size(), chunks - first);
    parallel_for(count, jobs, [&](size_t i) {
      const size_t begin = (first + i) * kRowsTogether;
      texts[i].clear();
      for (size_t row = begin; row < std::min(rows.size(), begin + kRowsTogether); ++row)
        append(rows[row], &texts[i]);
    });
    for (size_t i = 0; i < count; ++i) ASSAY_TRY_STATUS(sink(as_bytes(texts[i])));
  }
  return {};
}

/// The text of what is written to a sink.
template <typename Write>
std::string text_of(Write write) {
  std::string out;
  const Status status = write([&](ByteSpan bytes) -> Status {
    out += as_text(bytes);
    return {};
  });
  ASSAY_CHECK(status, "a text takes everything");
  return out;
}

}  // namespace

std::string csv_text(const Table& table, bool defuse) {
  return text_of([&](const ByteSink& sink) { return write_csv({&table, 1}, defuse, sink); });
}

Status write_csv(std::span<const Table> tables, bool defuse, const ByteSink& sink) {
  const formats::CsvOptions options{.line_end = "\n", .defuse_formulas = defuse};
  std::string header;
  formats::append_csv_row(tables.empty() ? std::vector<std::string>{} : tables.front().columns,
                          options, &header);
  ASSAY_TRY_STATUS(sink(as_bytes(header)));
  for (const Table& table : tables) {
    ASSAY_TRY_STATUS(write_rows(table.rows, sink, [&](const Cells& cells, std::string* out) {
      std::vector<std::string> texts;
      texts.reserve(cells.size());
      for (const Cell& cell : cells) texts.push_back(cell.csv_text());
      formats::append_csv_row(texts, options, out);
    }));
  }
  return {};
}

std::string jsonl_text(const Table& table, bool with_name) {
  return text_of([&](const ByteSink& sink) { return write_jsonl(table, with_name, sink); });
}

Status write_jsonl(const Table& table, bool with_name, const ByteSink& sink) {
  const std::string name = "\"level\": " + json_quote(table.name);
  std::vector<std::string> keys;
  for (const std::string& column : table.columns) keys.push_back(json_quote(column) + ": ");
  return write_rows(table.rows, sink, [&](const Cells& cells, std::string* to) {
    std::string& out = *to;
    out += '{';
    if (with_name) out += name;
    for (size_t i = 0; i < cells.size(); ++i) {
      if (i > 0 || with_name) out += ", ";
      out += keys[i];
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
  });
}

}  // namespace assay::report
