// SPDX-License-Identifier: Apache-2.0
// Values of a row in order, with their places: NaN above everything, equal values in the order of
// their places.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace assay::reference {

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(value);
  else
    return false;
}

/// NaN above everything, equal to itself.
template <typename T>
bool is_less(T a, T b) {
  if (is_nan(a)) return false;
  return is_nan(b) || a < b;
}

template <typename T>
struct Placed {
  T value;
  int64_t place;
};

/// The first `count` of a row, ascending or descending; they lie in `room` until the next call.
/// Precondition: count in [0, row.size()]
template <typename T>
std::span<const Placed<T>> first_in_order(std::span<const T> row, size_t count, bool descending,
                                          std::vector<Placed<T>>* room) {
  room->resize(row.size());
  for (size_t i = 0; i < row.size(); ++i) (*room)[i] = {row[i], static_cast<int64_t>(i)};
  const auto comes_first = [descending](const Placed<T>& a, const Placed<T>& b) {
    if (is_less(a.value, b.value)) return !descending;
    if (is_less(b.value, a.value)) return descending;
    return a.place < b.place;
  };
  const auto end = room->begin() + static_cast<std::ptrdiff_t>(count);
  if (count < row.size() / 8)
    std::partial_sort(room->begin(), end, room->end(), comes_first);
  else
    std::sort(room->begin(), room->end(), comes_first);
  return std::span<const Placed<T>>(*room).first(count);
}

}  // namespace assay::reference
