// SPDX-License-Identifier: Apache-2.0
// A column is recognised by 16 sums of its values with random signs. Columns that are each other's
// nearest neighbours make the order, which is then tried on all values.
#include "pair/permutation.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "pair/nearest_points.hpp"
#include "tensor/convert.hpp"

namespace assay::pair {
namespace {

constexpr int64_t kMaxColumns = 65536;
constexpr int64_t kSketchRows = 16;  // numbers that a column is recognised by
// Relative L2 error that is left when the order is right: rounding of half precision accumulated
// over a network. Also what the columns may be apart while they are looked for.
constexpr double kRounding = 0.03;
// A right order makes the difference this much smaller ...
constexpr double kMinGain = 0.1;
// ... and the squared distance to the chosen columns this much smaller than that to the next best.
constexpr double kMinClearness = 0.05;
constexpr size_t kProbedColumns = 64;

/// Shape and strides with the axis at the end: [rows, columns] in C order.
TensorView with_axis_last(const TensorView& view, size_t axis) {
  TensorView out = view;
  for (size_t i = axis; i + 1 < view.shape.size(); ++i) {
    out.shape[i] = view.shape[i + 1];
    out.strides[i] = view.strides[i + 1];
  }
  out.shape[view.shape.size() - 1] = view.shape[axis];
  out.strides[view.shape.size() - 1] = view.strides[axis];
  return out;
}

double sign_of(int64_t row) {
  auto value = static_cast<uint64_t>(row + 1) * 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return (value >> 63) != 0 ? -1 : 1;
}

void read_row(const TensorView& view, int64_t row, std::vector<double>& out) {
  const auto columns = static_cast<int64_t>(out.size());
  read_values(view, row * columns, columns, out);
  for (double& value : out) {
    if (!std::isfinite(value)) value = 0;
  }
}

/// [columns, kSketchRows]: entry k of a column is the sum of its values in rows k, k + 16, ... with
/// random signs; up to 16 rows are thus taken as they are.
std::vector<double> sketch_columns(const TensorView& view, int64_t rows, size_t columns) {
  std::vector<double> sums(columns * kSketchRows, 0);  // [kSketchRows, columns]
  std::vector<double> row_values(columns);
  for (int64_t row = 0; row < rows; ++row) {
    read_row(view, row, row_values);
    double* const target = sums.data() + static_cast<size_t>(row % kSketchRows) * columns;
    const double sign = sign_of(row);
    for (size_t i = 0; i < columns; ++i) target[i] += sign * row_values[i];
  }
  std::vector<double> points(sums.size());
  for (size_t k = 0; k < kSketchRows; ++k) {
    for (size_t i = 0; i < columns; ++i) points[i * kSketchRows + k] = sums[k * columns + i];
  }
  return points;
}

double squared_norm(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum;
}

class ColumnMatcher {
 public:
  ColumnMatcher(std::vector<double> golden, const std::vector<double>& mine, size_t columns)
      : golden_(std::move(golden)), mine_(mine), tree_(mine, kSketchRows), columns_(columns) {
    const double mean_square = (squared_norm(golden_) + squared_norm(mine)) / 2 /
                               static_cast<double>(std::max<size_t>(1, columns));
    reach_ = 4 * kRounding * std::sqrt(mean_square);
  }

  /// Nothing when columns have no partner or when another order would do nearly as well.
  std::optional<std::vector<int64_t>> run() {
    if (!(reach_ > 0) || !std::isfinite(reach_) || !looks_promising()) return std::nullopt;
    std::vector<int64_t> order(columns_, -1);
    const NearestPoints golden_tree(golden_, kSketchRows);
    double chosen = 0;
    double next_best = 0;
    std::vector<size_t> left;
    for (size_t i = 0; i < columns_; ++i) {
      const auto hit = tree_.nearest(column(golden_, i), reach_);
      if (!hit) return std::nullopt;
      chosen += hit->distance * hit->distance;
      // Beyond reach counts as far as reach.
      const auto second = tree_.nearest(column(golden_, i), reach_, hit->index);
      const double far = second ? second->distance : reach_;
      next_best += far * far;
      const auto back = golden_tree.nearest(column(mine_, hit->index), reach_);
      if (back && back->index == i) {
        order[i] = static_cast<int64_t>(hit->index);
      } else {
        left.push_back(i);
      }
    }
    if (chosen > kMinClearness * next_best) return std::nullopt;
    return assign_left(left, std::move(order));
  }

 private:
  static std::span<const double> column(const std::vector<double>& points, size_t i) {
    return {points.data() + i * kSketchRows, static_cast<size_t>(kSketchRows)};
  }

  // A broken tensor is no permuted one: a few columns show that at once.
  bool looks_promising() const {
    const size_t step = std::max<size_t>(1, columns_ / kProbedColumns);
    for (size_t i = 0; i < columns_; i += step) {
      if (!tree_.nearest(column(golden_, i), reach_)) return false;
    }
    return true;
  }

  // What is left are columns that are about equal among each other; any of them will do.
  std::optional<std::vector<int64_t>> assign_left(const std::vector<size_t>& left,
                                                  std::vector<int64_t> order) {
    for (const int64_t taken : order) {
      if (taken >= 0) tree_.remove(static_cast<size_t>(taken));
    }
    for (const size_t i : left) {
      const auto hit = tree_.nearest(column(golden_, i), reach_);
      if (!hit) return std::nullopt;
      order[i] = static_cast<int64_t>(hit->index);
      tree_.remove(hit->index);
    }
    return order;
  }

  std::vector<double> golden_;  // [columns, kSketchRows]
  const std::vector<double>& mine_;
  NearestPoints tree_;  // of mine
  size_t columns_;
  double reach_ = 0;
};

/// Squared L2 distances between golden and mine: as they are, and with mine in the order.
struct Errors {
  double as_is = 0;
  double ordered = 0;
  double golden = 0;  // squared norm
};

Errors errors_of(const TensorView& golden, const TensorView& mine, int64_t rows,
                 const std::vector<int64_t>& order) {
  Errors errors;
  std::vector<double> left(order.size());
  std::vector<double> right(order.size());
  for (int64_t row = 0; row < rows; ++row) {
    read_row(golden, row, left);
    read_row(mine, row, right);
    for (size_t i = 0; i < left.size(); ++i) {
      const double as_is = left[i] - right[i];
      const double ordered = left[i] - right[static_cast<size_t>(order[i])];
      errors.as_is += as_is * as_is;
      errors.ordered += ordered * ordered;
      errors.golden += left[i] * left[i];
    }
  }
  return errors;
}

}  // namespace

std::optional<std::vector<int64_t>> find_permutation(const TensorView& golden,
                                                     const TensorView& mine, int axis) {
  const auto rank = static_cast<int>(golden.shape.size());
  if (axis < 0) axis += rank;
  if (golden.shape != mine.shape || axis < 0 || axis >= rank) return std::nullopt;
  if (values_per_element(golden.dtype) != 1 || values_per_element(mine.dtype) != 1) {
    return std::nullopt;
  }
  const int64_t columns = golden.shape[static_cast<size_t>(axis)];
  const int64_t count = golden.element_count();
  if (columns < 2 || columns > kMaxColumns || count == 0) return std::nullopt;
  const int64_t rows = count / columns;
  const TensorView left = with_axis_last(golden, static_cast<size_t>(axis));
  const TensorView right = with_axis_last(mine, static_cast<size_t>(axis));
  const auto width = static_cast<size_t>(columns);
  const std::vector<double> mine_columns = sketch_columns(right, rows, width);
  auto order = ColumnMatcher(sketch_columns(left, rows, width), mine_columns, width).run();
  if (!order) return std::nullopt;
  const Errors errors = errors_of(left, right, rows, *order);
  const bool is_rounding = errors.ordered <= kRounding * kRounding * errors.golden;
  const bool is_gain = errors.as_is > 0 && errors.ordered <= kMinGain * kMinGain * errors.as_is;
  if (!is_rounding || !is_gain) return std::nullopt;
  return order;
}

}  // namespace assay::pair
