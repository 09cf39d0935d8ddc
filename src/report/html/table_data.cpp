// SPDX-License-Identifier: Apache-2.0
// Forms of a column of N cells; planes are all first bytes, then all second bytes ... of
// little-endian values, which packs better than the values one after the other.
//
//   constant   no blob; all cells are "value" (null: empty)
//   number     4 planes: float32, rounded to 17 bits of mantissa (5 digits); empty: NaN
//   integer    4 planes: int32; empty: -2^31
//   words      u32 size of a JSON list of texts, the list, 4 planes: index into it, 0: empty
#include "report/html/table_data.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/text.hpp"

namespace assay::report::html {
namespace {

enum class Form : uint8_t { Empty, Integer, Number, Words };

Form form_of(const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::Empty:
      return Form::Empty;
    case Cell::Kind::Integer:
      return std::abs(cell.integer) <= std::numeric_limits<int32_t>::max() ? Form::Integer
                                                                           : Form::Number;
    case Cell::Kind::Number:
      return Form::Number;
    case Cell::Kind::Text:
      break;
  }
  return Form::Words;
}

// Rounded to the nearest value whose lowest six bits are zero: they would be noise to the packer.
uint32_t rounded_bits(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  constexpr uint32_t kExponent = 0x7f800000;
  if ((bits & kExponent) == kExponent) return bits;
  const uint32_t rounded = (bits + 32) & ~uint32_t{63};
  return (rounded & kExponent) == kExponent ? bits : rounded;
}

uint32_t number_bits(const Cell& cell) {
  if (cell.kind == Cell::Kind::Integer) return rounded_bits(static_cast<double>(cell.integer));
  return rounded_bits(cell.kind == Cell::Kind::Number ? cell.number : NAN);
}

uint32_t integer_bits(const Cell& cell) {
  constexpr int64_t kEmpty = std::numeric_limits<int32_t>::min();
  return static_cast<uint32_t>(
      static_cast<int32_t>(cell.kind == Cell::Kind::Integer ? cell.integer : kEmpty));
}

std::string planes(const std::vector<uint32_t>& values) {
  std::string out(values.size() * 4, '\0');
  for (size_t plane = 0; plane < 4; ++plane) {
    for (size_t i = 0; i < values.size(); ++i)
      out[plane * values.size() + i] = static_cast<char>(values[i] >> (8 * plane));
  }
  return out;
}

std::string words_of(const Table& table, size_t column) {
  std::unordered_map<std::string, uint32_t> known = {{"", 0}};
  Json words = Json::array({""});
  std::vector<uint32_t> indices;
  for (const Cells& row : table.rows) {
    const std::string text = repair_utf8(row[column].csv_text());
    const auto [place, is_new] = known.try_emplace(text, static_cast<uint32_t>(words.size()));
    if (is_new) words.push_back(text);
    indices.push_back(place->second);
  }
  const std::string list = words.dump();
  const auto size = static_cast<uint32_t>(list.size());
  std::string out(4, '\0');
  std::memcpy(out.data(), &size, 4);
  return out + list + planes(indices);
}

std::string bytes_of(const Table& table, size_t column, Form form) {
  if (form == Form::Words) return words_of(table, column);
  std::vector<uint32_t> values;
  values.reserve(table.rows.size());
  for (const Cells& row : table.rows)
    values.push_back(form == Form::Integer ? integer_bits(row[column]) : number_bits(row[column]));
  return planes(values);
}

bool is_constant(const Table& table, size_t column) {
  for (const Cells& row : table.rows) {
    const Cell& cell = row[column];
    const Cell& first = table.rows.front()[column];
    if (cell.kind != first.kind || cell.integer != first.integer || cell.text != first.text)
      return false;
    if (cell.kind == Cell::Kind::Number && cell.number != first.number) return false;
  }
  return true;
}

Json value_of(const Cell& cell) {
  switch (cell.kind) {
    case Cell::Kind::Empty:
      return nullptr;
    case Cell::Kind::Integer:
      return cell.integer;
    case Cell::Kind::Number:
      if (std::isfinite(cell.number)) return cell.number;
      break;
    case Cell::Kind::Text:
      break;
  }
  return repair_utf8(cell.csv_text());
}

}  // namespace

Json add_table(const Table& table, const std::string& prefix, std::vector<Blob>* blobs) {
  constexpr const char* kNames[] = {"number", "integer", "number", "words"};
  Json columns = Json::array();
  for (size_t column = 0; column < table.columns.size(); ++column) {
    Json json = {{"name", table.columns[column]}};
    Form form = Form::Empty;
    for (const Cells& row : table.rows) form = std::max(form, form_of(row[column]));
    if (table.rows.empty() || is_constant(table, column)) {
      json["form"] = "constant";
      json["value"] = table.rows.empty() ? Json(nullptr) : value_of(table.rows.front()[column]);
    } else {
      json["form"] = kNames[static_cast<size_t>(form)];
      json["blob"] = prefix + std::to_string(column);
      blobs->push_back({prefix + std::to_string(column), bytes_of(table, column, form)});
    }
    columns.push_back(std::move(json));
  }
  return {{"rows", table.rows.size()}, {"columns", std::move(columns)}};
}

}  // namespace assay::report::html
