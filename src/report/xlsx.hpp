// SPDX-License-Identifier: Apache-2.0
// Workbooks in SpreadsheetML, the parts that a table needs: sheets, texts, numbers, a frozen bold
// header row, column widths, filter buttons.   source: ECMA-376 part 1, chapters 12 and 18
#pragma once
#include <span>
#include <string>

#include "base/result.hpp"
#include "report/table.hpp"

namespace assay::report {

/// Most rows that a sheet may have, its header included; a longer table goes on in "name (2)".
inline constexpr size_t kMaxSheetRows = 1048576;

/// The bytes of the .xlsx file. Numbers are numbers; infinities are the texts "inf" and "-inf";
/// texts are never formulas. A cell is cut at 32767 characters, the limit of spreadsheets.
/// max_sheet_rows    for tests
[[nodiscard]] Result<std::string> xlsx_bytes(std::span<const Table> tables,
                                             size_t max_sheet_rows = kMaxSheetRows);

}  // namespace assay::report
