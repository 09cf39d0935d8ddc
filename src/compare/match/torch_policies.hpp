// SPDX-License-Identifier: Apache-2.0
// Which nodes of two torch module trees belong together: one function a rule of the original.
//
// Each appends pairs of node indices; a pair that is already in the list is not appended again (the
// original counted a score instead, and kept every score).
#pragma once
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "compare/match/tree.hpp"

namespace assay::compare {

struct NodePair {
  int golden = 0;
  int mine = 0;
  std::string_view policy;  // "layer_match" ...; a literal
};

class NodePairs {
 public:
  void add(int golden, int mine, std::string_view policy);
  [[nodiscard]] const std::vector<NodePair>& list() const { return pairs_; }

 private:
  std::vector<NodePair> pairs_;
  std::set<std::pair<int, int>> known_;
};

/// The n-th layer of one side with the n-th of the other; the surplus of the longer side stays
/// alone.
void match_layers(const Layers& golden, const Layers& mine, NodePairs* pairs);

/// Embedding, final norm and head by name. `mine` carries names of the ATB library in the original,
/// so between two torch trees only names that contain those words match.
void match_special_layers(const Tree& golden, const Tree& mine, NodePairs* pairs);

/// Attention and MLP blocks directly below each pair of layers.
void match_modules(const Tree& golden, const Tree& mine, const Layers& golden_layers,
                   const Layers& mine_layers, NodePairs* pairs);

/// The last child of the last child ... of both roots, roots included, each with each.
void match_outputs(const Tree& golden, const Tree& mine, NodePairs* pairs);

/// Equal names, the roots excepted.
void match_full_names(const Tree& golden, const Tree& mine, NodePairs* pairs);

/// Breadth first from the roots: children of a pair grouped by type; groups of equal size pair in
/// order.
void match_type_counts(const Tree& golden, const Tree& mine, NodePairs* pairs);

/// Grandchildren of each pair of layers: a fused qkv of mine with q_proj, k_proj, v_proj of golden.
void match_fused_qkv(const Tree& golden, const Tree& mine, const Layers& golden_layers,
                     const Layers& mine_layers, NodePairs* pairs);

}  // namespace assay::compare
