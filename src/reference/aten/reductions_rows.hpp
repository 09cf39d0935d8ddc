// SPDX-License-Identifier: Apache-2.0
// The values that each result of a reduction is made of, as rows.
#pragma once
#include <vector>

#include "reference/aten/values.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {

/// An operand with the reduced dimensions behind the others.
struct Rows {
  TensorView view;     // [kept..., reduced...]
  int64_t count = 1;   // rows, one a result
  int64_t length = 1;  // values of a row
  Dims shape;          // of the results
};

/// dims     none, or an empty list: all dimensions
/// keepdim  reduced dimensions stay, of size 1
/// errors   Invalid (no such dimension, one twice) | Unsupported (complex, packed types) | TooLarge
[[nodiscard]] Result<Rows> rows_of(const Arguments& arguments, const Tensor& tensor,
                                   const std::optional<std::vector<int64_t>>& dims, bool keepdim);
/// Of one dimension; without one all values are a single row.
[[nodiscard]] Result<Rows> rows_along(const Arguments& arguments, const Tensor& tensor,
                                      std::optional<int64_t> dim, bool keepdim);
/// Of the arguments self, dim and keepdim.
[[nodiscard]] Result<Rows> argument_rows(const Arguments& arguments);

/// Reads a row at a time into a buffer, exact integers for T = int64_t, and calls f(row number,
/// values).
/// errors  of whole()
template <typename T, typename F>
[[nodiscard]] Status for_each_row(const Rows& rows, F f) {
  constexpr int64_t kBlock = 8192;
  const int64_t step = std::max<int64_t>(1, kBlock / std::max<int64_t>(rows.length, 1));
  if constexpr (std::is_same_v<T, int64_t>) {
    // All values at once: integers of inference are token ids, masks and counts.
    ASSAY_TRY(Whole values, whole(rows.view));
    for (int64_t row = 0; row < rows.count; ++row)
      f(row, std::span<T>(values.data() + row * rows.length, static_cast<size_t>(rows.length)));
  } else {
    std::vector<double, NoInitAllocator<double>> block(
        static_cast<size_t>(std::min(step, std::max<int64_t>(rows.count, 1)) * rows.length));
    for (int64_t first = 0; first < rows.count; first += step) {
      const int64_t count = std::min(step, rows.count - first);
      if (rows.length != 0)
        read_values(rows.view, first * rows.length, count * rows.length,
                    std::span(block).first(static_cast<size_t>(count * rows.length)));
      for (int64_t row = 0; row < count; ++row)
        f(first + row,
          std::span<T>(block.data() + row * rows.length, static_cast<size_t>(rows.length)));
    }
  }
  return {};
}

/// The results as the tensor `dim` goes through: [outer..., dim, inner...], from rows [kept...,
/// dim]. Precondition: `values` has a row for each of rows.count, `length` values each.
[[nodiscard]] Tensor rows_back(const Tensor& values, const Rows& rows, size_t axis, int64_t length);

}  // namespace assay::reference::aten
