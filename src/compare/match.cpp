// SPDX-License-Identifier: Apache-2.0
#include "compare/match.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/text.hpp"
#include "compare/match/by_value.hpp"
#include "compare/match/explicit_pairs.hpp"
#include "compare/match/fingerprint.hpp"
#include "compare/match/merge_ranks.hpp"
#include "compare/match/policies.hpp"
#include "compare/match/side.hpp"
#include "compare/match/slices.hpp"
#include "compare/match/tokens.hpp"
#include "compare/match/tree.hpp"

namespace assay::compare {

namespace {

using run::Role;
using run::Run;
using run::TensorRecord;

// How sure a rule is before anybody looked at values.
constexpr double kTableConfidence = 0.9;     // a table names both sides
constexpr double kPositionConfidence = 0.7;  // as many of one type, in order
// Between ATB and PyTorch tables say what corresponds; beyond them only values do, not shape and place.
constexpr double kTaughtConfidence = 0.55;
// An input for an output: the content has to be telling, not one number or zeros.
constexpr double kContentConfidence = 0.7;
constexpr int kLearnedLayers = 3;      // layers whose values teach the pattern of all
constexpr size_t kMaxByValue = 50000;  // records of a place that values may pair

// A leaf that never was a tensor (None, a number) has no partner to look for.
bool is_tensor(const TensorRecord& record) {
  return record.bytes || record.stats || record.digest || record.value.empty();
}

bool is_kernel(const TensorRecord& record) { return record.node.ends_with("Kernel"); }

std::string list_tokens(const std::set<int64_t>& tokens) {
  const std::vector<int64_t> list(tokens.begin(), tokens.end());
  return list_text(list);
}

template <typename Range>
std::string words(const Range& numbers) {
  std::string text;
  for (const auto number : numbers) text += (text.empty() ? "" : ", ") + std::to_string(number);
  return text;
}

/// Ranks that are compared with each other; the first of each side stands for the others.
struct RankGroup {
  std::vector<int> golden;
  std::vector<int> mine;
};

struct PlacePair {
  int64_t token = 0;
  Place golden;  // rank of the group's first
  Place mine;
};

/// A pair of tensors that holds for every token of two trees.
struct LearnedRule {
  int golden = 0;  // node
  std::string golden_slot;
  int mine = 0;
  std::string mine_slot;
  double confidence = 0;
  Role golden_role = Role::Output;
  Role mine_role = Role::Output;
};

/// What is known about a pair of trees, whatever the token.
struct TreeState {
  NodePairs rules;
  std::vector<LearnedRule> learned;
  bool is_learned = false;
};

class Matcher {
 public:
  Matcher(const Run& golden, const Run& mine, const MatchOptions& options)
      : options_(options),
        tables_(options.tables != nullptr ? *options.tables : builtin_tables()),
        levels_(have_levels(golden, mine)),
        golden_(golden, levels_, !options.msit),
        mine_(mine, levels_, !options.msit) {
    crosses_ = golden_.is_atb() != mine_.is_atb();
    // Between two strict trees, and between ATB and PyTorch, what nodes computed is compared; inputs
    // are the outputs of others.
    outputs_only_ = levels_ && (options.level != Level::Api || options.msit || crosses_ ||
                                (golden.layout == "torch-tree" && mine.layout == "torch-tree"));
    by_policy_ = levels_ && (options.level != Level::Api || options.msit);
  }

  Result<Matching> run() {
    ASSAY_TRY_STATUS(match_explicit());
    ASSAY_TRY_STATUS(align_ranks());
    golden_.group(is_tensor);
    mine_.group(is_tensor);
    ASSAY_TRY_STATUS(align_tokens());
    if (levels_) name_layer_types();
    for (const RankGroup& group : groups_) {
      for (PlacePair places : tokens_) {
        places.golden.rank = group.golden.front();
        places.mine.rank = group.mine.front();
        token_ = places.token;
        if (by_policy_) {
          match_place_by_policy(places);
        } else {
          match_place_one_to_one(places);
        }
      }
    }
    merge_ranks();
    list_leftovers();
    finish();
    return std::move(out_);
  }

 private:
  // ---- alignment of ranks and tokens ----

  static std::set<int> ranks_of(const Run& run) {
    std::set<int> ranks;
    for (const TensorRecord& record : run.records) ranks.insert(record.rank);
    return ranks;
  }

  Status align_ranks() {
    const std::set<int> golden = ranks_of(golden_.run);
    const std::set<int> mine = ranks_of(mine_.run);
    std::set<int> common;
    std::set_intersection(golden.begin(), golden.end(), mine.begin(), mine.end(),
                          std::inserter(common, common.end()));
    if (!options_.ranks.empty()) {
      for (const int rank : options_.ranks) {
        if (!common.contains(rank)) {
          return fail(Errc::Usage,
                      "rank " + std::to_string(rank) + " is not present on both sides");
        }
        groups_.push_back({{rank}, {rank}});
      }
      return {};
    }
    if (golden.empty() || mine.empty()) return {};
    if (golden.size() == mine.size() && common.size() != golden.size() && golden.size() == 1) {
      groups_.push_back({{*golden.begin()}, {*mine.begin()}});
      return {};
    }
    // Another number of ranks: shards of the same model, when one number divides the other, or a rank
    // that is missing. merge_ranks() decides when the shapes are known.
    const size_t more = std::max(golden.size(), mine.size());
    const size_t less = std::min(golden.size(), mine.size());
    if (more != less && more % less == 0) {
      groups_.push_back({{golden.begin(), golden.end()}, {mine.begin(), mine.end()}});
      may_merge_ = true;
      return {};
    }
    for (const int rank : common) groups_.push_back({{rank}, {rank}});
    if (groups_.empty())
      return fail(Errc::Usage, "No common rank data in golden_path and my_path.");
    note_missing_ranks(golden, common, "golden");
    note_missing_ranks(mine, common, "mine");
    return {};
  }

  void note_missing_ranks(const std::set<int>& ranks, const std::set<int>& common,
                          const std::string& side) {
    std::vector<int> missing;
    std::set_difference(ranks.begin(), ranks.end(), common.begin(), common.end(),
                        std::back_inserter(missing));
    if (missing.empty()) return;
    out_.notes.push_back((missing.size() == 1 ? "rank " : "ranks ") + words(missing) +
                         (missing.size() == 1 ? " is in " : " are in ") + side + " only");
  }

  // True when the path names one token folder, so that the user meant exactly that one.
  static bool is_single_token(const Run& run, const std::set<int64_t>& tokens) {
    if (tokens.size() != 1) return false;
    const std::string token = std::to_string(*tokens.begin());
    for (const std::string_view part : split(run.path, '/')) {
      if (part == token) return true;
    }
    return false;
  }

  // Elements of the first layer's output in a place of mine; nothing when it is not there.
  std::optional<int64_t> first_layer_elements(MatchSide& side, const Place& place) {
    const auto part = static_cast<size_t>(place.part);
    if (part >= side.trees.size() || side.layers[part].nodes.empty()) return std::nullopt;
    const std::string& node = side.trees[part].at(side.layers[part].nodes.front()).name;
    const std::vector<size_t> outputs =
        records_at(side.run, side.nodes_at(place), node, "outputs", true);
    return outputs.empty() ? std::nullopt : side.element_count_of(outputs.front());
  }

  TokenTable token_table(MatchSide& side, MatchSide& other) {
    const int rank = ranks_of(side.run).empty() ? 0 : *ranks_of(side.run).begin();
    const StepParts steps = side.steps_of(rank);
    if (options_.msit) return msit_token_table(steps);
    const auto first = first_layer_elements(side, {rank, 0, 0});
    const auto second = first_layer_elements(side, {rank, 1, 0});
    int prompt_in_step = -1;
    if (first && second) {
      const int other_rank = ranks_of(other.run).empty() ? 0 : *ranks_of(other.run).begin();
      const auto wanted =
          other.is_atb() ? std::nullopt : first_layer_elements(other, {other_rank, 0, 0});
      if (wanted && (*wanted == *first) != (*wanted == *second)) {
        prompt_in_step = *wanted == *second ? 1 : 0;
      } else if (*first != *second) {
        prompt_in_step = 1;  // what warms up is not the prompt
      }
    }
    return detect_token_table(steps, prompt_in_step, decoder_goes_on(side, rank));
  }

  // Whether the decoder's run 1 is the step after run 0: its sequence is longer by one.
  static int decoder_goes_on(const MatchSide& side, int rank) {
    std::array<std::optional<int64_t>, 2> lengths;
    for (const int64_t step : {0, 1}) {
      for (const auto& [name, records] : side.nodes_at({rank, step, 1})) {
        if (!name.ends_with("_PagedAttentionOperation")) continue;
        for (const size_t i : records) {
          const TensorRecord& record = side.run.records[i];
          if (record.role == Role::Input && record.slot == "4")  // context lengths
            lengths[static_cast<size_t>(step)] = integer_value(record);
        }
        break;
      }
    }
    if (!lengths[0] || !lengths[1]) return -1;
    return *lengths[1] == *lengths[0] + 1 ? 1 : 0;
  }

  std::vector<TokenPlace> places_of(MatchSide& side, TokenTable table) {
    StepParts steps;
    for (const auto& [place, nodes] : side.places) steps[place.step].insert(place.part);
    if (outputs_only_) steps.erase(-1);  // weights/ beside the tokens is not one
    return token_places(steps, side.is_atb() ? table : TokenTable::Plain);
  }

  void add_token_pair(const TokenPlace& golden, const TokenPlace& mine, int64_t token) {
    tokens_.push_back({token, {0, golden.step, golden.part}, {0, mine.step, mine.part}});
  }

  Status align_tokens() {
    TokenTable golden_table = TokenTable::Plain;
    TokenTable mine_table = TokenTable::Plain;
    if (levels_) {
      golden_table = token_table(golden_, mine_);
      mine_table = token_table(mine_, golden_);
    }
    std::vector<TokenPlace> golden = places_of(golden_, golden_table);
    std::vector<TokenPlace> mine = places_of(mine_, mine_table);
    if (!options_.token_map.empty()) return map_tokens(golden, mine);

    const bool same_folders =
        !options_.msit && golden_.is_atb() && mine_.is_atb() && golden_table == mine_table;
    if (same_folders) {  // folder by folder, whatever tokens they are
      for (TokenPlace& place : golden) place.token = place.step;
      for (TokenPlace& place : mine) place.token = place.step;
    } else if (!options_.msit) {
      note_table("golden", golden_table);
      note_table("mine", mine_table);
    }
    for (const TokenPlace& g : golden) {
      for (const TokenPlace& m : mine) {
        const bool same_part =
            g.part == m.part || crosses_ || golden_.trees.size() != mine_.trees.size();
        if (g.token == m.token && same_part) add_token_pair(g, m, m.token);
      }
    }
    if (!tokens_.empty() || golden.empty() || mine.empty()) {
      note_missing_tokens(golden, mine, "golden");
      note_missing_tokens(mine, golden, "mine");
      return {};
    }
    const std::set<int64_t> golden_steps = steps_in(golden);
    const std::set<int64_t> mine_steps = steps_in(mine);
    if (is_single_token(golden_.run, golden_steps) && is_single_token(mine_.run, mine_steps)) {
      for (const TokenPlace& g : golden) {
        for (const TokenPlace& m : mine) add_token_pair(g, m, m.token);
      }
      return {};
    }
    return fail(Errc::Usage, "my tokens is " + list_tokens(mine_steps) + " and golden tokens is " +
                                 list_tokens(golden_steps) + ". The two cannot be matched.");
  }

  static std::set<int64_t> steps_in(const std::vector<TokenPlace>& places) {
    std::set<int64_t> steps;
    for (const TokenPlace& place : places) steps.insert(place.step);
    return steps;
  }

  void note_table(const std::string& side, TokenTable table) {
    if (table != TokenTable::Plain)
      out_.notes.push_back(side + ": " + table_text(table) + " (--token-map says otherwise)");
  }

  void note_missing_tokens(const std::vector<TokenPlace>& places,
                           const std::vector<TokenPlace>& others, const std::string& side) {
    std::set<int64_t> missing;
    for (const TokenPlace& place : places) {
      if (place.token != kWarmupToken && place.token != -1) missing.insert(place.token);
    }
    for (const TokenPlace& other : others) missing.erase(other.token);
    if (missing.empty()) return;
    out_.notes.push_back((missing.size() == 1 ? "token " : "tokens ") + words(missing) +
                         (missing.size() == 1 ? " is in " : " are in ") + side + " only");
  }

  // The user's pairs name folders. Of an ATB folder with both models, token 0 of PyTorch is the
  // prompt's and every other one the decoder's.
  Status map_tokens(const std::vector<TokenPlace>& golden, const std::vector<TokenPlace>& mine) {
    for (const auto& [golden_token, mine_token] : options_.token_map) {
      const auto has = [](const std::vector<TokenPlace>& places, int64_t step) {
        return std::any_of(places.begin(), places.end(),
                           [&](const TokenPlace& p) { return p.step == step; });
      };
      if (!has(golden, golden_token) || !has(mine, mine_token)) {
        const bool in_golden = has(golden, golden_token);
        return fail(Errc::Usage, "token " + std::to_string(in_golden ? mine_token : golden_token) +
                                     " of the token map is not in " +
                                     (in_golden ? "mine" : "golden"));
      }
      const auto wanted_part = [&](const std::vector<TokenPlace>& places, int64_t step,
                                   int64_t token) {
        const int part = token == 0 ? 0 : 1;
        const bool both = std::any_of(places.begin(), places.end(), [&](const TokenPlace& p) {
          return p.step == step && p.part == part;
        });
        return both ? part : -1;
      };
      const int golden_part =
          golden_.is_atb() && crosses_ ? wanted_part(golden, golden_token, mine_token) : -1;
      const int mine_part =
          mine_.is_atb() && crosses_ ? wanted_part(mine, mine_token, golden_token) : -1;
      for (const TokenPlace& g : golden) {
        if (g.step != golden_token || (golden_part >= 0 && g.part != golden_part)) continue;
        for (const TokenPlace& m : mine) {
          if (m.step != mine_token || (mine_part >= 0 && m.part != mine_part)) continue;
          if (!crosses_ && g.part != m.part) continue;
          add_token_pair(g, m, mine_.is_atb() && crosses_ ? golden_token : mine_token);
        }
      }
    }
    return {};
  }

  void name_layer_types() {
    const auto type_of = [](const MatchSide& side) {
      return side.layers.empty() ? std::string() : side.layers.front().type;
    };
    out_.golden_layer_type = type_of(golden_);
    out_.mine_layer_type = type_of(mine_);
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

  static std::vector<size_t> named_records(const Run& run, std::string_view selector) {
    std::vector<size_t> found;
    for (size_t i = 0; i < run.records.size(); ++i) {
      if (is_named(run, run.records[i], selector)) found.push_back(i);
    }
    return found;
  }

  // Shards in order of their ranks when the user wants several records to become one.
  static std::vector<size_t> one_a_rank(const Run& run, std::vector<size_t> records) {
    std::stable_sort(records.begin(), records.end(),
                     [&](size_t a, size_t b) { return run.records[a].rank < run.records[b].rank; });
    return records;
  }

  Status match_explicit() {
    for (const ExplicitPair& wanted : options_.explicit_pairs) {
      const std::vector<size_t> golden = named_records(golden_.run, wanted.golden);
      const std::vector<size_t> mine = named_records(mine_.run, wanted.mine);
      if (golden.empty() || mine.empty()) {
        return fail(Errc::Usage, "the map names '" +
                                     (golden.empty() ? wanted.golden : wanted.mine) +
                                     "', which is not in " + (golden.empty() ? "golden" : "mine"));
      }
      if (wanted.merge && *wanted.merge != Merge::None) {
        ASSAY_TRY_STATUS(add_merged(wanted, golden, mine));
      } else if (golden.size() == 1 && mine.size() == 1) {
        ASSAY_TRY_STATUS(add_wanted(wanted, golden[0], mine[0]));
      } else {
        ASSAY_TRY_STATUS(add_named(wanted, golden, mine));
      }
    }
    return {};
  }

  // Several records a name: tokens, ranks, slots pair with their equals.
  Status add_named(const ExplicitPair& wanted, const std::vector<size_t>& golden_found,
                   const std::vector<size_t>& mine_found) {
    for (const size_t g : golden_found) {
      const TensorRecord& golden = golden_.run.records[g];
      for (const size_t m : mine_found) {
        const TensorRecord& mine = mine_.run.records[m];
        if (!mine_.used[m] && golden.rank == mine.rank && golden.step == mine.step &&
            golden.role == mine.role && golden.slot == mine.slot && golden.call == mine.call) {
          ASSAY_TRY_STATUS(add_wanted(wanted, g, m));
          break;
        }
      }
    }
    return {};
  }

  Status add_wanted(const ExplicitPair& wanted, size_t golden, size_t mine) {
    Recipe golden_recipe;
    Recipe mine_recipe;
    golden_recipe.records = {golden};
    mine_recipe.records = {mine};
    ASSAY_TRY_STATUS(add_steps(golden_, wanted.golden_steps, &golden_recipe));
    ASSAY_TRY_STATUS(add_steps(mine_, wanted.mine_steps, &mine_recipe));
    token_ = mine_.run.records[mine].step;
    add(golden, mine, "explicit", 1);
    set_recipes(&out_.pairs.back(), std::move(golden_recipe), std::move(mine_recipe));
    return {};
  }

  Status add_merged(const ExplicitPair& wanted, const std::vector<size_t>& golden_found,
                    const std::vector<size_t>& mine_found) {
    using Key = std::tuple<int64_t, Role, std::string, uint32_t>;
    const auto by_key = [](const Run& run, const std::vector<size_t>& records) {
      std::map<Key, std::vector<size_t>> groups;
      for (const size_t i : records) {
        const TensorRecord& record = run.records[i];
        groups[{record.step, record.role, record.slot, record.call}].push_back(i);
      }
      return groups;
    };
    const auto golden_groups = by_key(golden_.run, golden_found);
    for (const auto& [key, mine_records] : by_key(mine_.run, mine_found)) {
      const auto found =
          golden_groups.size() == 1 ? golden_groups.begin() : golden_groups.find(key);
      if (found == golden_groups.end()) continue;
      Recipe golden;
      Recipe mine;
      golden.records = one_a_rank(golden_.run, found->second);
      mine.records = one_a_rank(mine_.run, mine_records);
      for (Recipe* side : {&golden, &mine}) {
        if (side->records.size() < 2) continue;
        side->merge = *wanted.merge;
        side->axis = wanted.axis;
        side->note = std::string(merge_name(side->merge)) + " of " +
                     std::to_string(side->records.size()) + " ranks, as the map says";
      }
      golden.steps = wanted.golden_steps;
      mine.steps = wanted.mine_steps;
      token_ = mine_.run.records[mine.records.front()].step;
      for (const size_t i : golden.records) golden_.used[i] = true;
      for (const size_t i : mine.records) mine_.used[i] = true;
      add(golden.records.front(), mine.records.front(), "explicit", 1);
      set_recipes(&out_.pairs.back(), std::move(golden), std::move(mine));
    }
    return {};
  }

  static Status add_steps(MatchSide& side, const std::vector<Step>& steps, Recipe* recipe) {
    if (steps.empty()) return {};
    const std::optional<Dims>& shape = side.shape_of(recipe->records.front());
    if (!shape) return {};  // loading it will say why
    ASSAY_TRY(recipe->steps, resolve_steps(steps, *shape));
    return {};
  }

  static bool is_trivial(const Recipe& recipe) {
    return recipe.records.size() < 2 && recipe.steps.empty() && recipe.note.empty();
  }

  void set_recipes(RecordPair* pair, Recipe golden, Recipe mine) {
    const auto keep = [&](Recipe recipe, int32_t* index) {
      if (is_trivial(recipe)) return;
      *index = static_cast<int32_t>(out_.recipes.size());
      out_.recipes.push_back(std::move(recipe));
    };
    keep(std::move(golden), &pair->golden_recipe);
    keep(std::move(mine), &pair->mine_recipe);
  }

  // ---- pairs of records ----

  void add(size_t golden, size_t mine, std::string_view reason, double confidence,
           bool speculative = false) {
    golden_.used[golden] = true;
    mine_.used[mine] = true;
    RecordPair pair;
    pair.golden = golden;
    pair.mine = mine;
    pair.reason = reason;
    pair.confidence = confidence;
    pair.speculative = speculative;
    pair.token = token_;
    out_.pairs.push_back(std::move(pair));
  }

  // Pairs two records that a rule names when their shapes can belong together. A tensor with one row
  // belongs to the last row of one with many: a head that computes the last position only.
  bool add_fitting(size_t golden, size_t mine, std::string_view reason, double confidence) {
    if (golden_.used[golden] || mine_.used[mine]) return false;
    const std::optional<Dims>& golden_shape = golden_.shape_of(golden);
    const std::optional<Dims>& mine_shape = mine_.shape_of(mine);
    if (!golden_shape || !mine_shape || fits(*golden_shape, *mine_shape)) {
      add(golden, mine, reason, confidence);
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
    add(golden, mine, reason, confidence);
    set_recipes(&out_.pairs.back(), std::move(golden_recipe), std::move(mine_recipe));
    return true;
  }

  // As many elements, or a whole number of shards of the other.
  [[nodiscard]] bool fits(const Dims& golden, const Dims& mine) const {
    const std::optional<int64_t> g = element_count(golden);
    const std::optional<int64_t> m = element_count(mine);
    if (!g || !m) return false;
    if (*g == *m) return true;
    if (!may_merge_ || *g <= 0 || *m <= 0) return false;
    // The shards are on the side with more ranks.
    const auto golden_ranks = static_cast<int64_t>(groups_.front().golden.size());
    const auto mine_ranks = static_cast<int64_t>(groups_.front().mine.size());
    return golden_ranks < mine_ranks ? *g == *m * (mine_ranks / golden_ranks)
                                     : *m == *g * (golden_ranks / mine_ranks);
  }

  // ---- rules between trees ----

  struct Trees {
    const Tree* golden = nullptr;
    const Tree* mine = nullptr;
    TreeState* state = nullptr;
  };

  TreePair tree_pair(size_t golden, size_t mine) const {
    return {golden_.trees[golden], mine_.trees[mine], golden_.layers[golden], mine_.layers[mine],
            tables_};
  }

  Trees trees_at(const PlacePair& places) {
    const auto golden = static_cast<size_t>(places.golden.part);
    const auto mine = static_cast<size_t>(places.mine.part);
    if (!levels_ || golden >= golden_.trees.size() || mine >= mine_.trees.size()) return {};
    const auto [found, is_new] = states_.try_emplace({golden, mine});
    if (is_new) {
      found->second.rules = by_policy_ ? policy_pairs(tree_pair(golden, mine))
                                       : ordered_pairs(tree_pair(golden, mine));
    }
    return {&golden_.trees[golden], &mine_.trees[mine], &found->second};
  }

  // The original's rules of the wanted level, in its order.
  [[nodiscard]] NodePairs policy_pairs(const TreePair& trees) const {
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
      case Level::Api:
        match_outputs(trees, &pairs);
        match_full_names(trees, &pairs);
        match_type_counts(trees, &pairs);
        match_map_counts(trees, &pairs);
        match_rope(trees, &pairs);
        match_enhanced_names(trees, &pairs);
        match_special_layers(trees, &pairs);
        match_fused_qkv(trees, &pairs);
        break;
    }
    return pairs;
  }

  // The same rules for pairing every tensor once: the most specific first.
  [[nodiscard]] static NodePairs ordered_pairs(const TreePair& trees) {
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

  static bool is_strong(std::string_view policy) {
    return policy == "mapping file" || policy == "layer_match" || policy == "layer_special" ||
           policy == "module_match";
  }

  // Names of golden's q, k and v projections keep only the part of a fused result that is theirs.
  void filter_fused(const std::vector<size_t>& golden, std::vector<size_t>* mine) const {
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

  // ---- the original's pairs ----

  void match_place_by_policy(const PlacePair& places) {
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
    if (options_.msit) {
      // The original's report order: that of my nodes in the topology, policies as they came.
      std::vector<size_t> order(out_.pairs.size() - first);
      for (size_t i = 0; i < order.size(); ++i) order[i] = first + i;
      std::stable_sort(order.begin(), order.end(),
                       [&](size_t a, size_t b) { return show_order_[a] < show_order_[b]; });
      std::vector<RecordPair> sorted;
      for (const size_t i : order) sorted.push_back(std::move(out_.pairs[i]));
      std::move(sorted.begin(), sorted.end(),
                out_.pairs.begin() + static_cast<std::ptrdiff_t>(first));
    }
    count_level(places, trees);
  }

  void apply_policy(const NodePair& pair, const Trees& trees, const NodeRecords& golden_nodes,
                    const NodeRecords& mine_nodes) {
    std::vector<size_t> golden = records_at(
        golden_.run, golden_nodes, trees.golden->at(pair.golden).name, pair.golden_at, true);
    std::vector<size_t> mine =
        records_at(mine_.run, mine_nodes, trees.mine->at(pair.mine).name, pair.mine_at, false);
    if (golden.empty() || mine.empty()) return;
    if (pair.policy == "rope") {
      add_rope(golden, mine);
      return;
    }
    filter_fused(golden, &mine);
    if (options_.msit) {
      sort_as_text(golden_.run, &golden);
      sort_as_text(mine_.run, &mine);
      if (options_.statistics) {
        golden.erase(golden.begin(), golden.end() - 1);
        mine.erase(mine.begin(), mine.end() - 1);
      }
    }
    if (golden.size() == mine.size()) {
      for (size_t i = 0; i < golden.size(); ++i) add_level_pair(golden[i], mine[i], pair.policy);
      return;
    }
    if (!options_.msit && add_only_fitting(golden, mine, pair.policy)) return;
    for (const size_t g : golden) {
      for (const size_t m : mine) add(g, m, pair.policy, kTableConfidence, true);
    }
  }

  // A pair of the level whatever its shapes, with the last position cut out where that makes it fit.
  void add_level_pair(size_t golden, size_t mine, std::string_view policy) {
    if (options_.msit || !add_fitting(golden, mine, policy, kTableConfidence))
      add(golden, mine, policy, kTableConfidence);
  }

  // Each golden tensor with the one tensor of mine that its shape fits; false when that says nothing.
  bool add_only_fitting(const std::vector<size_t>& golden, const std::vector<size_t>& mine,
                        std::string_view policy) {
    bool any = false;
    for (const size_t g : golden) {
      std::vector<size_t> fitting;
      for (const size_t m : mine) {
        const auto& golden_shape = golden_.shape_of(g);
        const auto& mine_shape = mine_.shape_of(m);
        if (golden_shape && mine_shape &&
            (fits(*golden_shape, *mine_shape) || last_row(*golden_shape, *mine_shape)))
          fitting.push_back(m);
      }
      if (fitting.size() == 1) any = add_fitting(g, fitting[0], policy, kTableConfidence) || any;
    }
    return any;
  }

  static void sort_as_text(const Run& run, std::vector<size_t>* records) {
    std::stable_sort(records->begin(), records->end(), [&](size_t a, size_t b) {
      const TensorRecord& first = run.records[a];
      const TensorRecord& second = run.records[b];
      return std::tuple(first.call, path_in_step(run, first)) <
             std::tuple(second.call, path_in_step(run, second));
    });
  }

  // What rotary embeddings of PyTorch compute (cos, sin of all positions) against what the operation
  // of ATB is given: cosine, sine and the length of the sequence.
  void add_rope(const std::vector<size_t>& golden, const std::vector<size_t>& mine) {
    constexpr size_t kInputs = 5;
    if (mine.size() != kInputs) return;
    const std::optional<int64_t> length = integer_value(mine_.run.records[mine[4]]);
    for (size_t type = 0; type < 2; ++type) {  // cos, sin
      const size_t m = mine[2 + type];
      const size_t g = golden.size() > type ? golden[type] : golden.front();
      const auto& golden_shape = golden_.shape_of(g);
      const auto& mine_shape = mine_.shape_of(m);
      if (!golden_shape || !mine_shape) continue;
      const std::optional<RopeSlice> slice = rope_slice(
          *golden_shape, *mine_shape, length.value_or(0), static_cast<int>(type), options_.msit);
      if (!slice) continue;
      if (!options_.msit && (golden_.used[g] || mine_.used[m])) continue;
      add(g, m, "rope", kTableConfidence);
      set_recipes(&out_.pairs.back(), {{g}, Merge::None, 0, 1, slice->golden, slice->note},
                  {{m}, Merge::None, 0, 1, slice->mine, ""});
    }
  }

  // At layer and module level only the nodes that the level is about are candidates.
  void count_level(const PlacePair& places, const Trees& trees) {
    count_level_side(Side::Golden, golden_, *trees.golden, places.golden);
    count_level_side(Side::Mine, mine_, *trees.mine, places.mine);
  }

  void count_level_side(Side name_of_side, const MatchSide& side, const Tree& tree,
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

  void count(Side side, size_t record, bool matched, const std::string& reason) {
    ++(side == Side::Golden ? out_.golden_candidates : out_.mine_candidates);
    if (matched) {
      ++(side == Side::Golden ? out_.golden_matched : out_.mine_matched);
    } else {
      out_.unmatched.push_back({side, record, reason});
    }
  }

  // ---- each tensor at most once ----

  [[nodiscard]] bool is_candidate(const TensorRecord& record) const {
    return (!outputs_only_ || record.role == Role::Output) && !(crosses_ && is_kernel(record));
  }

  void match_place_one_to_one(const PlacePair& places) {
    const NodeRecords& golden_nodes = golden_.nodes_at(places.golden);
    const NodeRecords& mine_nodes = mine_.nodes_at(places.mine);
    if (is_single(golden_nodes) && is_single(mine_nodes) && golden_.run.layout == "file" &&
        mine_.run.layout == "file") {
      const size_t g = golden_nodes.begin()->second.front();
      const size_t m = mine_nodes.begin()->second.front();
      if (!golden_.used[g] && !mine_.used[m]) add(g, m, "two files", 1);
    }
    for (const auto& [name, mine_records] : mine_nodes) {
      const auto found = golden_nodes.find(name);
      if (found != golden_nodes.end()) {
        pair_slots(found->second, mine_records, "equal names", 1);
        golden_paired_.insert({places.golden, name});
        mine_paired_.insert({places.mine, name});
      }
    }
    const Trees trees = trees_at(places);
    if (trees.state != nullptr) {
      apply_rules(trees, places, true);
      if (crosses_) learn(trees, places);
      apply_learned(trees, places);
      apply_rules(trees, places, false);
    }
    pair_leftovers_by_value(trees, places);
  }

  static bool is_single(const NodeRecords& nodes) {
    return nodes.size() == 1 && nodes.begin()->second.size() == 1;
  }

  // Equal role, call and slot first; then, when as many are left on both sides, by position.
  void pair_slots(const std::vector<size_t>& golden_records,
                  const std::vector<size_t>& mine_records, std::string_view reason,
                  double confidence) {
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
        add(found->second, i, reason, confidence);
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
        add(golden_list[i], mine_list[i], "equal position", std::min(confidence, kTableConfidence));
      }
    }
  }

  static void sort_by_slot(const Run& run, std::vector<size_t>* records) {
    std::sort(records->begin(), records->end(), [&](size_t a, size_t b) {
      return std::pair(slot_order(run.records[a].slot), a) <
             std::pair(slot_order(run.records[b].slot), b);
    });
  }

  // Rules for nodes whose name the other side does not know.
  // strong   the rules that need no look at values
  void apply_rules(const Trees& trees, const PlacePair& places, bool strong) {
    const NodeRecords& golden_nodes = golden_.nodes_at(places.golden);
    const NodeRecords& mine_nodes = mine_.nodes_at(places.mine);
    for (const NodePair& pair : trees.state->rules.list()) {
      if (is_strong(pair.policy) != strong) continue;
      const std::string& golden_name = trees.golden->at(pair.golden).name;
      const std::string& mine_name = trees.mine->at(pair.mine).name;
      const auto golden_found = golden_nodes.find(golden_name);
      const auto mine_found = mine_nodes.find(mine_name);
      if (golden_found == golden_nodes.end() || mine_found == mine_nodes.end()) continue;
      const double confidence = pair.policy == "layer_type_cnt" || pair.policy == "map_count"
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
      pair_slots(golden_found->second, mine_found->second, pair.policy, confidence);
    }
  }

  // False when both nodes have one output and their sizes cannot belong together.
  bool shapes_fit(const std::vector<size_t>& golden_records,
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

  void apply_cross_rule(const NodePair& pair, const std::string& golden_name,
                        const std::string& mine_name, const NodeRecords& golden_nodes,
                        const NodeRecords& mine_nodes, double confidence) {
    std::vector<size_t> golden =
        records_at(golden_.run, golden_nodes, golden_name, pair.golden_at, true);
    std::vector<size_t> mine = records_at(mine_.run, mine_nodes, mine_name, pair.mine_at, false);
    if (golden.empty() || mine.empty()) return;
    if (pair.policy == "rope") {
      add_rope(golden, mine);
      return;
    }
    filter_fused(golden, &mine);
    std::erase_if(golden, [&](size_t i) { return golden_.used[i]; });
    std::erase_if(mine, [&](size_t i) { return mine_.used[i]; });
    if (golden.size() == mine.size()) {
      for (size_t i = 0; i < golden.size(); ++i) {
        if (!add_fitting(golden[i], mine[i], pair.policy, confidence) && is_strong(pair.policy))
          add(golden[i], mine[i], pair.policy, confidence);
      }
    } else {
      add_only_fitting(golden, mine, pair.policy);
    }
  }

  // ---- what values teach ----

  // The way from a layer to a node below it, by place among siblings: "1.3".
  static std::string way_below(const Tree& tree, int layer, int node) {
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

  static int follow(const Tree& tree, int layer, std::string_view way) {
    int node = layer;
    for (const std::string_view part : split(way, '.')) {
      const size_t place = std::stoul(std::string(part));
      const std::vector<int>& children = tree.at(node).children;
      if (place >= children.size()) return -1;
      node = children[place];
    }
    return node;
  }

  std::vector<size_t> unused_outputs_below(const MatchSide& side, const Tree& tree, int layer,
                                           const NodeRecords& nodes) const {
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

  [[nodiscard]] ValueMatchOptions value_options() const {
    return {.jobs = options_.jobs, .interrupted = options_.interrupted};
  }

  // Looks at the values of a few layers; what corresponds there corresponds in all of them.
  void learn(const Trees& trees, const PlacePair& places) {
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

  static std::map<std::string, int> index_of(const Tree& tree, int layer) {
    std::map<std::string, int> index;
    for (const int node : tree.subtree(layer)) index.emplace(tree.at(node).name, node);
    return index;
  }

  static std::optional<size_t> unused_at(const MatchSide& side, const NodeRecords& nodes,
                                         const std::string& node, Role role,
                                         const std::string& slot) {
    const Location location = role == Role::Input ? "inputs" : "outputs";
    for (const size_t i : records_at(side.run, nodes, node, location, false)) {
      if (side.run.records[i].slot == slot && !side.used[i]) return i;
    }
    return std::nullopt;
  }

  void apply_learned(const Trees& trees, const PlacePair& places) {
    const NodeRecords& golden_nodes = golden_.nodes_at(places.golden);
    const NodeRecords& mine_nodes = mine_.nodes_at(places.mine);
    for (const LearnedRule& rule : trees.state->learned) {
      const auto golden = unused_at(golden_, golden_nodes, trees.golden->at(rule.golden).name,
                                    rule.golden_role, rule.golden_slot);
      const auto mine = unused_at(mine_, mine_nodes, trees.mine->at(rule.mine).name, rule.mine_role,
                                  rule.mine_slot);
      if (golden && mine) add_fitting(*golden, *mine, "values", rule.confidence);
    }
  }

  // The records that nothing has paired yet, in execution order.
  std::vector<size_t> leftovers(const MatchSide& side, const NodeRecords& nodes) const {
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

  // A tensor that is handed on appears several times; who made it stands for the others.
  void keep_first_of_equals(const Run& run, std::vector<size_t>* records) const {
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

  // Inputs of PyTorch's modules. Some are the result of code outside of modules, which ATB has
  // operations for: what attention gives to o_proj, the sum before the second norm.
  [[nodiscard]] std::vector<size_t> unused_inputs(const MatchSide& side,
                                                  const NodeRecords& nodes) const {
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

  // Pairs each content that is left once, PyTorch's inputs included.
  void pair_contents(const Trees& trees, const PlacePair& places) {
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
      for (const ValuePair& pair : match_by_value(golden_outputs, golden_all, mine_outputs,
                                                  mine_all, {}, value_options())) {
        if (pair.confidence < kContentConfidence) continue;
        const size_t g = golden[pair.golden];
        const size_t m = mine[pair.mine];
        if (add_fitting(g, m, "values", pair.confidence)) teach(trees, g, m, pair.confidence);
      }
    }
  }

  static Run as_outputs(const Run& run, const std::vector<size_t>& records) {
    Run out;
    for (const size_t i : records) {
      out.records.push_back(run.records[i]);
      out.records.back().role = Role::Output;
    }
    return out;
  }

  static std::vector<size_t> counted(size_t count) {
    std::vector<size_t> out(count);
    std::iota(out.begin(), out.end(), size_t{0});
    return out;
  }

  // The same two nodes belong together in the other tokens of these trees.
  void teach(const Trees& trees, size_t golden, size_t mine, double confidence) {
    if (trees.state == nullptr || !crosses_) return;
    const TensorRecord& g = golden_.run.records[golden];
    const TensorRecord& m = mine_.run.records[mine];
    const int golden_node = trees.golden->find(shared_node_name(golden_.run, g.node));
    const int mine_node = trees.mine->find(shared_node_name(mine_.run, m.node));
    if (golden_node < 0 || mine_node < 0) return;
    trees.state->learned.push_back(
        {golden_node, g.slot, mine_node, m.slot, confidence, g.role, m.role});
  }

  // What values found in the first token is a rule for the other tokens of the same trees.
  void pair_leftovers_by_value(const Trees& trees, const PlacePair& places) {
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
    const auto found =
        match_by_value(golden_.run, golden, mine_.run, mine, anchors, value_options());
    for (const ValuePair& pair : found) {
      if (crosses_ && pair.confidence < kTaughtConfidence) continue;
      if (add_fitting(pair.golden, pair.mine, "values", pair.confidence))
        teach(trees, pair.golden, pair.mine, pair.confidence);
    }
    if (crosses_) pair_contents(trees, places);
  }

  // ---- shards ----

  // Several ranks against fewer: every pair of the first ranks becomes one of all their shards.
  void merge_ranks() {
    if (!may_merge_ || groups_.empty()) return;
    const RankGroup& group = groups_.front();
    const auto is_sharded = [&](const RecordPair& pair) {
      const auto g = golden_.element_count_of(pair.golden);
      const auto m = mine_.element_count_of(pair.mine);
      return g && m && *g != *m;
    };
    const std::string counts = std::to_string(group.golden.size()) + " against " +
                               std::to_string(group.mine.size()) + " ranks";
    if (std::none_of(out_.pairs.begin(), out_.pairs.end(), is_sharded)) {
      const std::set<int> golden(group.golden.begin(), group.golden.end());
      const std::set<int> mine(group.mine.begin(), group.mine.end());
      out_.notes.push_back(counts + ", but no tensor is sharded: the first ranks are compared");
      note_missing_ranks(golden, {group.golden.front()}, "golden");
      note_missing_ranks(mine, {group.mine.front()}, "mine");
      return;
    }
    out_.notes.push_back(counts + ": shards are put together");
    const ShardIndex golden_shards = shard_index(golden_.run, group.golden);
    const ShardIndex mine_shards = shard_index(mine_.run, group.mine);
    size_t doubtful = 0;
    std::string first_problem;
    for (RecordPair& pair : out_.pairs) {
      if (pair.golden_recipe >= 0 || pair.mine_recipe >= 0) continue;  // the user's own
      const std::vector<size_t> golden = shards_of(golden_.run, golden_shards, pair.golden);
      const std::vector<size_t> mine = shards_of(mine_.run, mine_shards, pair.mine);
      if (golden.size() < 2 && mine.size() < 2) continue;
      MergedPair merged = merge_shards(golden_.run, golden, mine_.run, mine);
      for (const size_t i : golden) golden_.used[i] = true;
      for (const size_t i : mine) mine_.used[i] = true;
      if (!merged.problem.empty()) {
        if (doubtful++ == 0) first_problem = merged.problem;
        merged.mine.note += (merged.mine.note.empty() ? "" : "; ") + merged.problem;
      }
      set_recipes(&pair, std::move(merged.golden), std::move(merged.mine));
    }
    if (doubtful > 0) {
      out_.warnings.push_back(
          std::to_string(doubtful) +
          " tensors of several ranks do not fit together, the first: " + first_problem);
    }
  }

  using ShardKey = std::tuple<int64_t, std::string, Role, std::string, uint32_t>;
  using ShardIndex = std::map<ShardKey, std::map<int, size_t>>;  // rank -> record

  static ShardKey shard_key(const TensorRecord& record) {
    return {record.step, record.node, record.role, record.slot, record.call};
  }

  static ShardIndex shard_index(const Run& run, const std::vector<int>& ranks) {
    const std::set<int> wanted(ranks.begin(), ranks.end());
    ShardIndex index;
    for (size_t i = 0; i < run.records.size(); ++i) {
      const TensorRecord& record = run.records[i];
      if (wanted.contains(record.rank) && is_tensor(record))
        index[shard_key(record)].emplace(record.rank, i);
    }
    return index;
  }

  static std::vector<size_t> shards_of(const Run& run, const ShardIndex& index, size_t record) {
    std::vector<size_t> shards;
    const auto found = index.find(shard_key(run.records[record]));
    if (found == index.end()) return {record};
    for (const auto& [rank, i] : found->second) shards.push_back(i);
    return shards;
  }

  // ---- order, what is left alone ----

  void list_leftovers() {
    std::set<Place> golden_compared;
    std::set<Place> mine_compared;
    for (const RankGroup& group : groups_) {
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
    if (options_.msit) return;
    list_side_leftovers(Side::Golden, golden_, golden_compared, golden_paired_);
    list_side_leftovers(Side::Mine, mine_, mine_compared, mine_paired_);
  }

  void list_side_leftovers(Side name_of_side, const MatchSide& side,
                           const std::set<Place>& compared,
                           const std::set<std::pair<Place, std::string>>& paired) {
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
          if (crosses_ && is_kernel(record)) ++kernels;
          if (!is_candidate(record)) continue;
          if (!is_compared) {
            if (!side.used[i])
              out_.unmatched.push_back({name_of_side, i, place_reason(side, place, other)});
          } else {
            count(name_of_side, i, side.used[i],
                  leftover_reason(record, other, paired.contains({place, name}),
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

  std::string place_reason(const MatchSide& side, const Place& place,
                           const std::string& other) const {
    const bool is_golden = &side == &golden_;
    const bool rank_known = std::any_of(groups_.begin(), groups_.end(), [&](const auto& group) {
      const std::vector<int>& ranks = is_golden ? group.golden : group.mine;
      return std::find(ranks.begin(), ranks.end(), place.rank) != ranks.end();
    });
    return (rank_known ? "token " + std::to_string(place.step)
                       : "rank " + std::to_string(place.rank)) +
           " is not compared: not in " + other + " or not selected";
  }

  static std::string leftover_reason(const TensorRecord& record, const std::string& other,
                                     bool node_is_paired, bool other_has_node) {
    if (!node_is_paired && other_has_node)
      return "the model of " + other + " has this node, but its tensors are not in the dump";
    if (!node_is_paired) return "no node of this name or type in " + other;
    return "the node of " + other + " has no " + std::string(run::role_name(record.role)) +
           (record.slot.empty() ? "" : " '" + record.slot + "'") +
           (record.call > 0 ? " in call " + std::to_string(record.call) : "");
  }

  void finish() {
    for (const RankGroup& group : groups_) out_.ranks.push_back(group.mine.front());
    std::set<int64_t> tokens;
    for (const PlacePair& places : tokens_) tokens.insert(places.token);
    out_.tokens.assign(tokens.begin(), tokens.end());
    if (!options_.msit) {
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

  const MatchOptions& options_;
  const MappingTables& tables_;
  const bool levels_;
  MatchSide golden_;
  MatchSide mine_;
  bool crosses_ = false;  // ATB against another layout
  bool outputs_only_ = false;
  bool by_policy_ = false;  // the original's pairs instead of each tensor once
  bool may_merge_ = false;  // the sides have different numbers of ranks
  Matching out_;
  std::vector<RankGroup> groups_;
  std::vector<PlacePair> tokens_;  // rank 0 stands for any
  std::map<std::pair<size_t, size_t>, TreeState> states_;
  std::set<std::pair<int, int>> looked_at_;  // parts whose leftovers values have seen
  std::set<std::pair<Place, std::string>> golden_paired_;
  std::set<std::pair<Place, std::string>> mine_paired_;
  std::map<size_t, int> show_order_;  // of a pair: my node
  int64_t token_ = 0;                 // of the place that is being matched
};

// The rules know ATB as mine; the other way round both sides change places.
bool is_turned_around(const Run& golden, const Run& mine, const MatchOptions& options) {
  return !options.msit && golden.layout == "atb-tree" && mine.layout != "atb-tree" &&
         have_levels(golden, mine);
}

MatchOptions turned_around(MatchOptions options) {
  for (auto& [golden, mine] : options.token_map) std::swap(golden, mine);
  for (ExplicitPair& pair : options.explicit_pairs) {
    std::swap(pair.golden, pair.mine);
    std::swap(pair.golden_steps, pair.mine_steps);
  }
  return options;
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
  const auto has_tree = [](const Run& run) {
    return run.topology.has_value() || run.layout == "atb-tree";
  };
  return has_tree(golden) && has_tree(mine);
}

Result<Matching> match_runs(const run::Run& golden, const run::Run& mine,
                            const MatchOptions& options) {
  if (!is_turned_around(golden, mine, options)) return Matcher(golden, mine, options).run();
  const MatchOptions turned = turned_around(options);
  Result<Matching> matching = Matcher(mine, golden, turned).run();
  if (matching) turn_around(mine, &*matching);
  return matching;
}

}  // namespace assay::compare
