// SPDX-License-Identifier: Apache-2.0
// Formats of 16 bits and more are computed from their grid, integers are clamped, and one-byte
// floats are looked up in a table of all their values.
#include "measure/rounding.hpp"

#include <algorithm>
#include <array>
#include <bit>

#include "base/result.hpp"
#include "tensor/convert.hpp"

namespace assay::measure {
namespace {

/// All finite values of a one-byte float type, ascending; zero once.
std::vector<double> finite_values(DType dtype) {
  std::array<std::byte, 256> bytes{};
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
  const Result<TensorView> view = make_view(dtype, {256}, bytes);
  ASSAY_CHECK(view, "256 one-byte elements are 256 bytes");
  std::vector<double> values(bytes.size());
  read_values(*view, 0, 256, values);
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

/// Order of doubles among all doubles: 0 for zero, 1 for the smallest magnitude.
uint64_t ordinal(double magnitude) { return std::bit_cast<uint64_t>(std::fabs(magnitude)); }

}  // namespace

Rounding::Rounding(DType dtype) {
  const DTypeInfo& type = info(dtype);
  const std::optional<FloatGrid> grid = float_grid(dtype);
  if (grid && type.element_bits > 8) {
    kind_ = dtype == DType::Float64 ? Kind::Double : Kind::Binary;
    grid_ = *grid;
    // Half a unit beyond the largest finite value.
    if (kind_ == Kind::Binary) overflow_ = grid->largest + grid->ulp(grid->largest) / 2;
  } else if (type.kind == DTypeKind::Float) {
    kind_ = Kind::Table;
    table_ = finite_values(dtype);
    // e5m2: 57344 + half of 8192. HiFloat8 has an infinity as well, in place of its next value 2^15
    // * 1.5.
    if (dtype == DType::Float8E5M2) overflow_ = 61440;
    if (dtype == DType::HiFloat8) overflow_ = 40960;
  } else if (type.kind == DTypeKind::Bool) {
    kind_ = Kind::Bool;
  } else {
    kind_ = Kind::Integer;
    const bool is_signed = type.kind == DTypeKind::SignedInt;
    const int bits = type.element_bits;
    lowest_ = is_signed ? -std::ldexp(1.0, bits - 1) : 0;
    // 2^63 - 1 and 2^64 - 1 round up to a power of two, which is as near as a double comes.
    highest_ = std::ldexp(1.0, is_signed ? bits - 1 : bits) - 1;
  }
}

size_t Rounding::table_index(double value) const {
  const auto above = std::lower_bound(table_.begin(), table_.end(), value);
  if (above == table_.begin()) return 0;
  const auto index = static_cast<size_t>(above - table_.begin());
  if (above == table_.end()) return index - 1;
  const double up = *above - value;
  const double down = value - table_[index - 1];
  if (up != down) return up < down ? index : index - 1;
  // Patterns ascend with the values, so of two neighbours the one at an even distance from zero is
  // even.
  const auto zero =
      static_cast<size_t>(std::lower_bound(table_.begin(), table_.end(), 0.0) - table_.begin());
  const size_t from_zero = index > zero ? index - zero : zero - index;
  return from_zero % 2 == 0 ? index : index - 1;
}

double Rounding::nearest(double value) const {
  switch (kind_) {
    case Kind::Double:
      return value;
    case Kind::Binary: {
      if (!std::isfinite(value)) return value;
      if (std::fabs(value) >= overflow_)
        return std::copysign(std::numeric_limits<double>::infinity(), value);
      const double unit_size = unit(value);  // a power of two: neither step rounds
      return std::copysign(std::nearbyint(value / unit_size) * unit_size, value);
    }
    case Kind::Table:
      if (std::isnan(value)) return value;
      if (std::fabs(value) >= overflow_)
        return std::copysign(std::numeric_limits<double>::infinity(), value);
      return table_[table_index(value)];
    case Kind::Integer:
      return std::isnan(value) ? 0 : std::clamp(std::nearbyint(value), lowest_, highest_);
    case Kind::Bool:
      return value != 0 ? 1 : 0;
  }
  return value;
}

uint64_t Rounding::distance(double a, double b) const {
  switch (kind_) {
    case Kind::Table: {
      const size_t first = table_index(a);
      const size_t second = table_index(b);
      return first > second ? first - second : second - first;
    }
    case Kind::Integer:
    case Kind::Bool:
      return static_cast<uint64_t>(std::min(std::fabs(a - b), 0x1p63));
    case Kind::Double:
    case Kind::Binary:
      break;
  }
  const auto place = [&](double value) -> uint64_t {
    if (kind_ == Kind::Double) return ordinal(value);
    const double magnitude = std::fabs(value);
    const int exponent = grid_.exponent_of(magnitude);
    return (static_cast<uint64_t>(exponent - grid_.smallest_exponent) << grid_.fraction_bits) +
           static_cast<uint64_t>(magnitude *
                                 FloatGrid::power_of_two(grid_.fraction_bits - exponent));
  };
  const uint64_t first = place(a);
  const uint64_t second = place(b);
  if (std::signbit(a) != std::signbit(b)) return first + second;
  return first > second ? first - second : second - first;
}

double Rounding::truncated(double value) const {
  const double unit_size = unit(value);
  return std::trunc(value / unit_size) * unit_size;
}

double Rounding::unit(double value) const {
  switch (kind_) {
    case Kind::Integer:
    case Kind::Bool:
      return 1;
    case Kind::Table: {
      const size_t index = table_index(std::fabs(value));
      return index == 0 ? table_[1] - table_[0] : table_[index] - table_[index - 1];
    }
    case Kind::Double:
    case Kind::Binary:
      break;
  }
  return grid_.ulp(value);
}

}  // namespace assay::measure
