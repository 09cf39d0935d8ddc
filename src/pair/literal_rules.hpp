// SPDX-License-Identifier: Apache-2.0
// Rules of another program, taken to the letter: every pair they make, in their order, duplicates
// and other shapes included.
#pragma once
#include <string_view>
#include <vector>

#include "pair/graph_operands.hpp"
#include "pair/match.hpp"
#include "pair/policies.hpp"
#include "pair/tokens.hpp"

namespace assay::pair {

class GraphMatcher;

/// What a vendor's room hands in (MatchOptions::literal). Shapes, values and names decide nothing,
/// and what is left alone is not listed.
struct LiteralRules {
  /// Appends the pairs of nodes at api level; at the other levels the rules are ours.
  void (*match_api)(const TreePair& trees, NodePairs* pairs);
  TokenTable (*token_table)(const StepParts& steps);
  /// Which tensors of a node take part, and in which order.
  void (*choose)(const run::Run& run, bool statistics, std::vector<size_t>* records);
  /// The pairs of one operator of a graph of mine.
  void (*match_operator)(GraphMatcher& matcher, const Operands& op, const Operators& golden);
  /// The order of a graph's pairs.
  void (*sort_graph)(std::vector<RecordPair>* pairs);
};

}  // namespace assay::pair
