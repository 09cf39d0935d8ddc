// SPDX-License-Identifier: Apache-2.0
// Rules of Ascend/msit: msit/components/llm/msit_llm/compare/cmp_op_match.py, as far as they can
// apply to two torch trees. In tree order throughout, where the original took whatever order a set
// had.
#include "compare/match/torch_policies.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>

namespace assay::compare {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

// "RmsNormOperation_13". Without std::regex: its locale facets break (std::bad_cast) in a Python module
// that carries its own libstdc++ beside torch's.
bool is_numbered_norm(std::string_view name) {
  constexpr std::string_view kStart = "RmsNormOperation_";
  return name.starts_with(kStart) && name.size() > kStart.size() &&
         name.substr(kStart.size()).find_first_not_of("0123456789") == std::string_view::npos;
}

void zip(std::span<const int> golden, std::span<const int> mine, std::string_view policy,
         NodePairs* pairs) {
  for (size_t i = 0; i < std::min(golden.size(), mine.size()); ++i) {
    pairs->add(golden[i], mine[i], policy);
  }
}

std::vector<int> select(const Tree& tree, const std::vector<int>& nodes,
                        const std::function<bool(const std::string&)>& test) {
  std::vector<int> out;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(out),
               [&](int node) { return test(tree.full_name(node)); });
  return out;
}

std::vector<int> all_nodes(const Tree& tree) {
  std::vector<int> out(tree.nodes.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(i);
  return out;
}

// Quantised operator types of the ATB library and the float type each stands for.
std::string_view float_type(std::string_view type) {
  if (type == "LinearQuantOperation") return "LinearOperation";
  if (type == "LinearDequantOnly") return "LinearNoQuant";
  if (type == "LinearRowParallelNoAdd") return "LinearRowParallelAndAdd";
  return type;
}

std::vector<int> last_child_chain(const Tree& tree) {
  std::vector<int> chain;
  if (tree.nodes.empty()) return chain;
  chain.push_back(0);
  while (!tree.is_leaf(chain.back())) {
    chain.push_back(tree.nodes[static_cast<size_t>(chain.back())].children.back());
  }
  return chain;
}

}  // namespace

void NodePairs::add(int golden, int mine, std::string_view policy) {
  if (known_.emplace(golden, mine).second) pairs_.push_back({golden, mine, policy});
}

void match_layers(const Layers& golden, const Layers& mine, NodePairs* pairs) {
  zip(golden.nodes, mine.nodes, "layer_match", pairs);
}

void match_special_layers(const Tree& golden, const Tree& mine, NodePairs* pairs) {
  struct Rule {
    std::function<bool(const std::string&)> mine;
    std::function<bool(const std::string&)> golden;
  };
  const std::array<Rule, 5> rules = {{
      {[](const std::string& n) { return contains(lower(n), "wordembedding"); },
       [](const std::string& n) {
         return (contains(n, "embed_tokens") || contains(n, "word_embeddings")) &&
                !contains(n, "word_embeddings_layernorm");
       }},
      {[](const std::string& n) { return is_numbered_norm(n); },
       [](const std::string& n) { return contains(lower(n), "root.model.norm"); }},
      {[](const std::string& n) { return contains(lower(n), "lmhead"); },
       [](const std::string& n) { return contains(lower(n), "lm_head"); }},
      {[](const std::string& n) { return contains(lower(n), "layernormoperation_35"); },
       [](const std::string& n) { return contains(lower(n), "embeddings_layernorm"); }},
      {[](const std::string& n) { return contains(lower(n), "layernormoperation_66"); },
       [](const std::string& n) { return contains(lower(n), "ln_f"); }},
  }};
  const std::vector<int> golden_nodes = all_nodes(golden);
  const std::vector<int> mine_nodes = all_nodes(mine);
  for (const Rule& rule : rules) {
    zip(select(golden, golden_nodes, rule.golden), select(mine, mine_nodes, rule.mine),
        "layer_special", pairs);
  }
}

void match_modules(const Tree& golden, const Tree& mine, const Layers& golden_layers,
                   const Layers& mine_layers, NodePairs* pairs) {
  struct Rule {
    std::string_view mine;
    std::array<std::string_view, 3> golden;
  };
  static constexpr std::array<Rule, 5> kRules = {{
      {"Attention", {"self_attn", "self_attention", "Attention"}},
      {"Mlp", {"mlp", "Mlp", "mlp"}},
      {"mlp", {"mlp", "mlp", "mlp"}},
      {"self_attn", {"self_attn", "self_attn", "self_attn"}},
      {"self_attention", {"self_attention", "self_attention", "self_attention"}},
  }};
  for (size_t i = 0; i < std::min(golden_layers.nodes.size(), mine_layers.nodes.size()); ++i) {
    const auto& golden_children =
        golden.nodes[static_cast<size_t>(golden_layers.nodes[i])].children;
    const auto& mine_children = mine.nodes[static_cast<size_t>(mine_layers.nodes[i])].children;
    for (const Rule& rule : kRules) {
      const auto golden_test = [&](const std::string& name) {
        return std::any_of(rule.golden.begin(), rule.golden.end(),
                           [&](std::string_view part) { return contains(name, part); });
      };
      const auto mine_test = [&](const std::string& name) { return contains(name, rule.mine); };
      zip(select(golden, golden_children, golden_test), select(mine, mine_children, mine_test),
          "module_match", pairs);
    }
  }
}

void match_outputs(const Tree& golden, const Tree& mine, NodePairs* pairs) {
  for (const int mine_node : last_child_chain(mine)) {
    for (const int golden_node : last_child_chain(golden)) {
      pairs->add(golden_node, mine_node, "output");
    }
  }
}

void match_full_names(const Tree& golden, const Tree& mine, NodePairs* pairs) {
  std::multimap<std::string_view, int> by_name;
  for (size_t i = 1; i < golden.nodes.size(); ++i) {
    by_name.emplace(golden.nodes[i].name, static_cast<int>(i));
  }
  for (size_t i = 1; i < mine.nodes.size(); ++i) {
    const auto [begin, end] = by_name.equal_range(mine.nodes[i].name);
    for (auto found = begin; found != end; ++found) {
      pairs->add(found->second, static_cast<int>(i), "name_full_match");
    }
  }
}

void match_type_counts(const Tree& golden, const Tree& mine, NodePairs* pairs) {
  if (golden.nodes.empty() || mine.nodes.empty()) return;
  const auto by_type = [](const Tree& tree, int node) {
    std::map<std::string_view, std::vector<int>> groups;
    for (const int child : tree.nodes[static_cast<size_t>(node)].children) {
      groups[float_type(tree.nodes[static_cast<size_t>(child)].type)].push_back(child);
    }
    return groups;
  };
  std::deque<std::pair<int, int>> queue = {{0, 0}};
  while (!queue.empty()) {
    const auto [golden_node, mine_node] = queue.front();
    queue.pop_front();
    pairs->add(golden_node, mine_node, "layer_type_cnt");
    const auto golden_groups = by_type(golden, golden_node);
    for (const auto& [type, mine_group] : by_type(mine, mine_node)) {
      const auto found = golden_groups.find(type);
      if (found == golden_groups.end() || found->second.size() != mine_group.size()) continue;
      for (size_t i = 0; i < mine_group.size(); ++i) {
        queue.emplace_back(found->second[i], mine_group[i]);
      }
    }
  }
}

void match_fused_qkv(const Tree& golden, const Tree& mine, const Layers& golden_layers,
                     const Layers& mine_layers, NodePairs* pairs) {
  const auto grandchildren = [](const Tree& tree, int node) {
    std::vector<int> out;
    for (const int child : tree.nodes[static_cast<size_t>(node)].children) {
      const auto& below = tree.nodes[static_cast<size_t>(child)].children;
      out.insert(out.end(), below.begin(), below.end());
    }
    return out;
  };
  const auto is_fused = [](const std::string& name) { return contains(lower(name), "qkv"); };
  for (size_t i = 0; i < std::min(golden_layers.nodes.size(), mine_layers.nodes.size()); ++i) {
    const std::vector<int> fused =
        select(mine, grandchildren(mine, mine_layers.nodes[i]), is_fused);
    if (fused.empty()) continue;
    const std::vector<int> below = grandchildren(golden, golden_layers.nodes[i]);
    for (const int mine_node : fused) {
      for (const std::string_view part :
           {"self_attn.v_proj", "self_attn.k_proj", "self_attn.q_proj"}) {
        for (const int golden_node :
             select(golden, below, [&](const std::string& n) { return contains(n, part); })) {
          pairs->add(golden_node, mine_node, "qwen");
        }
      }
    }
  }
}

}  // namespace assay::compare
