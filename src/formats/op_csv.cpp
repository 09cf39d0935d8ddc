// SPDX-License-Identifier: Apache-2.0
// Cells between '|' without quotes, one line a call; of several tensors the parts stand between
// ';':
//
//   CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|...
//   1|LinearOperation_2_01|LinearOperation_2_0|{"hasBias":false}|2|float16;float16|nd;nd|1,4096;4096,4096|1|...
//
// A kernel's OpParam may hold '|' itself: what is too much on a line belongs to it.
#include "formats/op_csv.hpp"

#include <algorithm>

#include "base/numbers.hpp"
#include "base/text.hpp"

namespace assay::formats {
namespace {

constexpr std::string_view kHeader =
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError";
constexpr char kSeparator = '|';
constexpr char kTensorSeparator = ';';

// Positions of the cells in a line.
enum Column : size_t {
  kCaseNum = 0,
  kOpName = 2,
  kOpParam = 3,
  kInNum = 4,
  kOutNum = 8,
  kInTensorFile = 14,
  kOutTensorFile = 15,
  kColumnCount = 21,
};

/// The guard of the originals against cells that a spreadsheet runs.
bool is_safe_cell(std::string_view cell) {
  if (cell.empty()) return true;
  if (std::string_view("+=@%").find(cell[0]) != std::string_view::npos) return false;
  // A list of numbers may begin with a minus: every character of it lies in , - . / 0-9 : ;
  return cell[0] != '-' ||
         std::all_of(cell.begin(), cell.end(), [](char c) { return c >= ',' && c <= ';'; });
}

/// A line feed in a kernel's parameter text would cut the row in two.
std::string on_one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r' || c == '\0'; }, ' ');
  return line;
}

template <typename Part>
std::string joined(std::span<const OpCsvTensor> tensors, Part part) {
  std::string text;
  for (const OpCsvTensor& tensor : tensors) {
    if (&tensor != tensors.data()) text += kTensorSeparator;
    text += part(tensor);
  }
  return on_one_line(text);
}

/// The cells of a line without their blanks. A parameter text may itself hold separators; what is
/// too much belongs to it. Nothing when the line has too few cells.
std::optional<std::vector<std::string>> cells_of(std::string_view line) {
  const std::vector<std::string_view> parts = split(line, kSeparator);
  if (parts.size() < kColumnCount) return std::nullopt;
  const size_t surplus = parts.size() - kColumnCount;
  std::vector<std::string> cells;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > kOpParam && i <= kOpParam + surplus) {
      cells.back().append(1, kSeparator).append(parts[i]);
    } else {
      cells.emplace_back(parts[i] == " " ? std::string_view() : parts[i]);
    }
  }
  return cells;
}

std::vector<OpCsvTensor> tensors_of(const std::vector<std::string>& cells, Column first,
                                    Column files) {
  const std::vector<std::string_view> dtypes = split(cells[first + 1], kTensorSeparator);
  const std::vector<std::string_view> formats = split(cells[first + 2], kTensorSeparator);
  const std::vector<std::string_view> shapes = split(cells[first + 3], kTensorSeparator);
  const std::vector<std::string_view> paths = split(cells[files], kTensorSeparator);
  const size_t listed = std::max({dtypes.size(), formats.size(), shapes.size()});
  // An empty cell is no tensor or one of rank 0: the count decides. A count beyond the lists is
  // wrong.
  const size_t count =
      std::min<uint64_t>(parse_number<uint64_t>(cells[first]).value_or(listed), listed);
  const auto at = [](const std::vector<std::string_view>& parts, size_t i) {
    return std::string(i < parts.size() ? parts[i] : std::string_view());
  };
  std::vector<OpCsvTensor> tensors;
  for (size_t i = 0; i < count; ++i)
    tensors.push_back({at(dtypes, i), at(formats, i), at(shapes, i), at(paths, i)});
  return tensors;
}

}  // namespace

std::string_view op_csv_header() { return kHeader; }

std::string op_csv_row(uint64_t case_num, std::string_view op_name, std::string_view op_param,
                       std::span<const OpCsvTensor> inputs, std::span<const OpCsvTensor> outputs) {
  const std::string number = std::to_string(std::min(case_num, kMaxOpCsvCases));
  const auto dtype = [](const OpCsvTensor& tensor) { return tensor.dtype_text; };
  const auto format = [](const OpCsvTensor& tensor) { return tensor.format; };
  const auto shape = [](const OpCsvTensor& tensor) { return tensor.shape; };
  const auto file = [](const OpCsvTensor& tensor) { return tensor.file; };
  const auto customize = [](const OpCsvTensor&) { return std::string("customize"); };
  const std::string name = on_one_line(op_name);
  const std::string cells[kColumnCount] = {number,
                                           name + number,
                                           name,
                                           on_one_line(op_param),
                                           std::to_string(inputs.size()),
                                           joined(inputs, dtype),
                                           joined(inputs, format),
                                           joined(inputs, shape),
                                           std::to_string(outputs.size()),
                                           joined(outputs, dtype),
                                           joined(outputs, format),
                                           joined(outputs, shape),
                                           joined(inputs, customize),
                                           " ",
                                           joined(inputs, file),
                                           joined(outputs, file),
                                           " ",
                                           " ",
                                           " ",
                                           " ",
                                           "NO_ERROR"};
  if (!std::all_of(std::begin(cells), std::end(cells), is_safe_cell)) return {};
  std::string row;
  for (const std::string& cell : cells) {
    if (&cell != cells) row += kSeparator;
    row += cell;
  }
  return row;
}

OpCsv read_op_csv(std::string_view text) {
  OpCsv table;
  for (std::string_view line : split(text, '\n')) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty() || line == kHeader) continue;
    const std::optional<std::vector<std::string>> cells = cells_of(line);
    if (!cells) {
      ++table.damaged_lines;
      continue;
    }
    OpCsvRow row;
    row.case_num = parse_number<uint64_t>((*cells)[kCaseNum]).value_or(0);
    row.op_name = (*cells)[kOpName];
    row.op_param = (*cells)[kOpParam];
    row.inputs = tensors_of(*cells, kInNum, kInTensorFile);
    row.outputs = tensors_of(*cells, kOutNum, kOutTensorFile);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace assay::formats
