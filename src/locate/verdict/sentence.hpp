// SPDX-License-Identifier: Apache-2.0
// A verdict in one sentence, and what people want to know besides.
//   docs/localisation.md, "The sentence"
#pragma once
#include <string>
#include <vector>

#include "locate/verdict/locate.hpp"

namespace assay::locate {

/// "first bad: model.layers.5.input_layernorm (LlamaRMSNorm, step 0): weight differs from golden
/// ..." "clean: all 512 operators are exact to rounding ..." "cannot judge: golden was captured
/// without operators ..."
[[nodiscard]] std::string sentence(const Verdict& verdict);

/// Where a finding is: "model.layers.5.mlp.down_proj (Linear: aten.mm.default, step 0)".
[[nodiscard]] std::string place_of(const Finding& finding);
/// What is wrong there, in clauses separated by "; ".
[[nodiscard]] std::string clause_of(const Finding& finding);

/// What `clean` stands on, one line each: "holds: inputs are equal", "open: operators are judged:
/// ...", "power: ...".
[[nodiscard]] std::vector<std::string> checked_list(const Verdict& verdict);

/// What the runs choose and how far their distributions are apart (`--tokens`), one sentence each.
[[nodiscard]] std::vector<std::string> token_lines(const Verdict& verdict);

/// Further candidates, faults that are the same in all layers, coarse kernels, notes: one sentence
/// each.
[[nodiscard]] std::vector<std::string> remarks(const Verdict& verdict);

}  // namespace assay::locate
