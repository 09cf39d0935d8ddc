// SPDX-License-Identifier: Apache-2.0
// Pairs in which every tensor occurs at most once.
#include "pair/matcher.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "run/atb_names.hpp"
#include "run/common_names.hpp"

namespace assay::pair {

using run::Run;
using run::TensorRecord;

bool Matcher::is_candidate(const TensorRecord& record) const {
  return (!outputs_only_ || record.role == Role::Output) &&
         !(crosses_ && run::is_atb_kernel(record.node));
}

void Matcher::match_place_one_to_one(const PlacePair& places) {
  const NodeRecords& golden_nodes = golden_.nodes_at(places.golden);
  const NodeRecords& mine_nodes = mine_.nodes_at(places.mine);
  if (is_single(golden_nodes) && is_single(mine_nodes) && golden_.run.has(run::Trait::OneFile) &&
      mine_.run.has(run::Trait::OneFile)) {
    const size_t g = golden_nodes.begin()->second.front();
    const size_t m = mine_nodes.begin()->second.front();
    if (!golden_.used[g] && !mine_.used[m]) add(g, m, Rule::TwoFiles, 1);
  }
  for (const auto& [name, mine_records] : mine_nodes) {
    const auto found = golden_nodes.find(name);
    if (found != golden_nodes.end()) {
      pair_slots(found->second, mine_records, Rule::EqualNames, 1);
      golden_paired_.insert({places.golden, name});
      mine_paired_.insert({places.mine, name});
    }
  }
  pair_equal_keys(golden_nodes, mine_nodes);
  const Trees trees = trees_at(places);
  if (trees.state != nullptr) {
    apply_rules(trees, places, true);
    if (crosses_) learn(trees, places);
    apply_learned(trees, places);
    apply_rules(trees, places, false);
  }
  pair_leftovers_by_value(trees, places);
}

std::map<std::string, size_t> Matcher::unused_keys(const MatchSide& side,
                                                   const NodeRecords& nodes) const {
  std::map<std::string, size_t> keys;
  std::set<std::string> repeated;
  if (!side.run.has(run::Trait::Files)) return keys;
  for (const auto& [name, records] : nodes) {
    for (const size_t i : records) {
      const TensorRecord& record = side.run.records[i];
      if (!record.bytes || record.bytes->member.empty() || side.used[i] || !is_candidate(record))
        continue;
      std::string key = run::without_wrappers(record.bytes->member);
      if (!keys.emplace(key, i).second) repeated.insert(std::move(key));
    }
  }
  for (const std::string& key : repeated) keys.erase(key);
  return keys;
}

void Matcher::pair_equal_keys(const NodeRecords& golden_nodes, const NodeRecords& mine_nodes) {
  const std::map<std::string, size_t> golden_keys = unused_keys(golden_, golden_nodes);
  if (golden_keys.empty()) return;
  for (const auto& [key, mine] : unused_keys(mine_, mine_nodes)) {
    const auto golden = golden_keys.find(key);
    if (golden != golden_keys.end()) add(golden->second, mine, Rule::EqualKeys, 1);
  }
}

bool Matcher::is_single(const NodeRecords& nodes) {
  return nodes.size() == 1 && nodes.begin()->second.size() == 1;
}

void Matcher::pair_slots(const std::vector<size_t>& golden_records,
                         const std::vector<size_t>& mine_records, Rule rule, double confidence) {
  using Key = std::tuple<Role, uint32_t, std::string>;
  std::map<Key, size_t> by_slot;
  for (const size_t i : golden_records) {
    const TensorRecord& record = golden_.run.records[i];
    if (!golden_.used[i] && is_candidate(record))
      by_slot.emplace(Key{record.role, record.call, record.slot}, i);
  }
  std::map<std::pair<Role, uint32_t>, std::vector<size_t>> mine_left;
  for (const size_t i : mine_records) {
    const TensorRecord& record = mine_.run.records[i];
    if (mine_.used[i] || !is_candidate(record)) continue;
    const auto found = by_slot.find({record.role, record.call, record.slot});
    if (found != by_slot.end() && !golden_.used[found->second]) {
      add(found->second, i, rule, confidence);
    } else {
      mine_left[{record.role, record.call}].push_back(i);
    }
  }
  std::map<std::pair<Role, uint32_t>, std::vector<size_t>> golden_left;
  for (const size_t i : golden_records) {
    const TensorRecord& record = golden_.run.records[i];
    if (!golden_.used[i] && is_candidate(record))
      golden_left[{record.role, record.call}].push_back(i);
  }
  for (auto& [key, mine_list] : mine_left) {
    std::vector<size_t>& golden_list = golden_left[key];
    if (golden_list.size() != mine_list.size()) continue;
    sort_by_slot(golden_.run, &golden_list);
    sort_by_slot(mine_.run, &mine_list);
    for (size_t i = 0; i < mine_list.size(); ++i) {
      add(golden_list[i], mine_list[i], Rule::EqualPosition,
          std::min(confidence, kTableConfidence));
    }
  }
}

void Matcher::sort_by_slot(const Run& run, std::vector<size_t>* records) {
  std::sort(records->begin(), records->end(), [&](size_t a, size_t b) {
    return std::pair(slot_order(run.records[a].slot), a) <
           std::pair(slot_order(run.records[b].slot), b);
  });
}

void Matcher::apply_rules(const Trees& trees, const PlacePair& places, bool strong) {
  const NodeRecords& golden_nodes = golden_.nodes_at(places.golden);
  const NodeRecords& mine_nodes = mine_.nodes_at(places.mine);
  for (const NodePair& pair : trees.state->rules.list()) {
    if (is_strong(pair.rule) != strong) continue;
    const std::string& golden_name = trees.golden->at(pair.golden).name;
    const std::string& mine_name = trees.mine->at(pair.mine).name;
    const auto golden_found = golden_nodes.find(golden_name);
    const auto mine_found = mine_nodes.find(mine_name);
    if (golden_found == golden_nodes.end() || mine_found == mine_nodes.end()) continue;
    const double confidence = pair.rule == Rule::LayerTypeCount || pair.rule == Rule::MapCount
                                  ? kPositionConfidence
                                  : kTableConfidence;
    if (crosses_) {
      apply_cross_rule(pair, golden_name, mine_name, golden_nodes, mine_nodes, confidence);
      continue;
    }
    // Between equal layouts a node is taken by one other node, with all that it has.
    const std::pair golden_key{places.golden, golden_name};
    const std::pair mine_key{places.mine, mine_name};
    if (golden_paired_.contains(golden_key) || mine_paired_.contains(mine_key)) continue;
    if (!shapes_fit(golden_found->second, mine_found->second)) continue;
    golden_paired_.insert(golden_key);
    mine_paired_.insert(mine_key);
    pair_slots(golden_found->second, mine_found->second, pair.rule, confidence);
  }
}

bool Matcher::shapes_fit(const std::vector<size_t>& golden_records,
                         const std::vector<size_t>& mine_records) {
  const auto output_of = [](const Run& run, const std::vector<size_t>& records) {
    std::vector<size_t> outputs;
    for (const size_t i : records) {
      if (run.records[i].role == Role::Output) outputs.push_back(i);
    }
    return outputs;
  };
  const std::vector<size_t> golden = output_of(golden_.run, golden_records);
  const std::vector<size_t> mine = output_of(mine_.run, mine_records);
  if (golden.size() != 1 || mine.size() != 1) return true;
  const auto& golden_shape = golden_.shape_of(golden[0]);
  const auto& mine_shape = mine_.shape_of(mine[0]);
  return !golden_shape || !mine_shape || fits(*golden_shape, *mine_shape);
}

void Matcher::apply_cross_rule(const NodePair& pair, const std::string& golden_name,
                               const std::string& mine_name, const NodeRecords& golden_nodes,
                               const NodeRecords& mine_nodes, double confidence) {
  std::vector<size_t> golden =
      records_at(golden_.run, golden_nodes, golden_name, pair.golden_at, true);
  std::vector<size_t> mine = records_at(mine_.run, mine_nodes, mine_name, pair.mine_at, false);
  if (golden.empty() || mine.empty()) return;
  if (pair.rule == Rule::Rope) {
    add_rope(golden, mine);
    return;
  }
  filter_fused(golden, &mine);
  std::erase_if(golden, [&](size_t i) { return golden_.used[i]; });
  std::erase_if(mine, [&](size_t i) { return mine_.used[i]; });
  if (golden.size() == mine.size()) {
    for (size_t i = 0; i < golden.size(); ++i) {
      if (!add_fitting(golden[i], mine[i], pair.rule, confidence) && is_strong(pair.rule))
        add(golden[i], mine[i], pair.rule, confidence);
    }
  } else {
    add_only_fitting(golden, mine, pair.rule);
  }
}

}  // namespace assay::pair
