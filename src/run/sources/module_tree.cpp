// SPDX-License-Identifier: Apache-2.0
// Names are kept in the order in which they were added. The tree is built at the end, when all
// modules that may be a parent are known.
#include "run/sources/module_tree.hpp"

#include "topology/model_tree.hpp"

namespace assay::run::sources {

void ModuleTree::add(const std::string& name, const std::string& type) {
  if (!name.empty() && types_.try_emplace(name, type).second) order_.push_back(name);
}

std::optional<TopologyNode> ModuleTree::build() const {
  if (order_.empty()) return std::nullopt;
  Children children;
  for (const std::string& name : order_) children[parent_of(name)].push_back(name);
  TopologyNode root;
  add_children(children, &root, 0);
  return root;
}

std::string ModuleTree::parent_of(std::string name) const {
  for (size_t dot = name.rfind('.'); dot != std::string::npos; dot = name.rfind('.')) {
    name.resize(dot);
    if (types_.contains(name)) return name;
  }
  return {};
}

// The recursion is as deep as a name has dots, and ends at the depth that topologies allow.
void ModuleTree::add_children(const Children& children, TopologyNode* node, size_t depth) const {
  const auto found = children.find(node->name);
  if (found == children.end() || depth >= topology::kMaxTreeDepth) return;
  for (const std::string& name : found->second) {
    TopologyNode child;
    child.name = name;
    child.type = types_.at(name);
    add_children(children, &child, depth + 1);
    node->children.push_back(std::move(child));
  }
}

}  // namespace assay::run::sources
