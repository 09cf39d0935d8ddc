// SPDX-License-Identifier: Apache-2.0
// Pairs of a Hugging Face run and a run of a ggml program, whichever of them is golden.
#pragma once
#include "engines/ggml/alignment.hpp"
#include "pair/match.hpp"

namespace assay::engines::ggml {

/// errors  of pair::match_named()
[[nodiscard]] Result<pair::Matching> match_rows(const run::Run& golden, const run::Run& mine,
                                                bool golden_is_ggml, const Alignment& alignment,
                                                const pair::Correspondence& pairs,
                                                const pair::MatchOptions& options);

}  // namespace assay::engines::ggml
