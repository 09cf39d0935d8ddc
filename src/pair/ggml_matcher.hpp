// SPDX-License-Identifier: Apache-2.0
// Pairs of a Hugging Face run and a run of a ggml program, whichever of them is golden.
#pragma once
#include "pair/ggml_alignment.hpp"
#include "pair/match.hpp"

namespace assay::pair {

/// Precondition: is_ggml_pair().
/// errors  Usage (no tokens in common)
[[nodiscard]] Result<Matching> match_ggml(const run::Run& golden, const run::Run& mine,
                                          const MatchOptions& options);

}  // namespace assay::pair
