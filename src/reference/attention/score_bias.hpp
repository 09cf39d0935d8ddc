// SPDX-License-Identifier: Apache-2.0
// What is added to attention scores before the softmax: masks, causal rules, ALiBi.
//   docs/opcheck/attention.md
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// The terms of one sequence with m query rows and n key columns; all that are set add up.
/// Row i of the query stands at position p = i + offset of the keys; with the queries at the end of
/// the keys offset = n - m.
struct ScoreBias {
  /// [heads, m, n] or more rows and columns than that; a dimension shared by all heads or rows has
  /// stride 0. Borrowed.
  std::optional<TensorView> dense;
  double coefficient = 1;  // factor of `dense`
  /// Factors of `dense` beside it, one a head; empty: 1.
  std::vector<double> head_coefficients;
  /// Above 0: `dense` holds only so many columns; block t of columns is the same block moved down
  /// by t * block_columns rows, and what lies above it is forbidden (compressed ALiBi of shape
  /// [heads, s, 128]).
  int64_t block_columns = 0;

  int64_t offset = 0;
  bool causal = false;  // columns j > p are forbidden
  int64_t window = 0;   // above 0: columns j <= p - window are forbidden
  /// Added to forbidden scores.
  double forbidden = -std::numeric_limits<double>::infinity();

  /// One per head: adds slope * distance to columns j <= p; empty: none.
  std::vector<double> slopes;
  enum class Distance : uint8_t {
    Relative,    // p - j
    SquareRoot,  // sqrt(p - j)
    Column,      // j, for j > p as well
  } distance = Distance::Relative;
};

/// Adds the terms of one row to its scores, columns [0, scores.size()).
/// scratch  scores.size() doubles
void add_bias(const ScoreBias& bias, int64_t head, int64_t row, std::span<double> scores,
              std::span<double> scratch);

/// Columns behind the last one that row `row` or an earlier one can see; `columns` when any may be
/// seen.
[[nodiscard]] int64_t visible_columns(const ScoreBias& bias, int64_t row, int64_t columns);

/// Slopes of ALiBi for a number of heads: with n the largest power of two in it, 2^(-max_bias k/n)
/// for k = 1..n, then 2^(-max_bias (2k-1) / 2n) for the rest.
[[nodiscard]] std::vector<double> alibi_slopes(int64_t heads, double max_bias = 8);

/// True when every value is 0 or 1; stops at the first other value. False for an empty view.
[[nodiscard]] bool is_zero_one(const TensorView& view);

}  // namespace assay::reference
