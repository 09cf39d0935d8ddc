// SPDX-License-Identifier: Apache-2.0
#include "compare/match.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "base/text.hpp"
#include "compare/match/torch_policies.hpp"
#include "compare/match/tree.hpp"

namespace assay::compare {
namespace {

using run::Role;
using run::Run;
using run::TensorRecord;

/// One folder of tensors that is compared as a whole: a rank and a token.
using Place = std::pair<int, int64_t>;
/// Records of one node in one place; the keys are shared node names.
using NodeRecords = std::map<std::string, std::vector<size_t>>;

// A leaf that never was a tensor (None, a number) has no partner to look for.
bool is_tensor(const TensorRecord& record) {
  return record.bytes || record.stats || record.digest || record.value.empty();
}

std::string list_tokens(const std::set<int64_t>& tokens) {
  const std::vector<int64_t> list(tokens.begin(), tokens.end());
  return list_text(list);
}

// "output_1_0", the file name of the strict tree without its ending: what the original sorted by.
std::string stem(const TensorRecord& record) {
  std::string text(run::role_name(record.role));
  if (!record.slot.empty()) text += "_" + record.slot;
  std::replace(text.begin(), text.end(), '.', '_');
  return text;
}

// Slots in numeric order: "2" before "10", "1.0" before "1.1".
std::vector<std::pair<int64_t, std::string>> slot_order(const std::string& slot) {
  std::vector<std::pair<int64_t, std::string>> key;
  for (const std::string_view part : split(slot, '.')) {
    const bool number = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    key.emplace_back(number ? std::stoll(std::string(part)) : -1, std::string(part));
  }
  return key;
}

class Matcher {
 public:
  Matcher(const Run& golden, const Run& mine, const MatchOptions& options)
      : golden_(golden), mine_(mine), options_(options), levels_(have_levels(golden, mine)) {
    // Between two strict trees the original looks at outputs only; inputs are the outputs of
    // others.
    outputs_only_ = levels_ && (options.level != Level::Api || options.msit ||
                                (golden.layout == "torch-tree" && mine.layout == "torch-tree"));
    golden_used_.resize(golden.records.size());
    mine_used_.resize(mine.records.size());
  }

  Result<Matching> run() {
    ASSAY_TRY_STATUS(match_explicit());
    ASSAY_TRY_STATUS(align_ranks());
    ASSAY_TRY_STATUS(align_tokens());
    group();
    if (levels_) {
      golden_tree_ = flatten_tree(golden_);
      mine_tree_ = flatten_tree(mine_);
      golden_layers_ = find_layers(golden_tree_, !options_.msit);
      mine_layers_ = find_layers(mine_tree_, !options_.msit);
      out_.golden_layer_type = golden_layers_.type;
      out_.mine_layer_type = mine_layers_.type;
    }
    const bool by_policy = levels_ && (options_.level != Level::Api || options_.msit);
    if (levels_) rules_ = by_policy ? policy_pairs() : leftover_pairs();
    for (const auto& [golden_rank, mine_rank] : ranks_) {
      for (const auto& [golden_token, mine_token] : tokens_) {
        const Place golden_place{golden_rank, golden_token};
        const Place mine_place{mine_rank, mine_token};
        if (by_policy) {
          match_place_by_policy(golden_place, mine_place);
        } else {
          match_place_one_to_one(golden_place, mine_place);
        }
      }
    }
    finish();
    return std::move(out_);
  }

 private:
  // ---- alignment of ranks and tokens ----

  Status align_ranks() {
    std::set<int> golden_ranks;
    std::set<int> mine_ranks;
    for (const TensorRecord& record : golden_.records) golden_ranks.insert(record.rank);
    for (const TensorRecord& record : mine_.records) mine_ranks.insert(record.rank);
    std::set<int> common;
    std::set_intersection(golden_ranks.begin(), golden_ranks.end(), mine_ranks.begin(),
                          mine_ranks.end(), std::inserter(common, common.end()));
    if (!options_.ranks.empty()) {
      for (const int rank : options_.ranks) {
        if (!common.contains(rank)) {
          return fail(Errc::Usage,
                      "rank " + std::to_string(rank) + " is not present on both sides");
        }
        ranks_.emplace_back(rank, rank);
      }
    } else if (common.empty() && golden_ranks.size() == 1 && mine_ranks.size() == 1) {
      ranks_.emplace_back(*golden_ranks.begin(), *mine_ranks.begin());
    } else {
      for (const int rank : common) ranks_.emplace_back(rank, rank);
    }
    if (ranks_.empty() && !golden_.records.empty() && !mine_.records.empty()) {
      return fail(Errc::Usage, "No common rank data in golden_path and my_path.");
    }
    return {};
  }

  // True when the path names one token folder, so that the user meant exactly that one.
  static bool is_single_token(const Run& run, const std::set<int64_t>& tokens) {
    if (tokens.size() != 1) return false;
    const std::string token = std::to_string(*tokens.begin());
    for (std::string_view part : split(run.path, '/')) {
      if (part == token) return true;
    }
    return false;
  }

  Status align_tokens() {
    std::set<int64_t> golden_tokens;
    std::set<int64_t> mine_tokens;
    for (const TensorRecord& record : golden_.records) golden_tokens.insert(record.step);
    for (const TensorRecord& record : mine_.records) mine_tokens.insert(record.step);
    if (outputs_only_) {  // weights/ beside the tokens is not one
      golden_tokens.erase(-1);
      mine_tokens.erase(-1);
    }
    if (!options_.token_map.empty()) {
      for (const auto& [golden_token, mine_token] : options_.token_map) {
        if (!golden_tokens.contains(golden_token) || !mine_tokens.contains(mine_token)) {
          const bool in_golden = golden_tokens.contains(golden_token);
          return fail(Errc::Usage,
                      "token " + std::to_string(in_golden ? mine_token : golden_token) +
                          " of the token map is not in " + (in_golden ? "mine" : "golden"));
        }
        tokens_.emplace_back(golden_token, mine_token);
      }
      return {};
    }
    for (const int64_t token : golden_tokens) {
      if (mine_tokens.contains(token)) tokens_.emplace_back(token, token);
    }
    if (!tokens_.empty() || golden_tokens.empty() || mine_tokens.empty()) return {};
    if (is_single_token(golden_, golden_tokens) && is_single_token(mine_, mine_tokens)) {
      tokens_.emplace_back(*golden_tokens.begin(), *mine_tokens.begin());
      return {};
    }
    return fail(Errc::Usage, "my tokens is " + list_tokens(mine_tokens) + " and golden tokens is " +
                                 list_tokens(golden_tokens) + ". The two cannot be matched.");
  }

  // ---- explicit pairs ----

  static bool is_named(const Run& run, const TensorRecord& record, std::string_view selector) {
    if (record.bytes) {
      const std::string& file = record.bytes->file;
      if (file == selector || file.ends_with("/" + std::string(selector))) return true;
    }
    const std::string node = shared_node_name(run, record.node);
    return selector == node || selector == record.node || selector == node + ":" + record.slot ||
           selector == record.node + ":" + record.slot;
  }

  Status match_explicit() {
    for (const ExplicitPair& wanted : options_.explicit_pairs) {
      std::vector<size_t> golden_found;
      std::vector<size_t> mine_found;
      for (size_t i = 0; i < golden_.records.size(); ++i) {
        if (is_named(golden_, golden_.records[i], wanted.golden)) golden_found.push_back(i);
      }
      for (size_t i = 0; i < mine_.records.size(); ++i) {
        if (is_named(mine_, mine_.records[i], wanted.mine)) mine_found.push_back(i);
      }
      if (golden_found.empty() || mine_found.empty()) {
        return fail(Errc::Usage,
                    "the map names '" + (golden_found.empty() ? wanted.golden : wanted.mine) +
                        "', which is not in " + (golden_found.empty() ? "golden" : "mine"));
      }
      if (golden_found.size() == 1 && mine_found.size() == 1) {
        add(golden_found[0], mine_found[0], "explicit");
        continue;
      }
      for (const size_t g : golden_found) {
        const TensorRecord& golden = golden_.records[g];
        for (const size_t m : mine_found) {
          const TensorRecord& mine = mine_.records[m];
          if (!mine_used_[m] && golden.rank == mine.rank && golden.step == mine.step &&
              golden.role == mine.role && golden.slot == mine.slot && golden.call == mine.call) {
            add(g, m, "explicit");
            break;
          }
        }
      }
    }
    return {};
  }

  // ---- candidates ----

  void group_side(const Run& run, std::map<Place, NodeRecords>* places) const {
    for (size_t i = 0; i < run.records.size(); ++i) {
      const TensorRecord& record = run.records[i];
      if (!is_tensor(record) || (outputs_only_ && record.role != Role::Output)) continue;
      (*places)[{record.rank, record.step}][shared_node_name(run, record.node)].push_back(i);
    }
  }
  void group() {
    group_side(golden_, &golden_places_);
    group_side(mine_, &mine_places_);
  }

  // The original's name filter for golden: nested results such as key/value caches are left out.
  static bool is_nested(const TensorRecord& record) {
    return record.slot.find('.') != std::string::npos;
  }

  void add(size_t golden, size_t mine, std::string_view reason, bool speculative = false) {
    golden_used_[golden] = true;
    mine_used_[mine] = true;
    out_.pairs.push_back({golden, mine, reason, speculative});
  }

  // ---- the original's pairs ----

  NodePairs policy_pairs() const {
    NodePairs pairs;
    switch (options_.level) {
      case Level::Layer:
        match_layers(golden_layers_, mine_layers_, &pairs);
        match_special_layers(golden_tree_, mine_tree_, &pairs);
        break;
      case Level::Module:
        match_modules(golden_tree_, mine_tree_, golden_layers_, mine_layers_, &pairs);
        break;
      case Level::Api:
        match_outputs(golden_tree_, mine_tree_, &pairs);
        match_full_names(golden_tree_, mine_tree_, &pairs);
        match_type_counts(golden_tree_, mine_tree_, &pairs);
        match_layers(golden_layers_, mine_layers_, &pairs);  // what is left of map_count
        match_special_layers(golden_tree_, mine_tree_, &pairs);
        match_fused_qkv(golden_tree_, mine_tree_, golden_layers_, mine_layers_, &pairs);
        break;
    }
    return pairs;
  }

  std::vector<size_t> outputs_of(const Run& run, const NodeRecords& nodes, const std::string& name,
                                 bool drop_nested) const {
    std::vector<size_t> out;
    const auto found = nodes.find(name);
    if (found == nodes.end()) return out;
    for (const size_t i : found->second) {
      if (run.records[i].role == Role::Output && !(drop_nested && is_nested(run.records[i]))) {
        out.push_back(i);
      }
    }
    std::sort(out.begin(), out.end(), [&](size_t a, size_t b) {
      const TensorRecord& first = run.records[a];
      const TensorRecord& second = run.records[b];
      return std::tuple(first.call, stem(first), a) < std::tuple(second.call, stem(second), b);
    });
    if (options_.statistics && options_.msit && !out.empty()) out.erase(out.begin(), out.end() - 1);
    return out;
  }

  void match_place_by_policy(Place golden_place, Place mine_place) {
    const NodeRecords& golden_nodes = golden_places_[golden_place];
    const NodeRecords& mine_nodes = mine_places_[mine_place];
    for (const NodePair& pair : rules_.list()) {
      const std::vector<size_t> golden_found = outputs_of(
          golden_, golden_nodes, golden_tree_.nodes[static_cast<size_t>(pair.golden)].name, true);
      const std::vector<size_t> mine_found = outputs_of(
          mine_, mine_nodes, mine_tree_.nodes[static_cast<size_t>(pair.mine)].name, false);
      if (golden_found.size() == mine_found.size()) {
        for (size_t i = 0; i < golden_found.size(); ++i) {
          add(golden_found[i], mine_found[i], pair.policy);
        }
      } else {
        for (const size_t g : golden_found) {
          for (const size_t m : mine_found) add(g, m, pair.policy, true);
        }
      }
    }
    list_policy_leftovers(golden_place, mine_place);
  }

  // At layer and module level only the nodes that the level is about are candidates.
  void list_policy_leftovers(Place golden_place, Place mine_place) {
    const auto count_side = [&](Side side, const Run& run, const Tree& tree, const Layers& layers,
                                const NodeRecords& nodes, std::vector<bool>& used) {
      std::vector<std::string> names;
      if (options_.level == Level::Layer) {
        for (const int node : layers.nodes)
          names.push_back(tree.nodes[static_cast<size_t>(node)].name);
      } else if (options_.level == Level::Api) {
        for (const auto& [name, records] : nodes) names.push_back(name);
      }
      for (const std::string& name : names) {
        for (const size_t i : outputs_of(run, nodes, name, side == Side::Golden)) {
          count(side, i, used[i],
                options_.level == Level::Layer ? "the other side has fewer layers"
                                               : "no rule pairs this node");
        }
      }
      if (options_.level == Level::Module) {
        for (const auto& [name, records] : nodes) {
          for (const size_t i : records) {
            if (used[i]) count(side, i, true, "");
          }
        }
      }
    };
    count_side(Side::Golden, golden_, golden_tree_, golden_layers_, golden_places_[golden_place],
               golden_used_);
    count_side(Side::Mine, mine_, mine_tree_, mine_layers_, mine_places_[mine_place], mine_used_);
  }

  void count(Side side, size_t record, bool matched, const std::string& reason) {
    ++(side == Side::Golden ? out_.golden_candidates : out_.mine_candidates);
    if (matched) {
      ++(side == Side::Golden ? out_.golden_matched : out_.mine_matched);
    } else {
      out_.unmatched.push_back({side, record, reason});
    }
  }

  // ---- each tensor at most once ----

  // Rules for nodes whose name the other side does not know, the most specific first.
  NodePairs leftover_pairs() const {
    NodePairs pairs;
    match_layers(golden_layers_, mine_layers_, &pairs);
    match_modules(golden_tree_, mine_tree_, golden_layers_, mine_layers_, &pairs);
    match_type_counts(golden_tree_, mine_tree_, &pairs);
    match_special_layers(golden_tree_, mine_tree_, &pairs);
    match_outputs(golden_tree_, mine_tree_, &pairs);
    return pairs;
  }

  struct NamePair {
    std::string golden;
    std::string mine;
    std::string_view reason;
  };

  std::vector<NamePair> pair_names(const NodeRecords& golden_nodes,
                                   const NodeRecords& mine_nodes) const {
    std::vector<NamePair> pairs;
    std::set<std::string> golden_taken;
    std::set<std::string> mine_taken;
    const auto take = [&](const std::string& golden, const std::string& mine,
                          std::string_view reason) {
      if (!golden_nodes.contains(golden) || !mine_nodes.contains(mine)) return;
      if (golden_taken.contains(golden) || mine_taken.contains(mine)) return;
      golden_taken.insert(golden);
      mine_taken.insert(mine);
      pairs.push_back({golden, mine, reason});
    };
    for (const auto& [name, records] : mine_nodes) take(name, name, "equal names");
    for (const NodePair& pair : rules_.list()) {
      take(golden_tree_.nodes[static_cast<size_t>(pair.golden)].name,
           mine_tree_.nodes[static_cast<size_t>(pair.mine)].name, pair.policy);
    }
    return pairs;
  }

  // Equal role, call and slot first; then, when as many are left on both sides, by position.
  void pair_slots(const std::vector<size_t>& golden_records,
                  const std::vector<size_t>& mine_records, std::string_view reason) {
    using Key = std::tuple<Role, uint32_t, std::string>;
    std::map<Key, size_t> by_slot;
    for (const size_t i : golden_records) {
      const TensorRecord& record = golden_.records[i];
      if (!golden_used_[i]) by_slot.emplace(Key{record.role, record.call, record.slot}, i);
    }
    std::map<std::pair<Role, uint32_t>, std::vector<size_t>> mine_left;
    for (const size_t i : mine_records) {
      if (mine_used_[i]) continue;
      const TensorRecord& record = mine_.records[i];
      const auto found = by_slot.find({record.role, record.call, record.slot});
      if (found != by_slot.end() && !golden_used_[found->second]) {
        add(found->second, i, reason);
      } else {
        mine_left[{record.role, record.call}].push_back(i);
      }
    }
    std::map<std::pair<Role, uint32_t>, std::vector<size_t>> golden_left;
    for (const size_t i : golden_records) {
      const TensorRecord& record = golden_.records[i];
      if (!golden_used_[i]) golden_left[{record.role, record.call}].push_back(i);
    }
    for (auto& [key, mine_list] : mine_left) {
      std::vector<size_t>& golden_list = golden_left[key];
      if (golden_list.size() != mine_list.size()) continue;
      sort_by_slot(golden_, &golden_list);
      sort_by_slot(mine_, &mine_list);
      for (size_t i = 0; i < mine_list.size(); ++i) {
        add(golden_list[i], mine_list[i], "equal position");
      }
    }
  }

  static void sort_by_slot(const Run& run, std::vector<size_t>* records) {
    std::sort(records->begin(), records->end(), [&](size_t a, size_t b) {
      return std::pair(slot_order(run.records[a].slot), a) <
             std::pair(slot_order(run.records[b].slot), b);
    });
  }

  void match_place_one_to_one(Place golden_place, Place mine_place) {
    const NodeRecords& golden_nodes = golden_places_[golden_place];
    const NodeRecords& mine_nodes = mine_places_[mine_place];
    if (is_single(golden_nodes) && is_single(mine_nodes) && golden_.layout == "file" &&
        mine_.layout == "file") {
      const size_t g = golden_nodes.begin()->second.front();
      const size_t m = mine_nodes.begin()->second.front();
      if (!golden_used_[g] && !mine_used_[m]) add(g, m, "two files");
    }
    const std::vector<NamePair> names = pair_names(golden_nodes, mine_nodes);
    std::set<std::string> golden_paired;
    std::set<std::string> mine_paired;
    for (const NamePair& pair : names) {
      pair_slots(golden_nodes.at(pair.golden), mine_nodes.at(pair.mine), pair.reason);
      golden_paired.insert(pair.golden);
      mine_paired.insert(pair.mine);
    }
    count_nodes(Side::Golden, golden_, golden_nodes, golden_paired, golden_used_);
    count_nodes(Side::Mine, mine_, mine_nodes, mine_paired, mine_used_);
  }

  static bool is_single(const NodeRecords& nodes) {
    return nodes.size() == 1 && nodes.begin()->second.size() == 1;
  }

  void count_nodes(Side side, const Run& run, const NodeRecords& nodes,
                   const std::set<std::string>& paired, const std::vector<bool>& used) {
    const std::string other = side == Side::Golden ? "mine" : "golden";
    for (const auto& [name, records] : nodes) {
      for (const size_t i : records) {
        const TensorRecord& record = run.records[i];
        std::string reason = "no node of this name or type in " + other;
        if (paired.contains(name)) {
          reason = "the node of " + other + " has no " + std::string(run::role_name(record.role)) +
                   (record.slot.empty() ? "" : " '" + record.slot + "'") +
                   (record.call > 0 ? " in call " + std::to_string(record.call) : "");
        }
        count(side, i, used[i], reason);
      }
    }
  }

  // ---- order, leftovers of whole tokens and ranks ----

  void list_other_places(Side side, const std::map<Place, NodeRecords>& places) {
    const std::string other = side == Side::Golden ? "mine" : "golden";
    for (const auto& [place, nodes] : places) {
      const auto is_rank = [&](const auto& pair) {
        return (side == Side::Golden ? pair.first : pair.second) == place.first;
      };
      const auto is_token = [&](const auto& pair) {
        return (side == Side::Golden ? pair.first : pair.second) == place.second;
      };
      const bool rank_known = std::any_of(ranks_.begin(), ranks_.end(), is_rank);
      if (rank_known && std::any_of(tokens_.begin(), tokens_.end(), is_token)) continue;
      const std::string reason = rank_known
                                     ? "token " + std::to_string(place.second) +
                                           " is not compared: not in " + other + " or not selected"
                                     : "rank " + std::to_string(place.first) +
                                           " is not compared: not in " + other + " or not selected";
      for (const auto& [name, records] : nodes) {
        for (const size_t i : records) {
          const bool used = side == Side::Golden ? golden_used_[i] : mine_used_[i];
          if (!used) out_.unmatched.push_back({side, i, reason});
        }
      }
    }
  }

  void finish() {
    if (!options_.msit) {
      list_other_places(Side::Golden, golden_places_);
      list_other_places(Side::Mine, mine_places_);
    }
    for (const auto& pair : ranks_) out_.ranks.push_back(pair.second);
    for (const auto& pair : tokens_) out_.tokens.push_back(pair.second);
    std::stable_sort(out_.pairs.begin(), out_.pairs.end(),
                     [&](const RecordPair& a, const RecordPair& b) {
                       const TensorRecord& first = mine_.records[a.mine];
                       const TensorRecord& second = mine_.records[b.mine];
                       return std::tuple(first.rank, first.step, first.order, a.mine, a.golden) <
                              std::tuple(second.rank, second.step, second.order, b.mine, b.golden);
                     });
    std::stable_sort(out_.unmatched.begin(), out_.unmatched.end(),
                     [](const UnmatchedRecord& a, const UnmatchedRecord& b) {
                       return std::pair(a.side, a.record) < std::pair(b.side, b.record);
                     });
  }

  const Run& golden_;
  const Run& mine_;
  const MatchOptions& options_;
  const bool levels_;
  bool outputs_only_ = false;
  Matching out_;
  std::vector<std::pair<int, int>> ranks_;           // (golden, mine)
  std::vector<std::pair<int64_t, int64_t>> tokens_;  // (golden, mine)
  std::map<Place, NodeRecords> golden_places_;
  std::map<Place, NodeRecords> mine_places_;
  Tree golden_tree_;
  Tree mine_tree_;
  Layers golden_layers_;
  Layers mine_layers_;
  NodePairs rules_;  // the same for every rank and token
  std::vector<bool> golden_used_;
  std::vector<bool> mine_used_;
};

}  // namespace

std::string_view level_name(Level level) {
  switch (level) {
    case Level::Layer:
      return "layer";
    case Level::Module:
      return "module";
    case Level::Api:
      break;
  }
  return "api";
}

double Matching::coverage_percent() const {
  const size_t candidates = golden_candidates + mine_candidates;
  if (candidates == 0) return 100;
  return 100.0 * static_cast<double>(golden_matched + mine_matched) /
         static_cast<double>(candidates);
}

bool have_levels(const run::Run& golden, const run::Run& mine) {
  return golden.topology.has_value() && mine.topology.has_value();
}

Result<Matching> match_runs(const run::Run& golden, const run::Run& mine,
                            const MatchOptions& options) {
  return Matcher(golden, mine, options).run();
}

}  // namespace assay::compare
