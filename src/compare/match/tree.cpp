// SPDX-License-Identifier: Apache-2.0
#include "compare/match/tree.hpp"

#include <algorithm>
#include <map>

namespace assay::compare {
namespace {

constexpr size_t kManyChildren = 10;       // spec: more than 10 children ...
constexpr size_t kLayersOfOneType = 5;     // ... of which more than 5 have one type
constexpr size_t kMaxTreeNodes = 1 << 22;  // a hostile model_tree.json cannot make us allocate more

void append_node(const run::Run& run, const run::TopologyNode& source, int parent, Tree* tree) {
  if (tree->nodes.size() >= kMaxTreeNodes) return;
  const int index = static_cast<int>(tree->nodes.size());
  tree->nodes.push_back({shared_node_name(run, source.name), source.type, parent, {}});
  if (parent >= 0) tree->nodes[static_cast<size_t>(parent)].children.push_back(index);
  for (const run::TopologyNode& child : source.children) append_node(run, child, index, tree);
}

// The most frequent type among the children; the first one met wins a tie.
std::pair<std::string, size_t> most_frequent_child_type(const Tree& tree, int node) {
  std::vector<std::pair<std::string, size_t>> counts;
  for (const int child : tree.nodes[static_cast<size_t>(node)].children) {
    const std::string& type = tree.nodes[static_cast<size_t>(child)].type;
    const auto found =
        std::find_if(counts.begin(), counts.end(), [&](const auto& c) { return c.first == type; });
    if (found == counts.end()) {
      counts.emplace_back(type, 1);
    } else {
      ++found->second;
    }
  }
  std::pair<std::string, size_t> best;
  for (const auto& count : counts) {
    if (count.second > best.second) best = count;
  }
  return best;
}

std::string layer_type_below(const Tree& tree, int node) {
  const std::vector<int>& children = tree.nodes[static_cast<size_t>(node)].children;
  if (children.size() > kManyChildren) {
    const auto [type, count] = most_frequent_child_type(tree, node);
    return count > kLayersOfOneType ? type : std::string();
  }
  for (const int child : children) {
    if (std::string type = layer_type_below(tree, child); !type.empty()) return type;
  }
  return {};
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

std::string short_model_layer_type(const Tree& tree) {
  for (const TreeNode& node : tree.nodes) {
    if (node.children.size() < 2) continue;
    const std::string& type = tree.nodes[static_cast<size_t>(node.children[0])].type;
    const bool alike = std::all_of(node.children.begin(), node.children.end(), [&](int child) {
      const TreeNode& c = tree.nodes[static_cast<size_t>(child)];
      return c.type == type && is_number(std::string_view(c.name).substr(c.name.rfind('.') + 1));
    });
    if (alike) return type;
  }
  return {};
}

void collect_layers(const Tree& tree, int node, const std::string& type, std::vector<int>* out) {
  if (tree.nodes[static_cast<size_t>(node)].type == type) {
    out->push_back(node);
    return;
  }
  for (const int child : tree.nodes[static_cast<size_t>(node)].children) {
    collect_layers(tree, child, type, out);
  }
}

}  // namespace

std::string shared_node_name(const run::Run& run, std::string_view node) {
  if (run.layout == "torch-tree") {
    if (node == "root") return {};
    if (node.starts_with("root.")) node.remove_prefix(5);
  }
  return std::string(node);
}

std::string Tree::full_name(int node) const {
  const std::string& name = nodes[static_cast<size_t>(node)].name;
  return name.empty() ? "root" : "root." + name;
}

Tree flatten_tree(const run::Run& run) {
  Tree tree;
  if (run.topology) append_node(run, *run.topology, -1, &tree);
  return tree;
}

Layers find_layers(const Tree& tree, bool short_models) {
  Layers layers;
  if (tree.nodes.empty()) return layers;
  layers.type = layer_type_below(tree, 0);
  if (layers.type.empty() && short_models) layers.type = short_model_layer_type(tree);
  if (!layers.type.empty()) collect_layers(tree, 0, layers.type, &layers.nodes);
  return layers;
}

}  // namespace assay::compare
