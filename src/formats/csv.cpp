// SPDX-License-Identifier: Apache-2.0
// Cells between separators, rows between line ends. In quotes a cell may hold both, and a quote is
// two of them:
//
//   plain,"a, b","says ""yes""",\n      plain | a, b | says "yes" |
//
// A byte order mark is skipped; line ends are LF, CR LF or CR; the text ends at a zero byte.
#include "formats/csv.hpp"

#include <charconv>

namespace assay::formats {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool starts_formula(std::string_view cell) {
  return !cell.empty() && std::string_view("=+-@\t\r").find(cell[0]) != std::string_view::npos &&
         !is_csv_number(cell);
}

/// One loop: the searches of std::string_view look at each character through a call.
bool needs_quotes(std::string_view cell, char separator) {
  bool needs = false;
  for (const char c : cell) needs |= (c == separator) | (c == '"') | (c == '\r') | (c == '\n');
  return needs;
}

void append_cell(std::string_view cell, bool alone, const CsvOptions& options, std::string* out) {
  const bool defused = options.defuse_formulas && starts_formula(cell);
  const bool quoted = (alone && cell.empty() && !defused) || needs_quotes(cell, options.separator);
  if (quoted) *out += '"';
  if (defused) *out += '\'';
  if (!quoted) {
    *out += cell;
    return;
  }
  for (const char c : cell) {
    if (c == '"') *out += '"';
    *out += c;
  }
  *out += '"';
}

template <typename Cells>
void append_row(const Cells& cells, const CsvOptions& options, std::string* out) {
  bool first = true;
  for (const auto& cell : cells) {
    if (!first) *out += options.separator;
    append_cell(cell, cells.size() == 1, options, out);
    first = false;
  }
  *out += options.line_end;
}

/// Cuts the text into cells; at() stands at the first character not yet consumed.
class Reader {
 public:
  Reader(std::string_view text, char separator) : text_(text), separator_(separator) {
    if (text_.starts_with(kByteOrderMark)) text_.remove_prefix(kByteOrderMark.size());
    text_ = text_.substr(0, text_.find('\0'));  // a hole in a file can have any size
  }

  CsvTable run() {
    while (at_ < text_.size()) {
      if (is_line_end(text_[at_])) {
        ++at_;  // an empty line, or the second half of CR LF
        continue;
      }
      table_.rows.push_back(row());
    }
    return std::move(table_);
  }

 private:
  [[nodiscard]] static bool is_line_end(char c) { return c == '\r' || c == '\n'; }
  [[nodiscard]] bool at_cell_end() const {
    return at_ == text_.size() || text_[at_] == separator_ || is_line_end(text_[at_]);
  }

  std::vector<std::string> row() {
    std::vector<std::string> cells;
    while (true) {
      cells.push_back(cell());
      if (at_ == text_.size() || is_line_end(text_[at_])) return cells;
      ++at_;  // the separator: another cell follows, even at the end of the text
    }
  }
  std::string cell() {
    std::string value;
    if (at_ < text_.size() && text_[at_] == '"') value = quoted();
    while (!at_cell_end()) value += text_[at_++];
    return value;
  }
  std::string quoted() {
    std::string value;
    ++at_;
    while (true) {
      const size_t quote = text_.find('"', at_);
      if (quote == std::string_view::npos) {
        value += text_.substr(at_);
        at_ = text_.size();
        table_.unterminated_quote = true;
        return value;
      }
      value += text_.substr(at_, quote - at_);
      at_ = quote + 1;
      if (at_ == text_.size() || text_[at_] != '"') return value;
      value += '"';
      ++at_;
    }
  }

  std::string_view text_;
  char separator_;
  size_t at_ = 0;
  CsvTable table_;
};

}  // namespace

bool is_csv_number(std::string_view cell) {
  if (cell.starts_with("+-")) return false;
  if (cell.starts_with('+')) cell.remove_prefix(1);  // from_chars knows only the minus
  double value = 0;
  const auto [end, code] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  return end == cell.data() + cell.size() && code != std::errc::invalid_argument;
}

void append_csv_row(std::span<const std::string> cells, const CsvOptions& options,
                    std::string* out) {
  append_row(cells, options, out);
}
void append_csv_row(std::initializer_list<std::string_view> cells, const CsvOptions& options,
                    std::string* out) {
  append_row(cells, options, out);
}

CsvTable read_csv(std::string_view text, char separator) { return Reader(text, separator).run(); }

}  // namespace assay::formats
