// SPDX-License-Identifier: Apache-2.0
// What the user named is paired first; then each pair of ranks and steps, by rules or one to one;
// then shards are merged, and what is left alone gets its reason. Where only golden is of ATB the
// two sides change places for this.
#include "pair/match.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "pair/matcher.hpp"
#include "run/atb_names.hpp"

namespace assay::pair {

using run::Run;
using run::TensorRecord;

bool is_tensor(const TensorRecord& record) {
  if (record.kind != run::RecordKind::Operand) return false;
  return record.bytes || record.stats || record.digest || record.value.empty();
}

namespace {

// Tensors of dispatched operators in a native run: "model.norm::aten.mul.Tensor.1".
//   docs/formats/native.md
bool is_operators(const Run& run, const TensorRecord& record) {
  return run.has(run::Trait::AtenOperators) && record.is_of_operator();
}

// A capture of an engine names weights, caches and views of them without copying their bytes.
bool is_named_only(const Run& run, const TensorRecord& record) {
  return run.has_own_engine() && !record.bytes && !record.stats && !record.digest;
}

size_t count_operators(const Run& run) {
  if (run.operations.empty()) return 0;
  return static_cast<size_t>(std::ranges::count_if(
      run.records, [&](const TensorRecord& record) { return is_operators(run, record); }));
}

}  // namespace

Matcher::Matcher(const Run& golden, const Run& mine, const Correspondence& pairs,
                 const MatchOptions& options)
    : whole_(pairs),
      options_(options),
      tables_(options.tables != nullptr ? *options.tables : builtin_tables()),
      levels_(have_levels(golden, mine)),
      golden_(golden, levels_, options.literal == nullptr),
      mine_(mine, levels_, options.literal == nullptr) {
  crosses_ = golden_.is_atb() != mine_.is_atb();
  // Between two strict trees, and between ATB and PyTorch, what nodes computed is compared; inputs
  // are the outputs of others.
  outputs_only_ =
      levels_ && (options.level != Level::Api || options.literal != nullptr || crosses_ ||
                  (golden.has(run::Trait::StrictHooks) && mine.has(run::Trait::StrictHooks)));
  by_policy_ = levels_ && (options.level != Level::Api || options.literal != nullptr);
}

// Operators that one side only has are not compared: they are many, and none of them can have a
// partner.
void Matcher::group_tensors() {
  const size_t of_golden = count_operators(golden_.run);
  const size_t of_mine = count_operators(mine_.run);
  const bool one_side = (of_golden > 0) != (of_mine > 0);
  for (MatchSide* side : {&golden_, &mine_}) {
    side->group([&](const TensorRecord& record) {
      return is_tensor(record) && !is_named_only(side->run, record) &&
             !(one_side && is_operators(side->run, record));
    });
  }
  if (!one_side) return;
  out_.notes.push_back(std::to_string(std::max(of_golden, of_mine)) +
                       " tensors of operators are not compared: the other side has modules only");
}

void Matcher::gather_ranks() {
  if (options_.literal != nullptr) return;
  for (const RankGroup& group : whole_.ranks.groups) {
    if (group.golden.size() == group.mine.size()) continue;
    gather_ranks(golden_, group.golden);
    gather_ranks(mine_, group.mine);
  }
}

void Matcher::gather_ranks(MatchSide& side, const std::vector<int>& ranks) {
  const std::set<int> others(std::next(ranks.begin()), ranks.end());
  for (auto& [place, nodes] : side.places) {
    if (!others.contains(place.rank)) continue;
    NodeRecords& first = side.places[{ranks.front(), place.step, place.part}];
    for (auto node = nodes.begin(); node != nodes.end();) {
      const bool is_new = first.try_emplace(node->first, node->second).second;
      node = is_new ? nodes.erase(node) : std::next(node);
    }
  }
}

Result<Matching> Matcher::match() {
  // Room that nobody uses takes no memory; growing would take twice what there is.
  out_.pairs.reserve(std::min(golden_.run.records.size(), mine_.run.records.size()));
  ASSAY_TRY_STATUS(match_explicit());
  ASSAY_TRY_STATUS(use_ranks());
  group_tensors();
  gather_ranks();
  ASSAY_TRY_STATUS(align_tokens());
  if (levels_) name_layer_types();
  if (whole_.ranks.has_replicas()) {
    golden_.named = golden_.used;
    mine_.named = mine_.used;
  }
  for (const RankGroup& group : whole_.ranks.groups) {
    for (PlacePair places : tokens_) {
      places.golden.rank = group.golden.front();
      places.mine.rank = group.mine.front();
      token_ = places.token;
      if (group.is_again) {
        match_again(places);
      } else {
        match_place(places);
      }
    }
  }
  if (by_policy_) count_levels();
  merge_ranks();
  list_leftovers();
  finish();
  return std::move(out_);
}

void Matcher::match_place(const PlacePair& places) {
  std::vector<size_t> golden_used;
  std::vector<size_t> mine_used;
  if (places.rows != nullptr) {
    golden_used = release(golden_, places.golden);
    mine_used = release(mine_, places.mine);
  }
  const size_t first = out_.pairs.size();
  if (by_policy_) {
    match_place_by_policy(places);
  } else {
    match_place_one_to_one(places);
  }
  if (places.rows == nullptr) return;
  keep_common_rows(*places.rows, first);
  for (const size_t i : golden_used) golden_.used[i] = true;
  for (const size_t i : mine_used) mine_.used[i] = true;
}

void Matcher::match_again(const PlacePair& places) {
  const std::vector<size_t> golden_used = release(golden_, places.golden);
  const std::vector<size_t> mine_used = release(mine_, places.mine);
  const auto golden_paired = std::exchange(golden_paired_, {});
  const auto mine_paired = std::exchange(mine_paired_, {});
  match_place(places);
  golden_paired_.insert(golden_paired.begin(), golden_paired.end());
  mine_paired_.insert(mine_paired.begin(), mine_paired.end());
  for (const size_t i : golden_used) golden_.used[i] = true;
  for (const size_t i : mine_used) mine_.used[i] = true;
}

Result<Matching> Matcher::match_named() {
  ASSAY_TRY_STATUS(match_explicit());
  return std::move(out_);
}

void Matcher::list_leftovers() {
  std::set<Place> golden_compared;
  std::set<Place> mine_compared;
  for (const RankGroup& group : whole_.ranks.groups) {
    for (PlacePair places : tokens_) {
      for (const int rank : group.golden) {
        places.golden.rank = rank;
        golden_compared.insert(places.golden);
      }
      for (const int rank : group.mine) {
        places.mine.rank = rank;
        mine_compared.insert(places.mine);
      }
    }
  }
  if (options_.literal != nullptr) return;
  list_side_leftovers(Side::Golden, golden_, golden_compared, golden_paired_);
  list_side_leftovers(Side::Mine, mine_, mine_compared, mine_paired_);
}

void Matcher::list_side_leftovers(Side name_of_side, const MatchSide& side,
                                  const std::set<Place>& compared,
                                  const std::set<std::pair<Place, InternedText>>& paired) {
  const std::string other = name_of_side == Side::Golden ? "mine" : "golden";
  std::set<std::string_view> nodes_of_other;
  for (const Tree& tree : (name_of_side == Side::Golden ? mine_ : golden_).trees) {
    for (const TreeNode& node : tree.nodes) nodes_of_other.insert(node.name);
  }
  size_t kernels = 0;
  for (const auto& [place, nodes] : side.places) {
    const bool is_compared = compared.contains(place);
    if (is_compared && by_policy_) continue;  // counted with its level
    for (const auto& [name, records] : nodes) {
      for (const size_t i : records) {
        const TensorRecord& record = side.run.records[i];
        if (crosses_ && run::is_atb_kernel(record.node)) ++kernels;
        if (!is_candidate(record)) continue;
        if (!is_compared) {
          if (!side.used[i])
            out_.unmatched.push_back({name_of_side, i, place_reason(side, place, other)});
        } else {
          const auto known = why_alone_.find({name_of_side, i});
          count(name_of_side, i, side.used[i],
                known != why_alone_.end()
                    ? std::string(known->second)
                    : leftover_reason(record, other, paired.contains({place, name}),
                                      nodes_of_other.contains(name)));
        }
      }
    }
  }
  if (kernels > 0 && !by_policy_) {
    out_.notes.push_back(std::to_string(kernels) + " tensors of kernels in " +
                         (name_of_side == Side::Golden ? "golden" : "mine") +
                         " have no counterpart outside of ATB");
  }
}

std::string Matcher::place_reason(const MatchSide& side, const Place& place,
                                  const std::string& other) const {
  const bool is_golden = &side == &golden_;
  const bool rank_known = std::ranges::any_of(whole_.ranks.groups, [&](const RankGroup& group) {
    const std::vector<int>& ranks = is_golden ? group.golden : group.mine;
    return std::find(ranks.begin(), ranks.end(), place.rank) != ranks.end();
  });
  return (rank_known ? "step " + std::to_string(place.step)
                     : "rank " + std::to_string(place.rank)) +
         " is not compared: not in " + other + " or not selected";
}

std::string Matcher::leftover_reason(const TensorRecord& record, const std::string& other,
                                     bool node_is_paired, bool other_has_node) {
  if (!node_is_paired && other_has_node)
    return "the model of " + other + " has this node, but its tensors are not in the dump";
  if (!node_is_paired) return "no node of this name or type in " + other;
  return "the node of " + other + " has no " + std::string(role_name(record.role)) +
         (record.slot.empty() ? "" : " '" + record.slot + "'") +
         (record.call > 0 ? " in call " + std::to_string(record.call) : "");
}

void Matcher::finish() {
  for (const RankGroup& group : whole_.ranks.groups) out_.ranks.push_back(group.mine.front());
  std::set<int64_t> tokens;
  for (const PlacePair& places : tokens_) tokens.insert(places.token);
  out_.tokens.assign(tokens.begin(), tokens.end());
  if (options_.literal == nullptr) {
    std::stable_sort(out_.pairs.begin(), out_.pairs.end(),
                     [&](const RecordPair& a, const RecordPair& b) {
                       const TensorRecord& first = mine_.run.records[a.mine];
                       const TensorRecord& second = mine_.run.records[b.mine];
                       return std::tuple(first.rank, a.token, first.order, a.mine, a.golden) <
                              std::tuple(second.rank, b.token, second.order, b.mine, b.golden);
                     });
  }
  std::stable_sort(out_.unmatched.begin(), out_.unmatched.end(),
                   [](const UnmatchedRecord& a, const UnmatchedRecord& b) {
                     return std::pair(a.side, a.record) < std::pair(b.side, b.record);
                   });
}

namespace {

// The rules know ATB as mine; the other way round both sides change places.
bool is_turned_around(const Run& golden, const Run& mine, const MatchOptions& options) {
  return options.literal == nullptr && golden.has(run::Trait::AtbOperations) &&
         !mine.has(run::Trait::AtbOperations) && have_levels(golden, mine);
}

Correspondence turned_around(Correspondence pairs) {
  for (auto& [golden, mine] : pairs.user.token_map) std::swap(golden, mine);
  for (auto& [golden, mine] : pairs.step_pairs) std::swap(golden, mine);
  for (RankGroup& group : pairs.ranks.groups) std::swap(group.golden, group.mine);
  for (ExplicitPair& pair : pairs.user.explicit_pairs) {
    std::swap(pair.golden, pair.mine);
    std::swap(pair.golden_steps, pair.mine_steps);
  }
  return pairs;
}

void turn_around(const Run& mine_run, Matching* matching) {
  for (RecordPair& pair : matching->pairs) {
    std::swap(pair.golden, pair.mine);
    std::swap(pair.golden_recipe, pair.mine_recipe);
    std::swap(pair.golden_label, pair.mine_label);
  }
  for (UnmatchedRecord& record : matching->unmatched)
    record.side = record.side == Side::Golden ? Side::Mine : Side::Golden;
  std::swap(matching->golden_candidates, matching->mine_candidates);
  std::swap(matching->golden_matched, matching->mine_matched);
  std::swap(matching->golden_layer_type, matching->mine_layer_type);
  std::stable_sort(matching->pairs.begin(), matching->pairs.end(),
                   [&](const RecordPair& a, const RecordPair& b) {
                     const TensorRecord& first = mine_run.records[a.mine];
                     const TensorRecord& second = mine_run.records[b.mine];
                     return std::tuple(first.rank, a.token, first.order, a.mine) <
                            std::tuple(second.rank, b.token, second.order, b.mine);
                   });
}

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
  return golden.has_tree() && mine.has_tree();
}

Result<Matching> match_named(const run::Run& golden, const run::Run& mine,
                             const Correspondence& pairs, const MatchOptions& options) {
  return Matcher(golden, mine, pairs, options).match_named();
}

Result<Matching> match_runs(const run::Run& golden, const run::Run& mine,
                            const Correspondence& pairs, const MatchOptions& options) {
  if (pairs.engine != nullptr) return pairs.engine->match(golden, mine, pairs, options);
  if (!is_turned_around(golden, mine, options))
    return Matcher(golden, mine, pairs, options).match();
  const Correspondence turned = turned_around(pairs);
  Result<Matching> matching = Matcher(mine, golden, turned, options).match();
  if (matching) turn_around(mine, &*matching);
  return matching;
}

}  // namespace assay::pair
