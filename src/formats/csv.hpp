// SPDX-License-Identifier: Apache-2.0
// Comma-separated values: RFC 4180 as Python's csv module writes it, and a reader that accepts what
// it meets. Details: docs/formats/csv.md
#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay::formats {

struct CsvOptions {
  std::string_view line_end = "\r\n";  // csv.writer's default; pandas writes "\n"
  char separator = ',';
  /// Puts ' before cells that a spreadsheet would run as a formula: those that start with = + - @
  /// tab or carriage return and are not numbers.
  bool defuse_formulas = false;
};

/// Appends one row. Quotes only where needed, as csv.writer with QUOTE_MINIMAL does: a separator, a
/// quote, a carriage return or a line feed in the cell; and the single cell of a row when it is
/// empty.
void append_csv_row(std::span<const std::string> cells, const CsvOptions& options,
                    std::string* out);
void append_csv_row(std::initializer_list<std::string_view> cells, const CsvOptions& options,
                    std::string* out);

/// True for text that reads as one decimal number, nan or inf: "-1.5e-3", "+2", "inf".
[[nodiscard]] bool is_csv_number(std::string_view cell);

struct CsvTable {
  std::vector<std::vector<std::string>> rows;  // ragged rows stay ragged
  /// The last cell opened a quote that never closed: the file was probably cut.
  bool unterminated_quote = false;
};

/// Accepts CR LF, LF and CR line ends, quoted cells with anything inside, doubled quotes, text
/// after a closing quote (kept), a UTF-8 byte order mark, a missing last line end. Empty lines give
/// no row.
[[nodiscard]] CsvTable read_csv(std::string_view text, char separator = ',');

}  // namespace assay::formats
