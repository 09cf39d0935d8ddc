// SPDX-License-Identifier: Apache-2.0
// The first token that the two runs choose differently.
#pragma once
#include "locate/verdict/locate.hpp"

namespace assay::locate {

/// Compares the largest logits of the last position of every sequence, step by step. Logits are the
/// output `logits` of the model, or that of its head (`lm_head`, `embed_out`, `output_layer`).
///
/// returns  step -1 when all choices agree or no logits were captured on both sides
[[nodiscard]] TokenDivergence find_token_divergence(const run::Run& golden, const run::Run& mine);

/// A choice counts as a near tie when golden's margin is at most this many times what the logits of
/// the position differ by, as the root of the mean square over the vocabulary without their common
/// shift. The largest difference of the two tokens themselves cannot decide: where the choice
/// flips, twice that is never below the margin.
inline constexpr double kNearTie = 4;

}  // namespace assay::locate
