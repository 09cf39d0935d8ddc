// SPDX-License-Identifier: Apache-2.0
// Each way of writing a weight otherwise is fitted by medians; the one that leaves the least in the
// middle value counts, of those that leave nothing the plainest.
#include "locate/judge/rewritten_weight.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <vector>

#include "measure/metrics.hpp"
#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using reference::Wide;

constexpr int64_t kMost = int64_t{1} << 24;  // values
constexpr size_t kMostInOrder = 8192;        // rows, each of which is held against each
constexpr double kRounding = 1.0 / 512;      // of a value: what is left counts as nothing
constexpr size_t kSketch = 64;               // sums of random sign that a row is known by

/// A weight as a matrix, or its transpose.
class Matrix {
 public:
  Matrix(std::vector<double> values, size_t rows, size_t columns)
      : values_(std::move(values)), rows_(rows), columns_(columns) {}

  [[nodiscard]] size_t rows() const { return rows_; }
  [[nodiscard]] size_t columns() const { return columns_; }
  [[nodiscard]] double at(size_t i, size_t j) const { return values_[i * columns_ + j]; }
  double& at(size_t i, size_t j) { return values_[i * columns_ + j]; }
  [[nodiscard]] const std::vector<double>& values() const { return values_; }

  [[nodiscard]] Matrix transposed() const {
    Matrix turned(std::vector<double>(values_.size()), columns_, rows_);
    for (size_t i = 0; i < rows_; ++i) {
      for (size_t j = 0; j < columns_; ++j) turned.at(j, i) = at(i, j);
    }
    return turned;
  }

 private:
  std::vector<double> values_;
  size_t rows_, columns_;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

double ratio_of_values(const std::vector<double>& golden, const std::vector<double>& mine) {
  std::vector<double> ratios;
  for (size_t i = 0; i < golden.size(); ++i) {
    if (golden[i] != 0) ratios.push_back(mine[i] / golden[i]);
  }
  return median(std::move(ratios));
}

Matrix times_one_factor(const Matrix& golden, const Matrix& mine) {
  const double factor = ratio_of_values(golden.values(), mine.values());
  Matrix made = golden;
  for (size_t i = 0; i < made.rows(); ++i) {
    for (size_t j = 0; j < made.columns(); ++j) made.at(i, j) *= factor;
  }
  return made;
}

std::vector<double> row_of(const Matrix& matrix, size_t i) {
  const auto first = matrix.values().begin() + static_cast<std::ptrdiff_t>(i * matrix.columns());
  return {first, first + static_cast<std::ptrdiff_t>(matrix.columns())};
}

Matrix times_factors_of_rows(const Matrix& golden, const Matrix& mine) {
  Matrix made = golden;
  for (size_t i = 0; i < made.rows(); ++i) {
    const double factor = ratio_of_values(row_of(golden, i), row_of(mine, i));
    for (size_t j = 0; j < made.columns(); ++j) made.at(i, j) *= factor;
  }
  return made;
}

Matrix with_numbers_added_to_rows(const Matrix& golden, const Matrix& mine) {
  Matrix made = golden;
  for (size_t i = 0; i < made.rows(); ++i) {
    std::vector<double> differences(made.columns());
    for (size_t j = 0; j < made.columns(); ++j) differences[j] = mine.at(i, j) - golden.at(i, j);
    const double added = median(std::move(differences));
    for (size_t j = 0; j < made.columns(); ++j) made.at(i, j) += added;
  }
  return made;
}

using Sketch = std::array<double, kSketch>;

/// Of each row, of length one.
std::vector<Sketch> sketches_of(const Matrix& matrix) {
  std::minstd_rand draw(1);
  std::vector<Sketch> signs(matrix.columns());
  for (Sketch& one : signs) {
    for (double& sign : one) sign = (draw() >> 8) % 2 == 0 ? 1 : -1;
  }
  std::vector<Sketch> sketches(matrix.rows());
  for (size_t i = 0; i < matrix.rows(); ++i) {
    sketches[i].fill(0);
    double square = 0;
    for (size_t j = 0; j < matrix.columns(); ++j) {
      for (size_t k = 0; k < kSketch; ++k) sketches[i][k] += signs[j][k] * matrix.at(i, j);
    }
    for (const double sum : sketches[i]) square += sum * sum;
    for (double& sum : sketches[i]) sum /= square > 0 ? std::sqrt(square) : 1;
  }
  return sketches;
}

/// A row in another place is mostly as it was, or negated; noise is no factor.
double plain_factor(double factor) {
  constexpr double kNear = 0.02;
  return std::fabs(std::fabs(factor) - 1) < kNear ? std::copysign(1.0, factor) : factor;
}

/// Of golden's rows the nearest to each of mine, each with a factor of its own.
Matrix with_rows_in_another_order(const Matrix& golden, const Matrix& mine) {
  const std::vector<Sketch> theirs = sketches_of(golden), ours = sketches_of(mine);
  const auto likeness = [](const Sketch& a, const Sketch& b) {
    double product = 0;
    for (size_t k = 0; k < kSketch; ++k) product += a[k] * b[k];
    return std::fabs(product);
  };
  Matrix made = golden;
  for (size_t i = 0; i < made.rows(); ++i) {
    const auto nearest = std::ranges::max_element(
        theirs, {}, [&](const Sketch& one) { return likeness(one, ours[i]); });
    const std::vector<double> row = row_of(golden, static_cast<size_t>(nearest - theirs.begin()));
    const double factor = plain_factor(ratio_of_values(row, row_of(mine, i)));
    for (size_t j = 0; j < made.columns(); ++j) made.at(i, j) = factor * row[j];
  }
  return made;
}

double middle_difference(const Matrix& made, const Matrix& mine) {
  std::vector<double> differences(made.values().size());
  for (size_t i = 0; i < differences.size(); ++i)
    differences[i] = std::fabs(made.values()[i] - mine.values()[i]);
  return median(std::move(differences));
}

double middle_size(const Matrix& matrix) {
  std::vector<double> sizes(matrix.values().size());
  std::ranges::transform(matrix.values(), sizes.begin(), [](double x) { return std::fabs(x); });
  return median(std::move(sizes));
}

}  // namespace

std::optional<RewrittenWeight> as_rewritten(const Tensor& golden, const Tensor& mine) {
  const Dims& shape = golden.view.shape;
  if (!(shape == mine.view.shape) || shape.empty() || golden.view.element_count() > kMost ||
      golden.view.element_count() == 0)
    return std::nullopt;
  Result<Wide> theirs = reference::widen(golden.view), ours = reference::widen(mine.view);
  if (!theirs || !ours) return std::nullopt;
  const auto rows = static_cast<size_t>(shape[0]);
  const size_t columns = theirs->values.size() / rows;
  const auto matrix = [&](const Wide& wide) {
    return Matrix({wide.values.begin(), wide.values.end()}, rows, columns);
  };
  const Matrix right = matrix(*theirs), wrong = matrix(*ours);
  const double nothing = kRounding * middle_size(wrong);
  Matrix best = right;
  double least = middle_difference(right, wrong);
  const auto offer = [&](const auto& make) {
    if (least <= nothing) return;
    Matrix made = make();
    const double left = middle_difference(made, wrong);
    if (left >= least / 2) return;
    least = left;
    best = std::move(made);
  };
  offer([&] { return times_one_factor(right, wrong); });
  for (const auto& fit : {times_factors_of_rows, with_numbers_added_to_rows}) {
    if (columns > 1) offer([&] { return fit(right, wrong); });
    if (rows > 1) offer([&] { return fit(right.transposed(), wrong.transposed()).transposed(); });
  }
  if (rows <= kMostInOrder) offer([&] { return with_rows_in_another_order(right, wrong); });
  if (columns > 1 && columns <= kMostInOrder)
    offer([&] {
      return with_rows_in_another_order(right.transposed(), wrong.transposed()).transposed();
    });
  Wide expected(shape);
  std::ranges::copy(best.values(), expected.values.begin());
  RewrittenWeight found{reference::to_tensor(std::move(expected)), 0};
  found.difference = measure::relative_l2(found.expected.view, mine.view);
  return found;
}

}  // namespace assay::locate
