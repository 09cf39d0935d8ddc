// SPDX-License-Identifier: Apache-2.0
// The trees of a run flattened in pre-order, with the names that rules look at, and their repeated
// layers.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "run/run.hpp"

namespace assay::pair {

/// The name under which nodes of different layouts meet: the strict torch tree says
/// "root.model.norm" and "root", every other layout "model.norm" and "".
[[nodiscard]] std::string shared_node_name(const run::Run& run, std::string_view node);

struct TreeNode {
  std::string name;     // shared_node_name(): what records carry
  std::string type;     // module class or operation type
  std::string op_name;  // "RmsNormOperation_13" of ATB; of torch the path
  std::string path;     // what path rules look at: "1_Prefill_layer/1_Attention", "root.model.norm"
  int parent = -1;
  std::vector<int> children = {};                      // indices, in declaration order
  std::map<std::string, std::string> parameters = {};  // of an ATB operation
};

struct Tree {
  std::vector<TreeNode> nodes;  // pre-order; node 0 is the root; empty without a topology

  [[nodiscard]] const TreeNode& at(int node) const { return nodes[static_cast<size_t>(node)]; }
  [[nodiscard]] bool is_leaf(int node) const { return at(node).children.empty(); }
  /// Index of the node with that shared name, -1 when there is none.
  [[nodiscard]] int find(std::string_view name) const;
  /// `node` and everything below it, in pre-order.
  [[nodiscard]] std::vector<int> subtree(int node) const;
};

/// One tree a model: of torch one, of ATB one for each of Run::models (prompt, decoder), also when
/// no topology was dumped and the folders are all there is. Empty: the layout has no tree.
[[nodiscard]] std::vector<Tree> trees_of(const run::Run& run);

/// Which of the trees of trees_of() a node belongs to, 0 when there is only one.
/// model_starts   first top-level id of each ATB model, ascending
[[nodiscard]] size_t part_of_node(std::string_view node, const std::vector<uint64_t>& model_starts);
/// Of an ATB run; empty for other layouts.
[[nodiscard]] std::vector<uint64_t> model_starts_of(const run::Run& run);

/// The repeated block of a model: nodes of one type in pre-order, none inside another.
struct Layers {
  std::string type;  // empty when the tree has no repeated block
  std::vector<int> nodes;
};

/// The original's rule: depth first, the first node with more than 10 children decides; its most
/// frequent child type is the layer type when it occurs more than 5 times.
/// short_models    also accept models of up to 10 layers: when the rule finds nothing, the first
///                 node of which at least two children are of one type and have children of their
///                 own
[[nodiscard]] Layers find_layers(const Tree& tree, bool short_models);

}  // namespace assay::pair
