// SPDX-License-Identifier: Apache-2.0
// Some steps of a run as a run of its own: one of several scenarios that a process ran.
#pragma once
#include <cstdint>

#include "run/run.hpp"

namespace assay::repeat {

/// The steps from `first` on, which are 0, 1 ... then. What belongs to no step stays.
[[nodiscard]] run::Run steps_of(const run::Run& run, int64_t first, int64_t count);

/// Steps of the run, 0 and those that were not captured included.
[[nodiscard]] int64_t step_count(const run::Run& run);

}  // namespace assay::repeat
