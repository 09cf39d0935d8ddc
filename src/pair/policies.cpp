// SPDX-License-Identifier: Apache-2.0
// Each rule selects nodes of both trees by the words of the tables (mapping_tables.hpp), mostly
// within one pair of layers, and pairs what it selected, in tree order.
#include "pair/policies.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "base/ascii.hpp"

namespace assay::pair {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

using NodeTest = std::function<bool(const TreeNode&)>;

std::vector<int> select(const Tree& tree, const std::vector<int>& nodes, const NodeTest& test) {
  std::vector<int> out;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(out),
               [&](int node) { return test(tree.at(node)); });
  return out;
}

void zip(const std::vector<int>& golden, const std::vector<int>& mine, Rule rule, NodePairs* pairs,
         const Location& golden_at = "outputs", const Location& mine_at = "outputs") {
  for (size_t i = 0; i < std::min(golden.size(), mine.size()); ++i)
    pairs->add(golden[i], mine[i], rule, golden_at, mine_at);
}

std::vector<int> all_nodes(const Tree& tree) {
  std::vector<int> out(tree.nodes.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(i);
  return out;
}

std::vector<int> leaves_below(const Tree& tree, int node) {
  std::vector<int> out;
  for (const int i : tree.subtree(node)) {
    if (i != node && tree.is_leaf(i)) out.push_back(i);
  }
  return out;
}

std::vector<int> nodes_below(const Tree& tree, int node) {
  std::vector<int> out = tree.subtree(node);
  out.erase(out.begin());
  return out;
}

std::vector<int> grandchildren(const Tree& tree, int node) {
  std::vector<int> out;
  for (const int child : tree.at(node).children) {
    const auto& below = tree.at(child).children;
    out.insert(out.end(), below.begin(), below.end());
  }
  return out;
}

void for_each_layer_pair(const TreePair& trees,
                         const std::function<void(int golden, int mine)>& visit) {
  const size_t count = std::min(trees.golden_layers.nodes.size(), trees.mine_layers.nodes.size());
  for (size_t i = 0; i < count; ++i)
    visit(trees.golden_layers.nodes[i], trees.mine_layers.nodes[i]);
}

std::string parameter(const TreeNode& node, const std::string& name) {
  const auto found = node.parameters.find(name);
  return found == node.parameters.end() ? std::string() : lower_case(found->second);
}

// w * x + b in two operations: what corresponds to the module is the sum.
int linear_with_bias(const Tree& tree, int node) {
  const TreeNode& linear = tree.at(node);
  const std::string has_bias = parameter(linear, "hasBias");
  if (linear.type != "LinearOperation" || linear.parent < 0 || has_bias == "true" ||
      has_bias == "1")
    return node;
  const std::vector<int>& siblings = tree.at(linear.parent).children;
  const auto place = std::find(siblings.begin(), siblings.end(), node);
  if (place == siblings.end() || place + 1 == siblings.end()) return node;
  const TreeNode& next = tree.at(*(place + 1));
  const std::string kind = parameter(next, "elewiseType");
  const bool adds = next.type == "ElewiseOperation" && (kind == "8" || kind == "elewise_add");
  return adds ? *(place + 1) : node;
}

// Leaves whose type is one of the built-in words.
void match_leaf_types(const TreePair& trees, int golden_layer, int mine_layer, NodePairs* pairs) {
  const std::vector<int> golden_leaves = leaves_below(trees.golden, golden_layer);
  const std::vector<int> mine_leaves = leaves_below(trees.mine, mine_layer);
  for (const TypeRule& rule : trees.tables.leaf_types) {
    std::vector<int> mine = select(trees.mine, mine_leaves, [&](const TreeNode& node) {
      return trees.tables.float_type(node.type) == rule.mine;
    });
    for (int& node : mine) node = linear_with_bias(trees.mine, node);
    for (const auto& [type, location] : rule.golden) {
      const std::vector<int> golden =
          select(trees.golden, golden_leaves, [&](const TreeNode& n) { return n.type == type; });
      if (golden.size() == mine.size())
        zip(golden, mine, Rule::MapCount, pairs, "output", "outtensor0");
    }
  }
}

void match_types(const TreePair& trees, int golden_layer, int mine_layer, NodePairs* pairs) {
  const std::vector<int> golden_nodes = nodes_below(trees.golden, golden_layer);
  const std::vector<int> mine_nodes = nodes_below(trees.mine, mine_layer);
  // "CommonLayer" stands for the layers themselves, so these take part, too.
  const auto with_layer = [](std::vector<int> nodes, int layer) {
    nodes.insert(nodes.begin(), layer);
    return nodes;
  };
  for (const TypeRule& rule : trees.tables.types) {
    const std::vector<int> mine =
        select(trees.mine, with_layer(mine_nodes, mine_layer),
               [&](const TreeNode& node) { return contains(node.type, rule.mine); });
    for (const auto& [type, location] : rule.golden) {
      const std::vector<int> golden =
          select(trees.golden, with_layer(golden_nodes, golden_layer),
                 [&, &wanted = type](const TreeNode& n) { return contains(n.type, wanted); });
      if (golden.size() == mine.size())
        zip(golden, mine, Rule::MapCount, pairs, location, rule.mine_at);
    }
  }
}

}  // namespace

void NodePairs::add(int golden, int mine, Rule rule, const Location& golden_at,
                    const Location& mine_at) {
  if (known_.emplace(golden, mine, golden_at, mine_at).second)
    pairs_.push_back({golden, mine, rule, golden_at, mine_at});
}

void match_layers(const TreePair& trees, NodePairs* pairs) {
  zip(trees.golden_layers.nodes, trees.mine_layers.nodes, Rule::LayerMatch, pairs);
}

void match_special_layers(const TreePair& trees, NodePairs* pairs) {
  const std::vector<int> golden_nodes = all_nodes(trees.golden);
  const std::vector<int> mine_nodes = all_nodes(trees.mine);
  for (const PairRule& rule : trees.tables.layer_special) {
    const auto golden = select(trees.golden, golden_nodes,
                               [&](const TreeNode& n) { return rule.golden.matches(n.op_name); });
    const auto mine = select(trees.mine, mine_nodes,
                             [&](const TreeNode& n) { return rule.mine.matches(n.op_name); });
    zip(golden, mine, Rule::LayerSpecial, pairs, rule.golden_at, rule.mine_at);
  }
}

void match_modules(const TreePair& trees, NodePairs* pairs) {
  for_each_layer_pair(trees, [&](int golden_layer, int mine_layer) {
    for (const PairRule& rule : trees.tables.module_match) {
      const auto golden = select(trees.golden, trees.golden.at(golden_layer).children,
                                 [&](const TreeNode& n) { return rule.golden.matches(n.path); });
      const auto mine = select(trees.mine, trees.mine.at(mine_layer).children,
                               [&](const TreeNode& n) { return rule.mine.matches(n.path); });
      zip(golden, mine, Rule::ModuleMatch, pairs);
    }
  });
}

void match_type_counts(const TreePair& trees, NodePairs* pairs) {
  if (trees.golden.nodes.empty() || trees.mine.nodes.empty()) return;
  const auto by_type = [&](const Tree& tree, int node) {
    std::map<std::string_view, std::vector<int>> groups;
    for (const int child : tree.at(node).children)
      groups[trees.tables.float_type(tree.at(child).type)].push_back(child);
    return groups;
  };
  std::deque<std::pair<int, int>> queue = {{0, 0}};
  while (!queue.empty()) {
    const auto [golden_node, mine_node] = queue.front();
    queue.pop_front();
    pairs->add(golden_node, mine_node, Rule::LayerTypeCount);
    const auto golden_groups = by_type(trees.golden, golden_node);
    for (const auto& [type, mine_group] : by_type(trees.mine, mine_node)) {
      const auto found = golden_groups.find(type);
      if (found == golden_groups.end() || found->second.size() != mine_group.size()) continue;
      for (size_t i = 0; i < mine_group.size(); ++i)
        queue.emplace_back(found->second[i], mine_group[i]);
    }
  }
}

void match_map_counts(const TreePair& trees, NodePairs* pairs) {
  match_layers(trees, pairs);
  for_each_layer_pair(trees, [&](int golden_layer, int mine_layer) {
    match_leaf_types(trees, golden_layer, mine_layer, pairs);
    match_types(trees, golden_layer, mine_layer, pairs);
  });
}

void match_rope(const TreePair& trees, NodePairs* pairs) {
  const PairRule& rule = trees.tables.rope;
  for_each_layer_pair(trees, [&](int golden_layer, int mine_layer) {
    const auto golden = select(trees.golden, leaves_below(trees.golden, golden_layer),
                               [&](const TreeNode& n) { return rule.golden.matches(n.path); });
    const auto mine = select(trees.mine, leaves_below(trees.mine, mine_layer),
                             [&](const TreeNode& n) { return rule.mine.matches(n.path); });
    zip(golden, mine, Rule::Rope, pairs, rule.golden_at, rule.mine_at);
  });
}

void match_enhanced_names(const TreePair& trees, NodePairs* pairs) {
  for_each_layer_pair(trees, [&](int golden_layer, int mine_layer) {
    const std::vector<int> golden_leaves = leaves_below(trees.golden, golden_layer);
    const std::vector<int> mine_leaves = leaves_below(trees.mine, mine_layer);
    for (const int mine : mine_leaves) {
      const std::string mine_path = lower_case(trees.mine.at(mine).path);
      for (const PairRule& rule : trees.tables.enhanced_name) {
        if (!rule.mine.matches(mine_path)) continue;
        for (const int golden : golden_leaves) {
          if (rule.golden.matches(lower_case(trees.golden.at(golden).path)))
            pairs->add(golden, mine, Rule::EnhancedName, rule.golden_at, rule.mine_at);
        }
      }
    }
  });
}

void match_fused_qkv(const TreePair& trees, NodePairs* pairs) {
  for_each_layer_pair(trees, [&](int golden_layer, int mine_layer) {
    const std::vector<int> fused =
        select(trees.mine, grandchildren(trees.mine, mine_layer),
               [&](const TreeNode& n) { return trees.tables.qwen_mine.matches(n.path); });
    if (fused.empty()) return;
    const std::vector<int> below = grandchildren(trees.golden, golden_layer);
    for (const int mine : fused) {
      for (const std::string& part : trees.tables.qwen_golden) {
        for (const int golden :
             select(trees.golden, below, [&](const TreeNode& n) { return contains(n.path, part); }))
          pairs->add(golden, mine, Rule::FusedQkv);
      }
    }
  });
}

void match_user_rules(const TreePair& trees, NodePairs* pairs) {
  const auto fits = [](const NamePattern& pattern, const TreeNode& node) {
    return pattern.matches(node.path) || pattern.matches(node.type) || pattern.matches(node.name);
  };
  const auto outside_of_layers = [](const Tree& tree, const Layers& layers) {
    std::vector<int> out;
    std::set<int> inside;
    for (const int layer : layers.nodes) {
      for (const int node : tree.subtree(layer)) inside.insert(node);
    }
    for (const int node : all_nodes(tree)) {
      if (!inside.contains(node)) out.push_back(node);
    }
    return out;
  };
  const auto pair_up = [&](const std::vector<int>& golden_nodes,
                           const std::vector<int>& mine_nodes) {
    for (const PairRule& rule : trees.tables.rules) {
      const auto golden = select(trees.golden, golden_nodes,
                                 [&](const TreeNode& n) { return fits(rule.golden, n); });
      const auto mine =
          select(trees.mine, mine_nodes, [&](const TreeNode& n) { return fits(rule.mine, n); });
      if (golden.size() == mine.size())
        zip(golden, mine, Rule::MappingFile, pairs, rule.golden_at, rule.mine_at);
    }
  };
  if (trees.tables.rules.empty()) return;
  for_each_layer_pair(trees, [&](int golden_layer, int mine_layer) {
    pair_up(trees.golden.subtree(golden_layer), trees.mine.subtree(mine_layer));
  });
  pair_up(outside_of_layers(trees.golden, trees.golden_layers),
          outside_of_layers(trees.mine, trees.mine_layers));
}

}  // namespace assay::pair
