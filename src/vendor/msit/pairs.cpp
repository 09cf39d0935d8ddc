// SPDX-License-Identifier: Apache-2.0
// Source: Ascend/msit: msit/components/llm/msit_llm/compare/cmp_op_match.py
#include "vendor/msit/pairs.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "pair/side.hpp"

namespace assay::vendor::msit {
namespace {

using pair::NodePairs;
using pair::Rule;
using pair::Tree;
using pair::TreePair;

std::vector<int> last_child_chain(const Tree& tree) {
  std::vector<int> chain;
  if (tree.nodes.empty()) return chain;
  chain.push_back(0);
  while (!tree.is_leaf(chain.back())) chain.push_back(tree.at(chain.back()).children.back());
  return chain;
}

// The last child of the last child ... of both roots, roots included, each with each.
void match_outputs(const TreePair& trees, NodePairs* pairs) {
  for (const int mine : last_child_chain(trees.mine)) {
    for (const int golden : last_child_chain(trees.golden)) pairs->add(golden, mine, Rule::Output);
  }
}

// Equal names, the roots excepted.
void match_full_names(const TreePair& trees, NodePairs* pairs) {
  std::multimap<std::string_view, int> by_name;
  for (size_t i = 1; i < trees.golden.nodes.size(); ++i)
    by_name.emplace(trees.golden.nodes[i].name, static_cast<int>(i));
  for (size_t i = 1; i < trees.mine.nodes.size(); ++i) {
    const auto [begin, end] = by_name.equal_range(trees.mine.nodes[i].name);
    for (auto found = begin; found != end; ++found)
      pairs->add(found->second, static_cast<int>(i), Rule::NameFullMatch);
  }
}

void match_api(const TreePair& trees, NodePairs* pairs) {
  match_outputs(trees, pairs);
  match_full_names(trees, pairs);
  pair::match_type_counts(trees, pairs);
  pair::match_map_counts(trees, pairs);
  pair::match_rope(trees, pairs);
  pair::match_enhanced_names(trees, pairs);
  pair::match_special_layers(trees, pairs);
  pair::match_fused_qkv(trees, pairs);
}

// Sorted by path as text, "output_10" before "output_2"; of statistics the last one only.
void choose(const run::Run& run, bool statistics, std::vector<size_t>* records) {
  std::ranges::stable_sort(*records, {}, [&](size_t i) {
    return std::tuple(run.records[i].call, pair::path_in_step(run, run.records[i]));
  });
  if (statistics) records->erase(records->begin(), records->end() - 1);
}

}  // namespace

pair::TokenTable token_table(const pair::StepParts& steps) {
  return pair::has_two_models(steps) ? pair::TokenTable::WarmUp : pair::TokenTable::Plain;
}

const pair::LiteralRules& pair_rules() {
  static constexpr pair::LiteralRules kRules{match_api, token_table, choose, match_operator,
                                             sort_graph};
  return kRules;
}

}  // namespace assay::vendor::msit
