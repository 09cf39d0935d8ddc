// SPDX-License-Identifier: Apache-2.0
// Workbooks in SpreadsheetML, the parts that a table needs: sheets, texts, numbers, a frozen bold
// header row, column widths, filter buttons, colours, links between cells.
//   source: ECMA-376 part 1, chapters 12 and 18
#pragma once
#include <span>
#include <string>

#include "base/result.hpp"
#include "report/table.hpp"

namespace assay::report {

/// Most rows that a sheet may have, its header included; a longer table goes on in "name (2)".
inline constexpr size_t kMaxSheetRows = 1048576;

struct WorkbookOptions {
  size_t opens_on = 0;  // the table whose sheet is seen first
  /// Values and a bold header only: no colours, formats of numbers, titles or links, and it opens
  /// on the first sheet.
  bool plain = false;
  size_t max_sheet_rows = kMaxSheetRows;  // for tests
};

/// The bytes of the .xlsx file. Numbers are numbers; infinities are the texts "inf" and "-inf";
/// texts are never formulas. Very small and very large numbers are shown in scientific notation;
/// what is stored are all digits. A cell is cut at 32767 characters, the limit of spreadsheets.
[[nodiscard]] Result<std::string> xlsx_bytes(std::span<const Table> tables,
                                             const WorkbookOptions& options = {});
/// The same, handed on as it is made; in memory is what one sheet takes in the file.
/// errors    of `sink`
[[nodiscard]] Status write_xlsx(std::span<const Table> tables, const WorkbookOptions& options,
                                const ByteSink& sink);

}  // namespace assay::report
