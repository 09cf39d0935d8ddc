// SPDX-License-Identifier: Apache-2.0
// One value of a table.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/interned_text.hpp"
#include "base/rare_text.hpp"

namespace assay::report {

/// What a reader should see first, and in which colour a workbook shows it.
enum class Mark : uint8_t {
  None,
  Good,   // green
  Doubt,  // amber: could not be judged, or is worth a look
  Bad,    // red
};

/// Number cells that are NaN are empty cells, as pandas writes them.
struct Cell {
  enum class Kind : uint8_t { Empty, Integer, Number, Text };
  Kind kind = Kind::Empty;
  Mark mark = Mark::None;
  int64_t integer = 0;
  double number = 0;
  std::string text;

  [[nodiscard]] static Cell of(int64_t value);
  [[nodiscard]] static Cell of(double value);
  [[nodiscard]] static Cell of(std::string value);  // empty text gives an empty cell
  [[nodiscard]] static Cell of(std::string_view value) { return of(std::string(value)); }
  [[nodiscard]] static Cell of(InternedText value) { return of(value.str()); }
  [[nodiscard]] static Cell of(const RareText& value) { return of(value.str()); }
  [[nodiscard]] static Cell of(const char* value) { return of(std::string(value)); }
  [[nodiscard]] static Cell of(Cell cell) { return cell; }
  [[nodiscard]] static Cell of(int value) { return of(int64_t{value}); }
  [[nodiscard]] static Cell of(uint32_t value) { return of(int64_t{value}); }
  [[nodiscard]] static Cell of(size_t value) { return of(static_cast<int64_t>(value)); }
  /// What an algorithm of the user gave.
  [[nodiscard]] static Cell of(
      const std::variant<std::monostate, double, int64_t, std::string>& value);
  /// A count or an index; empty for -1, which stands for none.
  [[nodiscard]] static Cell of_index(int64_t value) { return value < 0 ? Cell{} : of(value); }
  [[nodiscard]] Cell marked(Mark with) && {
    mark = with;
    return std::move(*this);
  }
  /// As pandas prints it: shortest digits, "inf", "" for an empty cell.
  [[nodiscard]] std::string csv_text() const;
};

using Cells = std::vector<Cell>;

}  // namespace assay::report
