// SPDX-License-Identifier: Apache-2.0
// The shape of an error in words: "all in channel 3 of 64", "all from row 300 of 512 on",
// "everywhere".   docs/metrics.md, "Where two tensors differ"
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "measure/cell_grid.hpp"

namespace assay::measure {

/// First and last position on an axis of the grid, among the values of a cell whose error is at
/// least `least`.
using PositionsOf =
    std::function<std::pair<int64_t, int64_t>(int64_t cell, size_t axis, double least)>;

/// codes      of ErrorScale, the largest error of each cell
/// error_of   error of a code
/// positions  asked at the edges of bins that hold several positions
[[nodiscard]] std::string shape_of_error(const PooledErrors& pooled,
                                         const std::vector<uint8_t>& codes,
                                         const std::function<double(uint8_t)>& error_of,
                                         const PositionsOf& positions);

}  // namespace assay::measure
