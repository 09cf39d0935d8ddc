// SPDX-License-Identifier: Apache-2.0
// What of golden a comparison says nothing about, so that "same" would be more than it knows.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "compare/compare.hpp"

namespace assay::compare {

/// Which side is damaged as far as it is known by now, and in what, one sentence each.
[[nodiscard]] std::vector<std::string> find_damage(const run::Run& golden, const run::Run& mine);

/// Why the two runs are not comparable as a whole, one sentence each; empty: they are.
///
/// A run that did not finish or lost tensors; tensors of golden without partner, and those whose
/// partner was chosen because it holds the same values. What the user left out (options.user,
/// level) is not missing, nor is what options.allow_unmatched names.
[[nodiscard]] std::vector<std::string> find_gaps(const run::Run& golden, const run::Run& mine,
                                                 const Comparison& comparison,
                                                 const CompareOptions& options);

/// What the limits say; nothing where none were given, or where nothing is beyond one but the runs
/// are not comparable as a whole.
[[nodiscard]] std::optional<bool> limits_hold(const Comparison& comparison);

}  // namespace assay::compare
