// SPDX-License-Identifier: Apache-2.0
// Bins of the axes, and the largest error and the sum of squares of each cell, eight values at a
// time.
#include "measure/cell_grid.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/simd.hpp"

namespace assay::measure {
namespace {

using simd::add_lanes;
using simd::f64x8;
using simd::largest_lane;
using simd::load;
using simd::store;
using simd::u64x8;

constexpr int64_t kLanes = 8;
constexpr int64_t kMaxColumns = 1024;

[[gnu::always_inline]] inline f64x8 absolute_of(f64x8 v) {
  return (f64x8)((u64x8)v & 0x7FFFFFFFFFFFFFFFu);
}

/// Adds value i to column i.
ASSAY_CLONES void pool_columns(const double* difference, int64_t count, double* largest,
                               double* squares) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const f64x8 error = absolute_of(load<f64x8>(difference + i));
    const f64x8 before = load<f64x8>(largest + i);
    store(largest + i, error > before ? error : before);
    store(squares + i, load<f64x8>(squares + i) + error * error);
  }
  for (; i < count; ++i) {
    const double error = std::fabs(difference[i]);
    largest[i] = std::max(largest[i], error);
    squares[i] += error * error;
  }
}

/// Adds the first `room` values to the first cell, then `width` to each of those behind it.
ASSAY_CLONES void pool_runs(const double* difference, int64_t count, int64_t room, int64_t width,
                            double* largest, double* squares) {
  for (; count > 0; room = width) {
    const int64_t run = std::min(room, count);
    f64x8 lanes_largest = {}, lanes_squares = {};
    int64_t i = 0;
    for (; i + kLanes <= run; i += kLanes) {
      const f64x8 error = absolute_of(load<f64x8>(difference + i));
      lanes_largest = error > lanes_largest ? error : lanes_largest;
      lanes_squares += error * error;
    }
    double most = largest_lane(lanes_largest);
    double sum = add_lanes(lanes_squares);
    for (; i < run; ++i) {
      const double error = std::fabs(difference[i]);
      most = std::max(most, error);
      sum += error * error;
    }
    *largest = std::max(*largest, most);
    *squares += sum;
    ++largest;
    ++squares;
    difference += run;
    count -= run;
  }
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// The largest whole number whose power is no more than `budget`.
int64_t whole_root(int64_t budget, size_t power) {
  auto root = static_cast<int64_t>(
      std::pow(static_cast<double>(budget), 1 / static_cast<double>(power)) + 1e-9);
  return std::max<int64_t>(root, 1);
}

/// Short axes take what they need; the others share what is left.
void cut_axes(int64_t budget, CellGrid* grid) {
  std::vector<size_t> order(grid->sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t axis) { return grid->sizes[axis]; });
  for (size_t done = 0; done < order.size(); ++done) {
    const size_t axis = order[done];
    const int64_t size = grid->sizes[axis];
    const int64_t most = std::min(size, whole_root(budget, order.size() - done));
    grid->widths[axis] = std::max<int64_t>(ceil_div(size, std::max<int64_t>(most, 1)), 1);
    grid->bins[axis] = ceil_div(size, grid->widths[axis]);
    budget /= std::max<int64_t>(grid->bins[axis], 1);
  }
}

int64_t product(const std::vector<int64_t>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), int64_t{1}, std::multiplies<>());
}

}  // namespace

int64_t CellGrid::cell_count() const { return product(bins); }

int64_t CellGrid::cell_of(int64_t element) const {
  int64_t cell = 0;
  int64_t step = 1;
  for (size_t k = sizes.size(); k-- > 0;) {
    cell += element % sizes[k] / widths[k] * step;
    step *= bins[k];
    element /= sizes[k];
  }
  return cell;
}

std::vector<int64_t> CellGrid::bins_of(int64_t cell) const {
  std::vector<int64_t> place(bins.size());
  for (size_t k = bins.size(); k-- > 0; cell /= bins[k]) place[k] = cell % bins[k];
  return place;
}

int64_t CellGrid::bin_of(int64_t cell, size_t axis) const {
  for (size_t k = bins.size() - 1; k > axis; --k) cell /= bins[k];
  return cell % bins[axis];
}

int64_t CellGrid::value_count(int64_t cell) const {
  int64_t count = parts;
  for (size_t k = bins.size(); k-- > 0;) {
    if (widths[k] > 1) count *= std::min(widths[k], sizes[k] - cell % bins[k] * widths[k]);
    cell /= bins[k];
  }
  return count;
}

CellGrid make_grid(const Dims& shape, int64_t parts) {
  CellGrid grid;
  grid.parts = parts;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    if (shape[axis] == 1) continue;
    grid.axes.push_back(static_cast<int>(axis));
    grid.sizes.push_back(shape[axis]);
  }
  if (grid.axes.empty()) {
    grid.axes.push_back(shape.empty() ? 0 : static_cast<int>(shape.size()) - 1);
    grid.sizes.push_back(1);
  }
  grid.bins.resize(grid.sizes.size());
  grid.widths.resize(grid.sizes.size());
  cut_axes(grid.sizes.size() > 2 ? kMaxDeepCells : kMaxCells, &grid);
  return grid;
}

void PooledErrors::merge(const CellSums& next) {
  if (next.largest.empty()) return;
  if (largest.empty()) {
    const auto cells = static_cast<size_t>(grid.cell_count());
    largest.assign(cells, 0);
    squares.assign(cells, 0);
  }
  const auto first = static_cast<size_t>(next.first_cell);
  for (size_t i = 0; i < next.largest.size(); ++i) {
    largest[first + i] = std::max(largest[first + i], next.largest[i]);
    squares[first + i] += next.squares[i];
  }
}

CellPooler::CellPooler(const CellGrid& grid)
    : grid_(grid),
      row_values_(grid.sizes.back() * grid.parts),
      run_values_(grid.widths.back() * grid.parts),
      outer_values_(product(grid.sizes) / std::max<int64_t>(grid.sizes.front(), 1) * grid.parts),
      by_columns_(run_values_ < kLanes && row_values_ <= kMaxColumns && grid.sizes.size() > 1),
      largest_(static_cast<size_t>(grid.cell_count())),
      squares_(largest_.size()) {
  if (by_columns_) {
    column_largest_.resize(static_cast<size_t>(row_values_));
    column_squares_.resize(column_largest_.size());
  }
}

// Rows that lie in one bin of the axis before the last one are in the same cells.
void CellPooler::find_row(int64_t row) {
  if (row >= row_begin_ && row < row_end_) return;
  fold_columns();
  row_cell_ = 0;
  row_begin_ = row;
  row_end_ = row + 1;
  int64_t step = grid_.bins.back();
  int64_t rest = row;
  for (size_t k = grid_.sizes.size() - 1; k-- > 0;) {
    const int64_t place = rest % grid_.sizes[k];
    const int64_t bin = place / grid_.widths[k];
    if (k + 2 == grid_.sizes.size()) {
      const int64_t bin_end = std::min((bin + 1) * grid_.widths[k], grid_.sizes[k]);
      row_end_ = row + bin_end - place;
    }
    row_cell_ += bin * step;
    step *= grid_.bins[k];
    rest /= grid_.sizes[k];
  }
}

void CellPooler::fold_columns() {
  if (!has_columns_) return;
  double* largest = largest_.data() + row_cell_;
  double* squares = squares_.data() + row_cell_;
  for (size_t begin = 0; begin < column_largest_.size();) {
    const size_t end = std::min(begin + static_cast<size_t>(run_values_), column_largest_.size());
    for (size_t i = begin; i < end; ++i) {
      *largest = std::max(*largest, column_largest_[i]);
      *squares += column_squares_[i];
    }
    ++largest;
    ++squares;
    begin = end;
  }
  std::ranges::fill(column_largest_, 0.0);
  std::ranges::fill(column_squares_, 0.0);
  has_columns_ = false;
}

void CellPooler::add(const double* difference, int64_t first, int64_t count) {
  if (first_value_ < 0) first_value_ = first;
  last_value_ = first + count - 1;
  while (count > 0) {
    const int64_t column = first % row_values_;
    const int64_t piece = std::min(row_values_ - column, count);
    find_row(first / row_values_);
    if (by_columns_) {
      pool_columns(difference, piece, column_largest_.data() + column,
                   column_squares_.data() + column);
      has_columns_ = true;
    } else {
      const int64_t cell = row_cell_ + column / run_values_;
      const int64_t room = run_values_ - column % run_values_;
      pool_runs(difference, piece, room, run_values_, largest_.data() + cell,
                squares_.data() + cell);
    }
    difference += piece;
    first += piece;
    count -= piece;
  }
}

int64_t CellPooler::outer_bin(int64_t value) const {
  return value / outer_values_ / grid_.widths.front();
}

CellSums CellPooler::take() {
  CellSums out;
  if (first_value_ < 0) return out;
  fold_columns();
  row_end_ = row_begin_;
  const auto inner = static_cast<int64_t>(largest_.size()) / grid_.bins.front();
  out.first_cell = outer_bin(first_value_) * inner;
  const int64_t end = (outer_bin(last_value_) + 1) * inner;
  const auto cut = [&](std::vector<double>& all) {
    const std::span<double> part(all.data() + out.first_cell,
                                 static_cast<size_t>(end - out.first_cell));
    std::vector<double> copy(part.begin(), part.end());
    std::ranges::fill(part, 0.0);
    return copy;
  };
  out.largest = cut(largest_);
  out.squares = cut(squares_);
  first_value_ = last_value_ = -1;
  return out;
}

}  // namespace assay::measure
