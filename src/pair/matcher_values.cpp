// SPDX-License-Identifier: Apache-2.0
// Pairs that values find, and what they teach about other layers and tokens.
#include "pair/matcher.hpp"

#include <algorithm>
#include <numeric>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "pair/fingerprint.hpp"

namespace assay::pair {

using run::Run;
using run::TensorRecord;

namespace {

// Between ATB and PyTorch tables say what corresponds; beyond them only values do, not shape and
// place.
constexpr double kTaughtConfidence = 0.55;
// An input for an output: the content has to be telling, not one number or zeros.
constexpr double kContentConfidence = 0.7;
constexpr int kLearnedLayers = 3;      // layers whose values teach the pattern of all
constexpr size_t kMaxByValue = 50000;  // records of a place that values may pair

}  // namespace

std::string Matcher::way_below(const Tree& tree, int layer, int node) {
  std::string way;
  while (node != layer && node >= 0) {
    const int parent = tree.at(node).parent;
    if (parent < 0) return {};
    const std::vector<int>& siblings = tree.at(parent).children;
    const auto place = std::find(siblings.begin(), siblings.end(), node) - siblings.begin();
    way = std::to_string(place) + (way.empty() ? "" : ".") + way;
    node = parent;
  }
  return way;
}

int Matcher::follow(const Tree& tree, int layer, std::string_view way) {
  int node = layer;
  if (way.empty()) return node;  // the layer itself
  for (const std::string_view part : split(way, '.')) {
    const size_t place = parse_number<size_t>(part).value_or(SIZE_MAX);
    const std::vector<int>& children = tree.at(node).children;
    if (place >= children.size()) return -1;
    node = children[place];
  }
  return node;
}

std::vector<size_t> Matcher::unused_outputs_below(const MatchSide& side, const Tree& tree,
                                                  int layer, const NodeRecords& nodes) const {
  std::vector<size_t> out;
  for (const int node : tree.subtree(layer)) {
    for (const size_t i : records_at(side.run, nodes, tree.at(node).name, "outputs", false)) {
      if (!side.used[i]) out.push_back(i);
    }
  }
  std::sort(out.begin(), out.end(), [&](size_t a, size_t b) {
    return std::pair(side.run.records[a].order, a) < std::pair(side.run.records[b].order, b);
  });
  return out;
}

ValueMatchOptions Matcher::value_options() const {
  return {.jobs = options_.jobs, .interrupted = options_.interrupted};
}

void Matcher::learn(const Trees& trees, const PlacePair& places) {
  if (trees.state->is_learned || !options_.by_value) return;
  trees.state->is_learned = true;
  const std::vector<int>& golden_layers =
      golden_.layers[static_cast<size_t>(places.golden.part)].nodes;
  const std::vector<int>& mine_layers = mine_.layers[static_cast<size_t>(places.mine.part)].nodes;
  const size_t layers = std::min(golden_layers.size(), mine_layers.size());
  std::set<size_t> samples;
  for (size_t i = 0; i < std::min<size_t>(layers, kLearnedLayers); ++i)
    samples.insert(i * (layers - 1) /
                   std::max<size_t>(1, std::min<size_t>(layers, kLearnedLayers) - 1));

  using Key = std::pair<std::string, std::string>;          // way, slot
  std::map<Key, std::map<Key, std::vector<double>>> votes;  // mine -> golden -> confidences
  for (const size_t i : samples) {
    const auto golden = unused_outputs_below(golden_, *trees.golden, golden_layers[i],
                                             golden_.nodes_at(places.golden));
    const auto mine =
        unused_outputs_below(mine_, *trees.mine, mine_layers[i], mine_.nodes_at(places.mine));
    const std::map<std::string, int> golden_index = index_of(*trees.golden, golden_layers[i]);
    const std::map<std::string, int> mine_index = index_of(*trees.mine, mine_layers[i]);
    for (const ValuePair& pair :
         match_by_value(golden_.run, golden, mine_.run, mine, {}, value_options())) {
      if (pair.confidence < kTaughtConfidence) continue;
      const TensorRecord& g = golden_.run.records[pair.golden];
      const TensorRecord& m = mine_.run.records[pair.mine];
      const Key golden_key{way_below(*trees.golden, golden_layers[i],
                                     golden_index.at(shared_node_name(golden_.run, g.node))),
                           g.slot};
      const Key mine_key{way_below(*trees.mine, mine_layers[i],
                                   mine_index.at(shared_node_name(mine_.run, m.node))),
                         m.slot};
      votes[mine_key][golden_key].push_back(pair.confidence);
    }
  }
  std::set<Key> golden_taken;
  for (const auto& [mine_key, candidates] : votes) {
    const auto best = std::max_element(
        candidates.begin(), candidates.end(),
        [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
    const bool is_clear = std::none_of(candidates.begin(), candidates.end(), [&](const auto& c) {
      return c.first != best->first && c.second.size() == best->second.size();
    });
    if (!is_clear || !golden_taken.insert(best->first).second) continue;
    double confidence = 0;
    for (const double c : best->second) confidence += c;
    confidence /= static_cast<double>(best->second.size());
    for (size_t i = 0; i < layers; ++i) {
      const int golden_node = follow(*trees.golden, golden_layers[i], best->first.first);
      const int mine_node = follow(*trees.mine, mine_layers[i], mine_key.first);
      if (golden_node < 0 || mine_node < 0) continue;
      trees.state->learned.push_back(
          {golden_node, best->first.second, mine_node, mine_key.second, confidence});
    }
  }
}

std::map<std::string, int> Matcher::index_of(const Tree& tree, int layer) {
  std::map<std::string, int> index;
  for (const int node : tree.subtree(layer)) index.emplace(tree.at(node).name, node);
  return index;
}

std::optional<size_t> Matcher::unused_at(const MatchSide& side, const NodeRecords& nodes,
                                         const std::string& node, Role role,
                                         const std::string& slot) {
  const Location location = role == Role::Input ? "inputs" : "outputs";
  for (const size_t i : records_at(side.run, nodes, node, location, false)) {
    if (side.run.records[i].slot == slot && !side.used[i]) return i;
  }
  return std::nullopt;
}

void Matcher::apply_learned(const Trees& trees, const PlacePair& places) {
  const NodeRecords& golden_nodes = golden_.nodes_at(places.golden);
  const NodeRecords& mine_nodes = mine_.nodes_at(places.mine);
  for (const LearnedRule& rule : trees.state->learned) {
    const auto golden = unused_at(golden_, golden_nodes, trees.golden->at(rule.golden).name,
                                  rule.golden_role, rule.golden_slot);
    const auto mine = unused_at(mine_, mine_nodes, trees.mine->at(rule.mine).name, rule.mine_role,
                                rule.mine_slot);
    if (golden && mine) add_fitting(*golden, *mine, Rule::Values, rule.confidence);
  }
}

std::vector<size_t> Matcher::leftovers(const MatchSide& side, const NodeRecords& nodes) const {
  std::vector<size_t> out;
  for (const auto& [name, records] : nodes) {
    for (const size_t i : records) {
      if (!side.used[i] && is_candidate(side.run.records[i])) out.push_back(i);
    }
  }
  std::sort(out.begin(), out.end(), [&](size_t a, size_t b) {
    return std::pair(side.run.records[a].order, a) < std::pair(side.run.records[b].order, b);
  });
  return out;
}

void Matcher::keep_first_of_equals(const Run& run, std::vector<size_t>* records) const {
  const std::vector<Fingerprint> prints =
      fingerprint_records(run, *records, options_.jobs, options_.interrupted);
  std::map<std::tuple<int64_t, double, Sketch>, size_t> known;  // -> the first with this content
  std::vector<size_t> kept;
  for (size_t i = 0; i < prints.size(); ++i) {
    const Fingerprint& print = prints[i];
    const bool is_new =
        print.source != Fingerprint::Source::Values ||
        known.emplace(std::tuple(print.value_count, print.l2_norm, print.sketch), i).second;
    if (is_new) kept.push_back((*records)[i]);
  }
  *records = std::move(kept);
}

std::vector<size_t> Matcher::unused_inputs(const MatchSide& side, const NodeRecords& nodes) const {
  std::vector<size_t> out;
  for (const auto& [name, records] : nodes) {
    for (const size_t i : records_at(side.run, nodes, name, "inputs", true)) {
      if (!side.used[i] && side.run.records[i].bytes) out.push_back(i);
    }
  }
  std::sort(out.begin(), out.end(), [&](size_t a, size_t b) {
    return std::pair(side.run.records[a].order, a) < std::pair(side.run.records[b].order, b);
  });
  return out;
}

void Matcher::pair_contents(const Trees& trees, const PlacePair& places) {
  const auto unused = [&](const MatchSide& side, const Place& place, bool inputs) {
    return inputs ? unused_inputs(side, side.nodes_at(place))
                  : leftovers(side, side.nodes_at(place));
  };
  for (const bool inputs : {false, true}) {
    std::vector<size_t> golden = unused(golden_, places.golden, inputs && !golden_.is_atb());
    std::vector<size_t> mine = unused(mine_, places.mine, inputs && !mine_.is_atb());
    if (golden.size() > kMaxByValue || mine.size() > kMaxByValue) continue;
    keep_first_of_equals(golden_.run, &golden);
    keep_first_of_equals(mine_.run, &mine);
    // Roles differ on purpose here.
    const Run golden_outputs = as_outputs(golden_.run, golden);
    const Run mine_outputs = as_outputs(mine_.run, mine);
    const std::vector<size_t> golden_all = counted(golden.size());
    const std::vector<size_t> mine_all = counted(mine.size());
    for (const ValuePair& pair :
         match_by_value(golden_outputs, golden_all, mine_outputs, mine_all, {}, value_options())) {
      if (pair.confidence < kContentConfidence) continue;
      const size_t g = golden[pair.golden];
      const size_t m = mine[pair.mine];
      if (add_fitting(g, m, pair.by_place ? Rule::Place : Rule::Values, pair.confidence))
        teach(trees, g, m, pair.confidence);
    }
  }
}

Run Matcher::as_outputs(const Run& run, const std::vector<size_t>& records) {
  Run out;
  for (const size_t i : records) {
    out.records.push_back(run.records[i]);
    out.records.back().role = Role::Output;
  }
  return out;
}

std::vector<size_t> Matcher::counted(size_t count) {
  std::vector<size_t> out(count);
  std::iota(out.begin(), out.end(), size_t{0});
  return out;
}

void Matcher::teach(const Trees& trees, size_t golden, size_t mine, double confidence) {
  if (trees.state == nullptr || !crosses_) return;
  const TensorRecord& g = golden_.run.records[golden];
  const TensorRecord& m = mine_.run.records[mine];
  const int golden_node = trees.golden->find(shared_node_name(golden_.run, g.node));
  const int mine_node = trees.mine->find(shared_node_name(mine_.run, m.node));
  if (golden_node < 0 || mine_node < 0) return;
  trees.state->learned.push_back(
      {golden_node, g.slot, mine_node, m.slot, confidence, g.role, m.role});
}

void Matcher::pair_leftovers_by_value(const Trees& trees, const PlacePair& places) {
  if (!options_.by_value) return;
  const std::pair key{places.golden.part, places.mine.part};
  if (trees.state != nullptr && crosses_ && !looked_at_.insert(key).second) return;
  const NodeRecords& golden_nodes = golden_.nodes_at(places.golden);
  const NodeRecords& mine_nodes = mine_.nodes_at(places.mine);
  const std::vector<size_t> golden = leftovers(golden_, golden_nodes);
  const std::vector<size_t> mine = leftovers(mine_, mine_nodes);
  if (golden.empty() || mine.empty() || golden.size() > kMaxByValue || mine.size() > kMaxByValue)
    return;
  std::vector<ValuePair> anchors;
  for (const RecordPair& pair : out_.pairs) {
    const TensorRecord& m = mine_.run.records[pair.mine];
    if (m.rank == places.mine.rank && m.step == places.mine.step)
      anchors.push_back({pair.golden, pair.mine, pair.confidence});
  }
  const auto found = match_by_value(golden_.run, golden, mine_.run, mine, anchors, value_options());
  for (const ValuePair& pair : found) {
    if (crosses_ && pair.confidence < kTaughtConfidence) continue;
    if (add_fitting(pair.golden, pair.mine, pair.by_place ? Rule::Place : Rule::Values,
                    pair.confidence))
      teach(trees, pair.golden, pair.mine, pair.confidence);
  }
  if (crosses_) pair_contents(trees, places);
}

}  // namespace assay::pair
