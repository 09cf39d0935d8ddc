// SPDX-License-Identifier: Apache-2.0
// What became of one row of a batch, as JSON.   docs/invariance.md
#pragma once
#include <string>

#include "repeat/leaks.hpp"

namespace assay::report {

/// One object: `findings`, in the order of execution, and how many operators were judged.
[[nodiscard]] std::string rows_json(const repeat::RowComparison& comparison);

/// A list with the place of each operator of a run, as findings have it.
[[nodiscard]] std::string places_json(const repeat::Execution& run);

}  // namespace assay::report
