// SPDX-License-Identifier: Apache-2.0
// Tensors for the eye: values, histograms, statistics.
#pragma once
#include <string>
#include <vector>

#include "stats/tensor_stats.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::cli {

/// Texts of the elements [first, first + count) in C order: the shortest digits that read back to
/// the same value of the element's type ("0.1" for float32 0.1), integers exactly, complex as
/// "1+2j", bool as "True". Elements that hold several values (packed types) give one text a value.
[[nodiscard]] std::vector<std::string> value_texts(const TensorView& view, int64_t first,
                                                   int64_t count);

/// Lines "[0, 0, 8]  1.5  -2  0.25 ..." with `per_line` values each, aligned. `edge` values from both ends, all when
/// edge is negative.
[[nodiscard]] std::string value_lines(const TensorView& view, int64_t edge, int width);

/// One line a bin: lower edge, bar, count. The longest bar fills `width` columns. Values between
/// min and max of the finite ones; non-finite values are counted below.
[[nodiscard]] std::string histogram_lines(const TensorView& view, const stats::TensorStats& stats,
                                          int bins, int width);

/// %.6g
[[nodiscard]] std::string short_number(double value);

}  // namespace assay::cli
