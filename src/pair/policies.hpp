// SPDX-License-Identifier: Apache-2.0
// Which nodes of two trees belong together: one function a rule.
//
// Each appends pairs of node indices with the tensors that are meant; a pair that is already in the
// list is not appended again (the original counted a score instead, and kept every score). In tree
// order throughout, where the original took whatever order a set had. source: Ascend/msit:
// msit/components/llm/msit_llm/compare/cmp_op_match.py
#pragma once
#include <set>
#include <string_view>
#include <tuple>
#include <vector>

#include "pair/mapping_tables.hpp"
#include "pair/rule.hpp"
#include "pair/tree.hpp"

namespace assay::pair {

struct NodePair {
  int golden = 0;
  int mine = 0;
  Rule rule = Rule::None;
  Location golden_at = "outputs";
  Location mine_at = "outputs";
};

class NodePairs {
 public:
  void add(int golden, int mine, Rule rule, const Location& golden_at = "outputs",
           const Location& mine_at = "outputs");
  [[nodiscard]] const std::vector<NodePair>& list() const { return pairs_; }

 private:
  std::vector<NodePair> pairs_;
  std::set<std::tuple<int, int, Location, Location>> known_;
};

/// Two trees and their layers, as every rule sees them.
struct TreePair {
  const Tree& golden;
  const Tree& mine;
  const Layers& golden_layers;
  const Layers& mine_layers;
  const MappingTables& tables;
};

/// The n-th layer of one side with the n-th of the other; the surplus of the longer side stays
/// alone.
void match_layers(const TreePair& trees, NodePairs* pairs);

/// Embedding, final norm and head by name.
void match_special_layers(const TreePair& trees, NodePairs* pairs);

/// Attention and MLP blocks directly below each pair of layers.
void match_modules(const TreePair& trees, NodePairs* pairs);

/// Breadth first from the roots: children of a pair grouped by type, quantised types counting as
/// the float type they stand for; groups of equal size pair in order.
void match_type_counts(const TreePair& trees, NodePairs* pairs);

/// Within each pair of layers: leaves of exact types, then nodes whose types contain the table's
/// words; groups of equal size pair in order. A linear operation without bias whose next sibling
/// adds is replaced by that sibling.
void match_map_counts(const TreePair& trees, NodePairs* pairs);

/// Rotary embeddings: inputs of my rope operations with the outputs of golden's rotary modules.
void match_rope(const TreePair& trees, NodePairs* pairs);

/// Leaves of each pair of layers by words in their paths, each with each that fits.
void match_enhanced_names(const TreePair& trees, NodePairs* pairs);

/// Grandchildren of each pair of layers: a fused qkv of mine with q_proj, k_proj, v_proj of golden.
void match_fused_qkv(const TreePair& trees, NodePairs* pairs);

/// The user's own rules: nodes of each pair of layers, and nodes outside of layers, whose path or
/// type fits; as many on both sides pair in order.
void match_user_rules(const TreePair& trees, NodePairs* pairs);

}  // namespace assay::pair
