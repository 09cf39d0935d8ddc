// SPDX-License-Identifier: Apache-2.0
// The lists of operations and kernels that ran: separator '|', no quoting, one line a call.
// Columns and versions: docs/formats/op-csv.md
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace assay::formats {

/// CaseNum stops growing here; further rows carry this number.
inline constexpr uint64_t kMaxOpCsvCases = 10000;

/// One tensor of a call, as the list describes it.
struct OpCsvTensor {
  std::string dtype_text;  // "float16"
  std::string format;      // "nd"
  std::string shape;       // "1,4096"; "" for rank 0
  std::string file;        // where it was saved; "" when it was not
};

/// The header line, without line feed.
[[nodiscard]] std::string_view op_csv_header();

/// One row without line feed; line feeds inside the arguments become blanks. Empty when a cell
/// would be taken for a formula by a spreadsheet (starts with + = @ %, or with - and is no list of
/// numbers): the originals leave an empty line then, and so must the caller.
/// case_num   lines already in the file with the header counted: 1, 2, 3 ...
[[nodiscard]] std::string op_csv_row(uint64_t case_num, std::string_view op_name,
                                     std::string_view op_param, std::span<const OpCsvTensor> inputs,
                                     std::span<const OpCsvTensor> outputs);

struct OpCsvRow {
  uint64_t case_num = 0;  // 0 when the cell is no number
  std::string op_name;    // "LinearOperation_2_0"; a kernel's has no ids
  std::string op_param;   // JSON of an operation, any text of a kernel
  std::vector<OpCsvTensor> inputs;
  std::vector<OpCsvTensor> outputs;
};

struct OpCsv {
  std::vector<OpCsvRow> rows;  // in file order
  uint64_t damaged_lines = 0;  // not empty, but without the 21 cells; left out
};

/// Reads all versions: file columns may be blank, lines may be empty, the last one may be cut off.
/// Never fails: what cannot be used is counted.
[[nodiscard]] OpCsv read_op_csv(std::string_view text);

}  // namespace assay::formats
