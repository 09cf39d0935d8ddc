// SPDX-License-Identifier: Apache-2.0
// The columns of a comparison of weights, in the original's order, ours to the right.
// docs/commands/compare-weights.md
#pragma once
#include "report/table.hpp"

namespace assay::report {

/// One row a weight. `--compat msit`: the original's columns alone, without its filtered rows.
[[nodiscard]] Table build_weights_table(const compare::Comparison& comparison,
                                        const compare::Sheet& sheet);

}  // namespace assay::report
