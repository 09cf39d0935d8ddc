// SPDX-License-Identifier: Apache-2.0
// NaN and empty text become empty cells; numbers are written as Python's repr() does.
#include "report/cell.hpp"

#include <cmath>

#include "base/text.hpp"

namespace assay::report {

Cell Cell::of(int64_t value) {
  Cell cell;
  cell.kind = Kind::Integer;
  cell.integer = value;
  return cell;
}

Cell Cell::of(double value) {
  Cell cell;
  if (std::isnan(value)) return cell;
  cell.kind = Kind::Number;
  cell.number = value;
  return cell;
}

Cell Cell::of(std::string value) {
  Cell cell;
  if (value.empty()) return cell;
  cell.kind = Kind::Text;
  cell.text = std::move(value);
  return cell;
}

Cell Cell::of(const std::variant<std::monostate, double, int64_t, std::string>& value) {
  if (const auto* number = std::get_if<double>(&value)) return of(*number);
  if (const auto* integer = std::get_if<int64_t>(&value)) return of(*integer);
  if (const auto* text = std::get_if<std::string>(&value)) return of(*text);
  return {};
}

std::string Cell::csv_text() const {
  switch (kind) {
    case Kind::Empty:
      break;
    case Kind::Integer:
      return std::to_string(integer);
    case Kind::Number:
      return python_repr(number);
    case Kind::Text:
      return printable(text);
  }
  return {};
}

}  // namespace assay::report
