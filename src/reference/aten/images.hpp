// SPDX-License-Identifier: Apache-2.0
// Operators on planes of values: pooling, resizing, patches.
#pragma once
#include "reference/aten/values.hpp"

namespace assay::reference::aten {

/// Sums of values that lie near each other: averages of windows, resized planes, patches put back.
[[nodiscard]] bool is_sum_of_neighbours(std::string_view name);

/// The result of such an operator, computed in fp64; `absolute`: on |x| and |weight|, for its
/// magnitudes.
struct NeighbourSums {
  Wide sums;
  /// How many terms an element has, counting for K of a sum. Weights that a kernel computes from
  /// positions are as far off as the positions, whose error grows with the plane.
  double terms = 1;
};
/// errors  Invalid (operands that do not fit) | TooLarge
[[nodiscard]] Result<NeighbourSums> sum_neighbours(const Arguments& arguments, bool absolute);

}  // namespace assay::reference::aten
