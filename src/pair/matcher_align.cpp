// SPDX-License-Identifier: Apache-2.0
// Which ranks and tokens of the two sides are compared with each other.
#include "pair/matcher.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "pair/literal_rules.hpp"
#include "pair/slices.hpp"
#include "run/common_names.hpp"

namespace assay::pair {

using run::Run;
using run::TensorRecord;

namespace {

std::string list_tokens(const std::set<int64_t>& tokens) {
  const std::vector<int64_t> list(tokens.begin(), tokens.end());
  return list_text(list);
}

}  // namespace

Status Matcher::use_ranks() {
  const RankAlignment& ranks = whole_.ranks;
  if (!ranks.problem.empty()) return fail(Errc::Usage, ranks.problem);
  out_.notes.insert(out_.notes.end(), ranks.notes.begin(), ranks.notes.end());
  return {};
}

std::optional<int64_t> Matcher::first_layer_elements(MatchSide& side, const Place& place) {
  const auto part = static_cast<size_t>(place.part);
  if (part >= side.trees.size() || side.layers[part].nodes.empty()) return std::nullopt;
  const std::string& node = side.trees[part].at(side.layers[part].nodes.front()).name;
  const std::vector<size_t> outputs =
      records_at(side.run, side.nodes_at(place), node, "outputs", true);
  return outputs.empty() ? std::nullopt : side.element_count_of(outputs.front());
}

TokenTable Matcher::token_table(MatchSide& side, MatchSide& other) {
  const int rank = ranks_of(side.run).empty() ? 0 : *ranks_of(side.run).begin();
  const StepParts steps = side.steps_of(rank);
  if (options_.literal != nullptr) return options_.literal->token_table(steps);
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

int Matcher::decoder_goes_on(const MatchSide& side, int rank) {
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

std::vector<TokenPlace> Matcher::places_of(MatchSide& side, TokenTable table) {
  StepParts steps;
  for (const auto& [place, nodes] : side.places) steps[place.step].insert(place.part);
  if (outputs_only_) steps.erase(-1);  // weights/ beside the tokens is not one
  return token_places(steps, side.is_atb() ? table : TokenTable::Plain);
}

void Matcher::add_token_pair(const TokenPlace& golden, const TokenPlace& mine, int64_t token) {
  tokens_.push_back({token, {0, golden.step, golden.part}, {0, mine.step, mine.part}});
}

Status Matcher::align_tokens() {
  TokenTable golden_table = TokenTable::Plain;
  TokenTable mine_table = TokenTable::Plain;
  if (levels_) {
    golden_table = token_table(golden_, mine_);
    mine_table = token_table(mine_, golden_);
  }
  std::vector<TokenPlace> golden = places_of(golden_, golden_table);
  std::vector<TokenPlace> mine = places_of(mine_, mine_table);
  if (!whole_.user.token_map.empty()) return map_tokens(golden, mine);
  if (align_rows()) return {};

  const bool same_folders = options_.literal == nullptr && golden_.is_atb() && mine_.is_atb() &&
                            golden_table == mine_table;
  if (same_folders) {  // folder by folder, whatever tokens they are
    for (TokenPlace& place : golden) place.token = place.step;
    for (TokenPlace& place : mine) place.token = place.step;
  } else if (options_.literal == nullptr) {
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
  if (!whole_.step_pairs.empty() && golden_steps.size() == 1 && mine_steps.size() == 1) {
    for (const TokenPlace& g : golden) {
      for (const TokenPlace& m : mine) add_token_pair(g, m, m.token);
    }
    return {};
  }
  return fail(Errc::NothingInCommon, "my tokens is " + list_tokens(mine_steps) +
                                         " and golden tokens is " + list_tokens(golden_steps) +
                                         ". The two cannot be matched.");
}

bool Matcher::align_rows() {
  if (options_.literal != nullptr || golden_.is_atb() || mine_.is_atb()) return false;
  const StepAlignment& steps = whole_.steps;
  out_.notes.insert(out_.notes.end(), steps.notes.begin(), steps.notes.end());
  if (steps.by_number) return false;
  golden_.named = golden_.used;
  mine_.named = mine_.used;
  for (const StepRows& rows : steps.rows)
    tokens_.push_back({rows.mine_step, {0, rows.golden_step, 0}, {0, rows.mine_step, 0}, &rows});
  // Weights, and whatever else is of no step.
  const auto has = [](const MatchSide& side) {
    return std::ranges::any_of(side.places, [](const auto& one) { return one.first.step < 0; });
  };
  if (!outputs_only_ && has(golden_) && has(mine_)) tokens_.push_back({-1, {0, -1, 0}, {0, -1, 0}});
  return true;
}

std::vector<size_t> Matcher::release(MatchSide& side, const Place& place) {
  std::vector<size_t> released;
  for (const auto& [name, records] : side.nodes_at(place)) {
    for (const size_t i : records) {
      if (!side.used[i] || side.named[i]) continue;
      side.used[i] = false;
      released.push_back(i);
    }
  }
  return released;
}

void Matcher::keep_common_rows(const StepRows& rows, size_t first) {
  const auto cut = [](const RowSelection& chosen, const std::vector<int64_t>& order, size_t record,
                      const Dims& shape) {
    Recipe recipe{.records = {record}};
    const auto axis = static_cast<int>(chosen.axis);
    if (chosen.keys) {
      recipe.steps.push_back({.kind = RecipeStep::Kind::Range, .axis = axis, .last = chosen.count});
    } else if (static_cast<int64_t>(order.size()) != shape[chosen.axis]) {
      recipe.steps.push_back({.kind = RecipeStep::Kind::Permute, .axis = axis, .order = order});
    }
    return recipe;
  };
  // What operators count with (positions within a step, say) depends on how the tokens were cut.
  const auto is_index = [&](const RecordPair& pair) {
    const TensorRecord& record = mine_.run.records[pair.mine];
    return record.is_of_operator() && record.dtype && !is_float(*record.dtype);
  };
  size_t kept = first;
  for (size_t i = first; i < out_.pairs.size(); ++i) {
    RecordPair& pair = out_.pairs[i];
    const std::optional<Dims>& golden = golden_.shape_of(pair.golden);
    const std::optional<Dims>& mine = mine_.shape_of(pair.mine);
    RowSelection chosen;
    const std::string_view node = golden_.run.records[pair.golden].node;
    const std::string module = run::module_path(golden_.run, module_of_node(node));
    if (golden && mine && !is_index(pair) && whole_.steps.is_by_tokens(module))
      chosen = select_rows(rows, *golden, *mine);
    if (!chosen.known || chosen.none) {
      const std::string_view reason =
          chosen.none ? "none of its rows is a token that both steps computed"
                      : "steps hold other tokens, and which of its rows are which is not known";
      why_alone_.emplace(std::pair(Side::Golden, pair.golden), reason);
      why_alone_.emplace(std::pair(Side::Mine, pair.mine), reason);
      golden_.used[pair.golden] = mine_.used[pair.mine] = false;
      continue;
    }
    if (!chosen.whole) {
      set_recipes(&pair, cut(chosen, chosen.golden, pair.golden, *golden),
                  cut(chosen, chosen.mine, pair.mine, *mine));
      const int64_t count = chosen.keys ? chosen.count : static_cast<int64_t>(chosen.mine.size());
      const std::string text = std::to_string(count) + (count == 1 ? " token" : " tokens") +
                               " of golden's step " + std::to_string(rows.golden_step);
      const int32_t index = pair.mine_recipe >= 0 ? pair.mine_recipe : pair.golden_recipe;
      if (index >= 0) out_.recipes[static_cast<size_t>(index)].note = text;
    }
    if (kept != i) out_.pairs[kept] = std::move(pair);
    ++kept;
  }
  out_.pairs.resize(kept);
}

std::set<int64_t> Matcher::steps_in(const std::vector<TokenPlace>& places) {
  std::set<int64_t> steps;
  for (const TokenPlace& place : places) steps.insert(place.step);
  return steps;
}

void Matcher::note_table(const std::string& side, TokenTable table) {
  if (table != TokenTable::Plain)
    out_.notes.push_back(side + ": " + table_text(table) + " (--token-map says otherwise)");
}

void Matcher::note_missing_tokens(const std::vector<TokenPlace>& places,
                                  const std::vector<TokenPlace>& others, const std::string& side) {
  std::set<int64_t> missing;
  for (const TokenPlace& place : places) {
    if (place.token != kWarmupToken && place.token != -1) missing.insert(place.token);
  }
  for (const TokenPlace& other : others) missing.erase(other.token);
  std::string note = only_in(side, "step", missing);
  if (!note.empty()) out_.notes.push_back(std::move(note));
}

Status Matcher::map_tokens(const std::vector<TokenPlace>& golden,
                           const std::vector<TokenPlace>& mine) {
  for (const auto& [golden_token, mine_token] : whole_.user.token_map) {
    const auto has = [](const std::vector<TokenPlace>& places, int64_t step) {
      return std::any_of(places.begin(), places.end(),
                         [&](const TokenPlace& p) { return p.step == step; });
    };
    if (!has(golden, golden_token) || !has(mine, mine_token)) {
      const bool in_golden = has(golden, golden_token);
      return fail(Errc::Usage, "step " + std::to_string(in_golden ? mine_token : golden_token) +
                                   " of --token-map is not in " + (in_golden ? "mine" : "golden"));
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

void Matcher::name_layer_types() {
  const auto type_of = [](const MatchSide& side) {
    return side.layers.empty() ? std::string() : side.layers.front().type;
  };
  out_.golden_layer_type = type_of(golden_);
  out_.mine_layer_type = type_of(mine_);
}

}  // namespace assay::pair
