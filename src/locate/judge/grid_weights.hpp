// SPDX-License-Identifier: Apache-2.0
// Weights that were quantised and put back in place: their values lie on the grid of their codes.
//   docs/localisation.md, "Pair tests"
#pragma once
#include "locate/judge/coded_weights.hpp"

namespace assay::locate {

/// How far a weight is from golden's in half steps of the grid that its own values lie on. The grid
/// is found, not given: whole numbers times a step (of the tensor, of rows, of columns or of groups
/// of either, with or without an offset), the levels of nf4, or floats of four or eight bits times a
/// scale. Nothing: its values lie on none, but for what chance makes lie there.
[[nodiscard]] std::optional<StepDifference> grid_difference(const TensorView& golden,
                                                            const TensorView& mine);

}  // namespace assay::locate
