// SPDX-License-Identifier: Apache-2.0
// Forms of a column of N cells; planes are all first bytes, then all second bytes ... of
// little-endian values, which packs better than the values one after the other.
//
//   constant   no blob; all cells are "value" (null: empty)
//   number     4 planes: float32, rounded to 17 bits of mantissa (5 digits); empty: NaN
//   integer    4 planes: int32; empty: -2^31
//   words      u32 size of a JSON list of texts, the list, 4 planes: index into it, 0: empty
#include "report/html/table_data.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/text.hpp"
#include "base/thread_pool.hpp"

namespace assay::report::html {
namespace {

enum class Form : uint8_t { Empty, Integer, Number, Words };

// Rounded to the nearest value whose lowest six bits are zero: they would be noise to the packer.
uint32_t rounded_bits(double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  constexpr uint32_t kExponent = 0x7f800000;
  if ((bits & kExponent) == kExponent) return bits;
  const uint32_t rounded = (bits + 32) & ~uint32_t{63};
  return (rounded & kExponent) == kExponent ? bits : rounded;
}

std::string planes_of(const std::vector<uint32_t>& values) {
  std::string out(values.size() * 4, '\0');
  char* place = out.data();
  for (unsigned shift = 0; shift < 32; shift += 8) {
    for (const uint32_t value : values) *place++ = static_cast<char>(value >> shift);
  }
  return out;
}

// Texts, each once, and their places; 0 is the empty one.
class Words {
 public:
  uint32_t place_of(const std::string& text) {
    if (last_ != nullptr && last_->first == text) return last_->second;
    const auto [known, is_new] = places_.try_emplace(text, static_cast<uint32_t>(places_.size()));
    if (is_new) list_ += "," + json_quote(printable(text));
    last_ = &*known;
    return known->second;
  }
  /// Their list as JSON, behind its size.
  [[nodiscard]] std::string list() const {
    const auto size = static_cast<uint32_t>(list_.size() + 1);
    std::string out(4, '\0');
    std::memcpy(out.data(), &size, 4);
    return out + list_ + "]";
  }

 private:
  std::unordered_map<std::string, uint32_t> places_ = {{"", 0}};
  const std::pair<const std::string, uint32_t>* last_ = nullptr;  // that was asked for
  std::string list_ = "[\"\"";
};

// What is kept of a cell until the form of its column is known. Not the cell itself: fifty columns
// of texts of their own would take gigabytes.
struct Value {
  Cell::Kind kind = Cell::Kind::Empty;
  double number = 0;
  int64_t integer = 0;  // of Text: its place among the words

  bool operator==(const Value&) const = default;
};

Cell cell_of(const Value& value) {
  Cell cell;
  cell.kind = value.kind;
  cell.number = value.number;
  cell.integer = value.integer;
  return cell;
}

// A column while its cells come in.
class ColumnData {
 public:
  void reserve(size_t rows) { values_.reserve(rows); }

  void add(const Cell& cell) {
    Value value{cell.kind, cell.number, cell.integer};
    if (cell.kind == Cell::Kind::Text) value.integer = words_.place_of(cell.text);
    if (values_.empty()) first_ = cell;
    values_.push_back(value);
  }

  /// Completes the column's description, or the blob when it needs one.
  void describe(Json* column, Blob* blob) {
    constexpr const char* kNames[] = {"number", "integer", "number", "words"};
    if (std::ranges::all_of(values_, [&](const Value& one) { return one == values_.front(); })) {
      (*column)["form"] = "constant";
      (*column)["value"] = constant();
      return;
    }
    const Form form = common_form();
    (*column)["form"] = kNames[static_cast<size_t>(form)];
    (*column)["blob"] = blob->name;
    blob->bytes = deflated(form == Form::Words ? words() : planes(form));
    blob->is_deflated = true;
  }

 private:
  [[nodiscard]] Json constant() const {
    switch (first_.kind) {
      case Cell::Kind::Empty:
        return nullptr;
      case Cell::Kind::Integer:
        return first_.integer;
      case Cell::Kind::Number:
        if (std::isfinite(first_.number)) return first_.number;
        break;
      case Cell::Kind::Text:
        break;
    }
    return printable(first_.csv_text());
  }

  static Form form_of(const Value& value) {
    switch (value.kind) {
      case Cell::Kind::Empty:
        return Form::Empty;
      case Cell::Kind::Integer:
        return std::abs(value.integer) <= std::numeric_limits<int32_t>::max() ? Form::Integer
                                                                              : Form::Number;
      case Cell::Kind::Number:
        return Form::Number;
      case Cell::Kind::Text:
        break;
    }
    return Form::Words;
  }

  [[nodiscard]] Form common_form() const {
    Form form = Form::Empty;
    for (const Value& value : values_) form = std::max(form, form_of(value));
    return form;
  }

  [[nodiscard]] static uint32_t bits_of(const Value& value, Form form) {
    const bool is_integer = value.kind == Cell::Kind::Integer;
    if (form == Form::Integer) {
      constexpr int64_t kEmpty = std::numeric_limits<int32_t>::min();
      return static_cast<uint32_t>(is_integer ? value.integer : kEmpty);
    }
    if (is_integer) return rounded_bits(static_cast<double>(value.integer));
    return rounded_bits(value.kind == Cell::Kind::Number ? value.number : NAN);
  }

  [[nodiscard]] std::string planes(Form form) const {
    std::vector<uint32_t> bits;
    bits.reserve(values_.size());
    for (const Value& value : values_) bits.push_back(bits_of(value, form));
    return planes_of(bits);
  }

  // A number in a column of words is one of them.
  [[nodiscard]] std::string words() {
    std::vector<uint32_t> places;
    places.reserve(values_.size());
    for (const Value& value : values_) {
      places.push_back(value.kind == Cell::Kind::Text ? static_cast<uint32_t>(value.integer)
                                                      : words_.place_of(cell_of(value).csv_text()));
    }
    return words_.list() + planes_of(places);
  }

  std::vector<Value> values_;
  Words words_;
  Cell first_;
};

}  // namespace

Json add_table(size_t rows, const std::vector<PageColumn>& columns, const std::string& prefix,
               std::vector<Blob>* blobs) {
  // A row is larger than what a core reads from memory at once: several columns together wait less.
  constexpr size_t kTogether = 8;
  std::vector<Json> described(columns.size());
  std::vector<Blob> made(columns.size());
  const size_t groups = (columns.size() + kTogether - 1) / kTogether;
  parallel_for(groups, resolve_job_count(0), [&](size_t group) {
    const size_t begin = group * kTogether;
    std::vector<ColumnData> data(std::min(kTogether, columns.size() - begin));
    for (ColumnData& one : data) one.reserve(rows);
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = 0; i < data.size(); ++i) data[i].add(columns[begin + i].cell(row));
    }
    for (size_t i = 0; i < data.size(); ++i) {
      described[begin + i] = {{"name", columns[begin + i].name}};
      made[begin + i].name = prefix + std::to_string(begin + i);
      data[i].describe(&described[begin + i], &made[begin + i]);
    }
  });
  std::ranges::copy_if(made, std::back_inserter(*blobs), &Blob::is_deflated);
  return {{"rows", rows}, {"columns", std::move(described)}};
}

Json add_table(const std::vector<std::string>& names, const std::vector<Cells>& rows,
               const std::string& prefix, std::vector<Blob>* blobs) {
  std::vector<PageColumn> columns;
  for (size_t i = 0; i < names.size(); ++i)
    columns.push_back({names[i], [&rows, i](size_t row) { return rows[row][i]; }});
  return add_table(rows.size(), columns, prefix, blobs);
}

}  // namespace assay::report::html
