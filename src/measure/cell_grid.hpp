// SPDX-License-Identifier: Apache-2.0
// The places of a tensor joined to cells, and the errors of a pair pooled into them while the pair
// is compared.   docs/metrics.md, "Where two tensors differ"
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dims.hpp"

namespace assay::measure {

/// Axes of a tensor cut into equal bins; a cell is one bin of every axis. Bin b of axis k holds the
/// positions [b * widths[k], min((b + 1) * widths[k], sizes[k])). Cells stand in C order.
struct CellGrid {
  std::vector<int> axes;       // of the shape, without those of size 1; at least one
  std::vector<int64_t> sizes;  // positions of these axes; of a 0-d tensor one axis of size 1
  std::vector<int64_t> bins;
  std::vector<int64_t> widths;
  int64_t parts = 1;  // values of an element: 2 of complex ones, see values_per_element()

  [[nodiscard]] int64_t cell_count() const;
  /// Cell of an element, counted in C order.
  [[nodiscard]] int64_t cell_of(int64_t element) const;
  /// Bins of a cell, one an axis.
  [[nodiscard]] std::vector<int64_t> bins_of(int64_t cell) const;
  [[nodiscard]] int64_t bin_of(int64_t cell, size_t axis) const;
  /// Values of a cell.
  [[nodiscard]] int64_t value_count(int64_t cell) const;
  friend bool operator==(const CellGrid&, const CellGrid&) = default;
};

inline constexpr int64_t kMaxCells = 4096;      // of tensors of one or two axes
inline constexpr int64_t kMaxDeepCells = 8192;  // of more

/// The finest equal bins of which no more than the limit come together, short axes uncut.
[[nodiscard]] CellGrid make_grid(const Dims& shape, int64_t parts);

/// Errors of cells [first_cell, first_cell + largest.size()).
struct CellSums {
  int64_t first_cell = 0;
  std::vector<double> largest;  // |mine - golden|; infinity: not finite on one side alone
  std::vector<double> squares;  // sum of its squares
};

/// Errors of a pair by cell; `largest` is empty when no place differs.
struct PooledErrors {
  CellGrid grid;
  std::vector<double> largest;
  std::vector<double> squares;

  explicit PooledErrors(CellGrid cells = {}) : grid(std::move(cells)) {}
  void merge(const CellSums& next);
};

/// Pools the differences of consecutive values. Of one thread.
class CellPooler {
 public:
  explicit CellPooler(const CellGrid& grid);

  /// difference   of values [first, first + count), in C order; behind those added since take().
  ///              None is NaN.
  void add(const double* difference, int64_t first, int64_t count);
  /// What was added since the last call.
  [[nodiscard]] CellSums take();

 private:
  void find_row(int64_t row);
  void fold_columns();
  [[nodiscard]] int64_t outer_bin(int64_t value) const;

  const CellGrid& grid_;
  int64_t row_values_;                     // of the last axis of the grid
  int64_t run_values_;                     // of one bin of it
  int64_t outer_values_;                   // of one position of the first axis
  bool by_columns_;                        // rows of one cell are joined before their bins are
  std::vector<double> largest_, squares_;  // of all cells
  std::vector<double> column_largest_, column_squares_;  // of rows [row_begin_, row_end_)
  int64_t row_begin_ = 0, row_end_ = 0;                  // rows of one bin of the last but one axis
  int64_t row_cell_ = 0;                                 // their first cell
  bool has_columns_ = false;
  int64_t first_value_ = -1, last_value_ = -1;  // added since take()
};

}  // namespace assay::measure
