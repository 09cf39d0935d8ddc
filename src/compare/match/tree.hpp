// SPDX-License-Identifier: Apache-2.0
// A module tree flattened in pre-order, with the names both sides share, and its repeated layers.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run/run.hpp"

namespace assay::compare {

/// The name under which nodes of different layouts meet: the strict torch tree says
/// "root.model.norm" and "root", every other layout "model.norm" and "".
[[nodiscard]] std::string shared_node_name(const run::Run& run, std::string_view node);

struct TreeNode {
  std::string name;  // shared_node_name()
  std::string type;  // module class
  int parent = -1;
  std::vector<int> children;  // indices, in declaration order
};

struct Tree {
  std::vector<TreeNode> nodes;  // pre-order; node 0 is the root; empty without a topology

  /// The name as the original's rules saw it, with its leading "root".
  [[nodiscard]] std::string full_name(int node) const;
  [[nodiscard]] bool is_leaf(int node) const {
    return nodes[static_cast<size_t>(node)].children.empty();
  }
};

[[nodiscard]] Tree flatten_tree(const run::Run& run);

/// The repeated block of a model: nodes of one type in pre-order, none inside another.
struct Layers {
  std::string type;  // empty when the tree has no repeated block
  std::vector<int> nodes;
};

/// The original's rule: depth first, the first node with more than 10 children decides; its most
/// frequent child type is the layer type when it occurs more than 5 times.
/// short_models    also accept models of up to 10 layers: when the rule finds nothing, the first
/// node
///                 whose children (at least two) are numbered and of one type
[[nodiscard]] Layers find_layers(const Tree& tree, bool short_models);

}  // namespace assay::compare
