// SPDX-License-Identifier: Apache-2.0
// Steps of either run that were not held against the other's: a verdict speaks of the others only.
#pragma once
#include <string>
#include <vector>

#include "locate/verdict/verdict.hpp"

namespace assay::locate {

/// Those from which on mine was given other tokens, those that one run has alone, and, where steps
/// are paired by their tokens, those whose tokens one run alone computed.
[[nodiscard]] std::vector<UnjudgedSteps> unjudged_steps(const Stages& stages);

/// "step 4", "steps 4 to 7", "3 of the steps 4 to 9".
///
/// steps  ascending, one at least
[[nodiscard]] std::string steps_text(const std::vector<int64_t>& steps);

/// "steps 4 to 7, which have other tokens"; "steps 8 to 11, which golden alone has"
[[nodiscard]] std::string unjudged_text(const UnjudgedSteps& steps);

}  // namespace assay::locate
