// SPDX-License-Identifier: Apache-2.0
// Calls of norms, brought to one form: what evaluate() and magnitudes() work on.
#pragma once
#include "reference/aten/reductions_rows.hpp"
#include "reference/norms/rows.hpp"

namespace assay::reference::aten {

/// y = (x - mean) rstd weight + bias in rows that share mean and rstd.
///
///   layer, rms   the normalised dimensions          [..., normalised]
///   group        the channels of a group, all places [batch groups, channels / groups, places]
///   batch        a channel, all batches and places  [channels, batch, places]
struct Norm {
  TensorView rows;  // [count dimensions..., length dimensions...]
  int64_t count = 0;
  int64_t length = 0;
  bool centred = true;  // false: mean is 0, rms norms
  double eps = 0;
  std::vector<double> weight, bias;  // empty: 1 and 0
  int64_t row_period = 1;            // rows after which weights repeat
  int64_t span = 1;                  // consecutive values of a row that share a weight
  /// Given, not computed: batch norms in evaluation.
  std::vector<double> mean, rstd;

  Dims shape;    // of x and y
  Dims strides;  // of y, whose memory is in rows
  Dims statistics_shape;

  /// The first weight of a row.
  [[nodiscard]] int64_t first_weight(int64_t row) const {
    return row % row_period * (length / (span == 0 ? 1 : span));
  }
};

/// errors  Invalid (shapes that do not fit) | of widen()
[[nodiscard]] Result<Norm> norm_of(const Arguments& arguments);

/// Mean and rstd of one row of values.
[[nodiscard]] RowStatistics row_statistics(const Norm& norm, int64_t row,
                                           std::span<const double> values);

/// Calls f(row, values of x) for every row.
template <typename F>
[[nodiscard]] Status for_each_norm_row(const Norm& norm, F f) {
  Rows rows;
  rows.view = norm.rows;
  rows.count = norm.count;
  rows.length = norm.length;
  return for_each_row<double>(rows, f);
}

/// Values in rows as the tensor y is.
[[nodiscard]] Tensor norm_result(const Norm& norm, Wide rows);

}  // namespace assay::reference::aten
