// SPDX-License-Identifier: Apache-2.0
// The tokens that two runs choose, position by position.   docs/localisation.md, "Tokens"
#pragma once
#include <optional>

#include "locate/verdict/locate.hpp"
#include "locate/verdict/same_inputs.hpp"

namespace assay::locate {

/// Compares the logits of every position of every step that both runs have: the output `logits` of
/// the model, or that of its head (`lm_head`, `embed_out`, `output_layer`). Where one of them has
/// fewer positions they are the last ones. Positions that a mask of integers, one a token, hides
/// are left out, and so are those that mine did not compute.
///
/// inputs   what mine was given otherwise; only `first` goes beyond that step
/// returns  no positions when no logits were captured on both sides
[[nodiscard]] TokenChoices find_token_choices(const Program& golden, const Program& mine,
                                              const std::optional<InputDifference>& inputs);

/// A choice counts as a near tie when golden's margin is at most this many times the noise of the
/// position. The largest difference of the two tokens themselves cannot decide: where the choice
/// flips, twice that is never below the margin.
inline constexpr double kNearTie = 4;

/// The gap, in units of the noise, that the noise of one among `chances` tokens bridges once in
/// 100 000 runs.
[[nodiscard]] double limit_of_gaps(double chances);

}  // namespace assay::locate
