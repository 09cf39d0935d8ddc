// SPDX-License-Identifier: Apache-2.0
// Judging a part of one output; the whole is judge_output() in own_error.hpp.
#pragma once
#include <span>

#include "locate/judge/own_error.hpp"

namespace assay::locate {

/// Rows of a large product that stand for all: `count` evenly spread from the first to the last,
/// and the one with the largest value of mine. A NaN counts as largest. Ascending.
[[nodiscard]] std::vector<int64_t> sample_rows(const TensorView& mine, int64_t count);

/// judge_output() of some rows (all axes but the last as one) of a product, of which no other rows
/// are computed.
///
/// rows     ascending
/// errors   of aten::product_rows(): Unsupported where rows cannot be had alone | of judge_output()
[[nodiscard]] Result<OwnError> judge_product_rows(const reference::aten::Call& call,
                                                  const TensorView& mine,
                                                  std::span<const int64_t> rows, int jobs);

}  // namespace assay::locate
