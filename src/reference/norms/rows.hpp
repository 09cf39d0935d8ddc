// SPDX-License-Identifier: Apache-2.0
// Rows of a tensor as fp64: what the norms of this folder share.
#pragma once
#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reference/wide.hpp"

namespace assay::reference {

/// One addend of a norm's input: factor * view.
struct Term {
  TensorView view;
  double factor = 1.0;
};

/// The sum of factor * view over all terms, in the order given; read block by block, so that a row
/// is normalised while it is in the cache.
class Summed {
 public:
  /// terms     the first sets the shape; every other one has that shape or the sizes it ends with
  ///           (a bias of [hidden]), leading ones apart
  /// errors    Invalid (no term, other shapes) | Unsupported (no real numbers) | TooLarge
  [[nodiscard]] static Result<Summed> of(std::span<const Term> terms);

  [[nodiscard]] const Dims& shape() const { return first_.view.shape; }
  /// Elements [first, first + count) in C order.
  void read(int64_t first, int64_t count, double* out);

 private:
  struct Short {  // a bias
    Wide values;
    double factor;
  };
  Term first_;
  std::vector<Term> whole_;  // terms of the same element count
  std::vector<Short> short_;
  std::vector<double> block_;
};

/// All of the sum.
/// errors    of Summed::of()
[[nodiscard]] Result<Wide> sum_of(std::span<const Term> terms);

/// Invalid: "gamma has shape [3], x has shape [2, 4]"
[[nodiscard]] Error shapes_differ(std::string_view name, const Dims& shape, std::string_view other,
                                  const Dims& other_shape);

/// A shape without its leading ones; at least one dimension stays.
[[nodiscard]] Dims without_leading_ones(const Dims& shape);

/// Values that repeat over the end of a shape: gamma over the last dimensions of x.
class Repeated {
 public:
  /// value     its shape, leading ones apart, is what `shape` ends with
  /// errors    Invalid "gamma has shape [3], x has shape [2, 4]" | Unsupported | TooLarge
  [[nodiscard]] static Result<Repeated> over(const Dims& shape, int64_t row_length,
                                             const TensorView& value, std::string_view name,
                                             std::string_view whole = "x");

  /// The values of row `row`: row_length of them.
  [[nodiscard]] const double* row(int64_t row) const {
    return values_.data() + (row * row_length_) % period_;
  }
  /// For 1 + gamma.
  void add(double summand);

 private:
  std::vector<double> values_;
  int64_t row_length_ = 1;
  int64_t period_ = 1;  // elements; a multiple of row_length_ or the row length itself
};

/// The last `dims` dimensions as rows.
struct RowShape {
  int64_t count = 0;   // rows
  int64_t length = 0;  // elements of a row
};
/// errors  Invalid (more dimensions than the shape has, or none) | of checked_count()
[[nodiscard]] Result<RowShape> rows_of(const Dims& shape, size_t dims);
/// How many rows are read at once: a few thousand elements.
[[nodiscard]] int64_t rows_in_block(const RowShape& rows);
/// Fills `result` with the sum and calls then(row) for each row while it is in the cache.
template <typename Then>
void for_each_row(Summed& sum, const RowShape& rows, Wide& result, Then then) {
  if (rows.length == 0) return;
  const int64_t step = rows_in_block(rows);
  for (int64_t first = 0; first < rows.count; first += step) {
    const int64_t count = std::min(step, rows.count - first);
    sum.read(first * rows.length, count * rows.length, result.data() + first * rows.length);
    for (int64_t row = first; row < first + count; ++row) then(row);
  }
}
/// The shape with a one for each of the last `dims` dimensions.
[[nodiscard]] Dims reduced_shape(const Dims& shape, size_t dims);

// Kernels over one row. Sums have a fixed order: eight lanes, then the lanes, then the rest.
[[nodiscard]] double row_sum(const double* values, int64_t count);
[[nodiscard]] double row_sum_of_squares(const double* values, int64_t count, double mean);
[[nodiscard]] double row_dot(const double* a, const double* b, int64_t count);
/// What a norm takes off a row and multiplies it by.
struct RowStatistics {
  double mean, rstd;
};
/// The mean (0 unless `centred`) and 1 / sqrt(mean of (value - mean)^2 + eps).
[[nodiscard]] RowStatistics row_statistics(const double* values, int64_t count, bool centred,
                                           double eps);
/// (values - mean) * factor * gamma + beta in place; nullptr for gamma: 1, for beta: 0.
void normalise_row(double* values, int64_t count, double mean, double factor, const double* gamma,
                   const double* beta);
/// Each value rounded to the nearest float16, halves to even; the same as round_to(), for rows.
void round_row_to_float16(double* values, int64_t count);

/// What kinds of norms differ in.
struct NormOptions {
  bool centred = false;  // the mean is taken off
  double eps = 1e-5;
  size_t dims = 1;                // how many of the last dimensions are normalised together
  bool unit_offset = false;       // gamma' = 1 + gamma
  bool round_to_float16 = false;  // before gamma
};
/// Rows of the sum of all terms, normalised, times gamma', plus beta; absent: 1 and 0.
/// errors  of Summed::of(), rows_of(), Repeated::over()
[[nodiscard]] Result<Wide> normalised(std::span<const Term> terms,
                                      const std::optional<TensorView>& gamma,
                                      const std::optional<TensorView>& beta,
                                      const NormOptions& options);

}  // namespace assay::reference
