// SPDX-License-Identifier: Apache-2.0
// Which tensors msit 8.2 compared with which.   docs/commands/msit-llm-compare.md
#pragma once
#include "pair/literal_rules.hpp"

namespace assay::vendor::msit {

/// Run 0 of two models is a warm-up, whatever the folders say.
[[nodiscard]] pair::TokenTable token_table(const pair::StepParts& steps);

// graph_pairs.cpp
void match_operator(pair::GraphMatcher& matcher, const pair::Operands& op,
                    const pair::Operators& golden);
void sort_graph(std::vector<pair::RecordPair>* pairs);

[[nodiscard]] const pair::LiteralRules& pair_rules();

}  // namespace assay::vendor::msit
