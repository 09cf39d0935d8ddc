// SPDX-License-Identifier: Apache-2.0
#include "run/layers.hpp"

#include <map>

namespace assay::run {

namespace {
bool is_numbered(const TopologyNode& node) {
  const std::string_view last = std::string_view(node.name).substr(node.name.rfind('.') + 1);
  return !last.empty() && last.find_first_not_of("0123456789") == std::string_view::npos;
}
}  // namespace

std::string layer_type(const TopologyNode& root, const LayerRule& rule) {
  if (root.children.size() > rule.min_children) {
    std::map<std::string_view, size_t> counts;
    std::string_view best;
    for (const TopologyNode& child : root.children) {
      if (!rule.numbered_only || is_numbered(child)) ++counts[child.type];
    }
    size_t best_count = 0;
    for (const TopologyNode& child : root.children) {
      const auto found = counts.find(child.type);
      if (found != counts.end() && found->second > best_count) {
        best = child.type;
        best_count = found->second;
      }
    }
    if (best_count > rule.min_repeats) return std::string(best);
    if (!rule.numbered_only) return {};
  }
  for (const TopologyNode& child : root.children) {
    if (std::string found = layer_type(child, rule); !found.empty()) return found;
  }
  return {};
}

namespace {
void collect(const TopologyNode& node, std::string_view type,
             std::vector<const TopologyNode*>* layers) {
  if (node.type == type) {
    layers->push_back(&node);
    return;
  }
  for (const TopologyNode& child : node.children) collect(child, type, layers);
}
}  // namespace

std::vector<const TopologyNode*> layers_of_type(const TopologyNode& root, std::string_view type) {
  std::vector<const TopologyNode*> layers;
  if (!type.empty()) collect(root, type, &layers);
  return layers;
}

}  // namespace assay::run
