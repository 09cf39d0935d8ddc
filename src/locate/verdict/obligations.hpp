// SPDX-License-Identifier: Apache-2.0
// What must hold before a run may be called clean: a list that can be read, not the absence of
// findings.
#pragma once
#include "locate/verdict/verdict.hpp"

namespace assay::locate {

/// Neither run's files contradict each other.
inline constexpr std::string_view kRunsAreWhole = "runs are whole";
inline constexpr std::string_view kRunsAreComplete = "runs are complete";
// What is of the runs as a whole, whatever was captured of mine.
inline constexpr std::string_view kModelsAreTheSame = "models are the same";
inline constexpr std::string_view kInputsAreEqual = "inputs are equal";
inline constexpr std::string_view kStepsAreTheSame = "steps are the same";

/// Every obligation of the way the run was judged, in the order in which a person should close
/// them.
///
/// verdict    with level and coverage
/// undecided  suspicions that no replay could confirm or refute
[[nodiscard]] std::vector<Obligation> clean_obligations(const Stages& stages,
                                                        const Verdict& verdict,
                                                        const std::vector<Finding>& undecided);

/// "model.layers.3: an operator more", of the finding that comes first in execution.
[[nodiscard]] std::string first_place(const std::vector<Finding>& findings);

}  // namespace assay::locate
