// SPDX-License-Identifier: Apache-2.0
// Pairs by the rules between trees, every one that they make.
#include "pair/matcher.hpp"

#include <algorithm>

#include "pair/literal_rules.hpp"
#include "pair/slices.hpp"

namespace assay::pair {

using run::Run;
using run::TensorRecord;

void Matcher::add(size_t golden, size_t mine, Rule rule, double confidence, bool speculative) {
  golden_.used[golden] = true;
  mine_.used[mine] = true;
  RecordPair pair;
  pair.golden = golden;
  pair.mine = mine;
  pair.rule = rule;
  pair.confidence = confidence;
  pair.speculative = speculative;
  pair.token = token_;
  out_.pairs.push_back(std::move(pair));
}

bool Matcher::add_fitting(size_t golden, size_t mine, Rule rule, double confidence) {
  if (golden_.used[golden] || mine_.used[mine]) return false;
  const std::optional<Dims>& golden_shape = golden_.shape_of(golden);
  const std::optional<Dims>& mine_shape = mine_.shape_of(mine);
  if (!golden_shape || !mine_shape || fits(*golden_shape, *mine_shape)) {
    add(golden, mine, rule, confidence);
    return true;
  }
  Recipe golden_recipe;
  Recipe mine_recipe;
  if (auto steps = last_row(*golden_shape, *mine_shape)) {
    golden_recipe = {{golden}, Merge::None, 0, 1, *std::move(steps), "golden: last position"};
  } else if (auto mine_steps = last_row(*mine_shape, *golden_shape)) {
    mine_recipe = {{mine}, Merge::None, 0, 1, *std::move(mine_steps), "mine: last position"};
  } else {
    return false;
  }
  add(golden, mine, rule, confidence);
  set_recipes(&out_.pairs.back(), std::move(golden_recipe), std::move(mine_recipe));
  return true;
}

bool Matcher::fits(const Dims& golden, const Dims& mine) const {
  const std::optional<int64_t> g = element_count(golden);
  const std::optional<int64_t> m = element_count(mine);
  if (!g || !m) return false;
  if (*g == *m) return true;
  if (!whole_.ranks.may_be_shards() || *g <= 0 || *m <= 0) return false;
  // The shards are on the side with more ranks.
  const auto golden_ranks = static_cast<int64_t>(whole_.ranks.groups.front().golden.size());
  const auto mine_ranks = static_cast<int64_t>(whole_.ranks.groups.front().mine.size());
  return golden_ranks < mine_ranks ? *g == *m * (mine_ranks / golden_ranks)
                                   : *m == *g * (golden_ranks / mine_ranks);
}

TreePair Matcher::tree_pair(size_t golden, size_t mine) const {
  return {golden_.trees[golden], mine_.trees[mine], golden_.layers[golden], mine_.layers[mine],
          tables_};
}

Matcher::Trees Matcher::trees_at(const PlacePair& places) {
  const auto golden = static_cast<size_t>(places.golden.part);
  const auto mine = static_cast<size_t>(places.mine.part);
  if (!levels_ || golden >= golden_.trees.size() || mine >= mine_.trees.size()) return {};
  const auto [found, is_new] = states_.try_emplace({golden, mine});
  if (is_new) {
    found->second.rules =
        by_policy_ ? policy_pairs(tree_pair(golden, mine)) : ordered_pairs(tree_pair(golden, mine));
  }
  return {&golden_.trees[golden], &mine_.trees[mine], &found->second};
}

NodePairs Matcher::policy_pairs(const TreePair& trees) const {
  NodePairs pairs;
  match_user_rules(trees, &pairs);
  switch (options_.level) {
    case Level::Layer:
      match_layers(trees, &pairs);
      match_special_layers(trees, &pairs);
      break;
    case Level::Module:
      match_modules(trees, &pairs);
      break;
    case Level::Api:  // ours pair each tensor once there: ordered_pairs()
      options_.literal->match_api(trees, &pairs);
      break;
  }
  return pairs;
}

NodePairs Matcher::ordered_pairs(const TreePair& trees) {
  NodePairs pairs;
  match_user_rules(trees, &pairs);
  match_layers(trees, &pairs);
  match_special_layers(trees, &pairs);
  match_modules(trees, &pairs);
  match_map_counts(trees, &pairs);
  match_rope(trees, &pairs);
  match_fused_qkv(trees, &pairs);
  match_enhanced_names(trees, &pairs);
  match_type_counts(trees, &pairs);
  return pairs;
}

bool Matcher::is_strong(Rule rule) {
  return rule == Rule::MappingFile || rule == Rule::LayerMatch || rule == Rule::LayerSpecial ||
         rule == Rule::ModuleMatch;
}

void Matcher::filter_fused(const std::vector<size_t>& golden, std::vector<size_t>* mine) const {
  for (const size_t g : golden) {
    const std::string path = path_in_step(golden_.run, golden_.run.records[g]);
    for (const QkvFileRule& rule : tables_.qkv_files) {
      if (path.find(".self_attn." + rule.golden + "/output.pth") == std::string::npos) continue;
      std::vector<size_t> kept;
      for (const size_t m : *mine) {
        const std::string my_path = path_in_step(mine_.run, mine_.run.records[m]);
        if (std::any_of(rule.mine.begin(), rule.mine.end(), [&](const std::string& end) {
              return my_path.find(end) != std::string::npos;
            }))
          kept.push_back(m);
      }
      if (!kept.empty()) *mine = std::move(kept);
    }
  }
}

void Matcher::match_place_by_policy(const PlacePair& places) {
  const Trees trees = trees_at(places);
  if (trees.state == nullptr) return;
  const NodeRecords& golden_nodes = golden_.nodes_at(places.golden);
  const NodeRecords& mine_nodes = mine_.nodes_at(places.mine);
  const size_t first = out_.pairs.size();
  for (const NodePair& pair : trees.state->rules.list()) {
    const size_t before = out_.pairs.size();
    apply_policy(pair, trees, golden_nodes, mine_nodes);
    for (size_t i = before; i < out_.pairs.size(); ++i) show_order_[i] = pair.mine;
  }
  if (options_.literal != nullptr) {
    // In the order of my nodes in the topology, of one node in that of the rules.
    std::vector<size_t> order(out_.pairs.size() - first);
    for (size_t i = 0; i < order.size(); ++i) order[i] = first + i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return show_order_[a] < show_order_[b]; });
    std::vector<RecordPair> sorted;
    for (const size_t i : order) sorted.push_back(std::move(out_.pairs[i]));
    std::move(sorted.begin(), sorted.end(),
              out_.pairs.begin() + static_cast<std::ptrdiff_t>(first));
  }
  golden_levels_.insert(places.golden);
  mine_levels_.insert(places.mine);
}

void Matcher::apply_policy(const NodePair& pair, const Trees& trees,
                           const NodeRecords& golden_nodes, const NodeRecords& mine_nodes) {
  std::vector<size_t> golden = records_at(golden_.run, golden_nodes,
                                          trees.golden->at(pair.golden).name, pair.golden_at, true);
  std::vector<size_t> mine =
      records_at(mine_.run, mine_nodes, trees.mine->at(pair.mine).name, pair.mine_at, false);
  if (golden.empty() || mine.empty()) return;
  if (pair.rule == Rule::Rope) {
    add_rope(golden, mine);
    return;
  }
  filter_fused(golden, &mine);
  if (options_.literal != nullptr) {
    options_.literal->choose(golden_.run, options_.statistics, &golden);
    options_.literal->choose(mine_.run, options_.statistics, &mine);
  }
  if (golden.size() == mine.size()) {
    for (size_t i = 0; i < golden.size(); ++i) add_level_pair(golden[i], mine[i], pair.rule);
    return;
  }
  for (const size_t g : golden) {
    for (const size_t m : mine) add_tried_pair(g, m, pair.rule);
  }
}

void Matcher::add_level_pair(size_t golden, size_t mine, Rule rule) {
  if (options_.literal != nullptr || !add_fitting(golden, mine, rule, kTableConfidence))
    add(golden, mine, rule, kTableConfidence);
}

void Matcher::add_tried_pair(size_t golden, size_t mine, Rule rule) {
  const std::optional<Dims>& golden_shape = golden_.shape_of(golden);
  const std::optional<Dims>& mine_shape = mine_.shape_of(mine);
  const bool is_last_row =
      options_.literal == nullptr && golden_shape && mine_shape &&
      !fits(*golden_shape, *mine_shape) &&
      (last_row(*golden_shape, *mine_shape) || last_row(*mine_shape, *golden_shape));
  if (!is_last_row || !add_fitting(golden, mine, rule, kTableConfidence))
    add(golden, mine, rule, kTableConfidence, true);
}

void Matcher::add_only_fitting(const std::vector<size_t>& golden, const std::vector<size_t>& mine,
                               Rule rule) {
  for (const size_t g : golden) {
    std::vector<size_t> fitting;
    for (const size_t m : mine) {
      const auto& golden_shape = golden_.shape_of(g);
      const auto& mine_shape = mine_.shape_of(m);
      if (golden_shape && mine_shape &&
          (fits(*golden_shape, *mine_shape) || last_row(*golden_shape, *mine_shape)))
        fitting.push_back(m);
    }
    if (fitting.size() == 1) add_fitting(g, fitting[0], rule, kTableConfidence);
  }
}

void Matcher::add_rope(const std::vector<size_t>& golden, const std::vector<size_t>& mine) {
  constexpr size_t kInputs = 5;
  if (mine.size() != kInputs) return;
  const std::optional<int64_t> length = integer_value(mine_.run.records[mine[4]]);
  for (size_t type = 0; type < 2; ++type) {  // cos, sin
    const size_t m = mine[2 + type];
    const size_t g = golden.size() > type ? golden[type] : golden.front();
    const auto& golden_shape = golden_.shape_of(g);
    const auto& mine_shape = mine_.shape_of(m);
    if (!golden_shape || !mine_shape) continue;
    const std::optional<RopeSlice> slice =
        rope_slice(*golden_shape, *mine_shape, length.value_or(0), static_cast<int>(type),
                   options_.literal != nullptr);
    if (!slice) continue;
    if (options_.literal == nullptr && (golden_.used[g] || mine_.used[m])) continue;
    add(g, m, Rule::Rope, kTableConfidence);
    set_recipes(&out_.pairs.back(), {{g}, Merge::None, 0, 1, slice->golden, slice->note},
                {{m}, Merge::None, 0, 1, slice->mine, ""});
  }
}

void Matcher::count_levels() {
  const auto count_places = [this](Side name, const MatchSide& side,
                                   const std::set<Place>& places) {
    for (const Place& place : places)
      count_level_side(name, side, side.trees[static_cast<size_t>(place.part)], place);
  };
  count_places(Side::Golden, golden_, golden_levels_);
  count_places(Side::Mine, mine_, mine_levels_);
}

void Matcher::count_level_side(Side name_of_side, const MatchSide& side, const Tree& tree,
                               const Place& place) {
  const NodeRecords& nodes = side.nodes_at(place);
  std::vector<std::string> names;
  if (options_.level == Level::Layer) {
    for (const int node : side.layers[static_cast<size_t>(place.part)].nodes)
      names.push_back(tree.at(node).name);
  } else if (options_.level == Level::Api) {
    for (const auto& [name, records] : nodes) names.push_back(name);
  }
  for (const std::string& name : names) {
    for (const size_t i :
         records_at(side.run, nodes, name, "outputs", name_of_side == Side::Golden)) {
      count(name_of_side, i, side.used[i],
            options_.level == Level::Layer ? "the other side has fewer layers"
                                           : "no rule pairs this node");
    }
  }
  if (options_.level != Level::Module) return;
  for (const auto& [name, records] : nodes) {
    for (const size_t i : records) {
      if (side.used[i]) count(name_of_side, i, true, "");
    }
  }
}

void Matcher::count(Side side, size_t record, bool matched, const std::string& reason) {
  ++(side == Side::Golden ? out_.golden_candidates : out_.mine_candidates);
  if (matched) {
    ++(side == Side::Golden ? out_.golden_matched : out_.mine_matched);
  } else {
    out_.unmatched.push_back({side, record, reason});
  }
}

}  // namespace assay::pair
