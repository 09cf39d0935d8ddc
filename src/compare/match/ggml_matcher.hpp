// SPDX-License-Identifier: Apache-2.0
// Pairs of a Hugging Face run and a run of a ggml program, whichever of them is golden.
#pragma once
#include "compare/match.hpp"
#include "compare/match/ggml_alignment.hpp"

namespace assay::compare {

/// Precondition: is_ggml_pair().
/// errors  Usage (no tokens in common)
[[nodiscard]] Result<Matching> match_ggml(const run::Run& golden, const run::Run& mine,
                                          const MatchOptions& options);

}  // namespace assay::compare
