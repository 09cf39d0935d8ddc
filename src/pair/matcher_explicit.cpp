// SPDX-License-Identifier: Apache-2.0
// Pairs that the user names with --map.
#include "pair/matcher.hpp"

#include <algorithm>

#include "pair/explicit_pairs.hpp"

namespace assay::pair {

using run::Run;
using run::TensorRecord;

std::vector<size_t> Matcher::one_a_rank(const Run& run, std::vector<size_t> records) {
  std::stable_sort(records.begin(), records.end(),
                   [&](size_t a, size_t b) { return run.records[a].rank < run.records[b].rank; });
  return records;
}

Status Matcher::match_explicit() {
  for (const ExplicitPair& wanted : whole_.user.explicit_pairs) {
    const std::vector<size_t> golden = named_records(golden_.run, wanted.golden);
    const std::vector<size_t> mine = named_records(mine_.run, wanted.mine);
    if (golden.empty() || mine.empty()) {
      return fail(Errc::Usage, "the map names '" + (golden.empty() ? wanted.golden : wanted.mine) +
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

Status Matcher::add_named(const ExplicitPair& wanted, const std::vector<size_t>& golden_found,
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

Status Matcher::add_wanted(const ExplicitPair& wanted, size_t golden, size_t mine) {
  Recipe golden_recipe;
  Recipe mine_recipe;
  golden_recipe.records = {golden};
  mine_recipe.records = {mine};
  ASSAY_TRY_STATUS(add_steps(golden_, wanted.golden_steps, &golden_recipe));
  ASSAY_TRY_STATUS(add_steps(mine_, wanted.mine_steps, &mine_recipe));
  token_ = mine_.run.records[mine].step;
  add(golden, mine, Rule::Explicit, 1);
  set_recipes(&out_.pairs.back(), std::move(golden_recipe), std::move(mine_recipe));
  return {};
}

Status Matcher::add_merged(const ExplicitPair& wanted, const std::vector<size_t>& golden_found,
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
    const auto found = golden_groups.size() == 1 ? golden_groups.begin() : golden_groups.find(key);
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
    add(golden.records.front(), mine.records.front(), Rule::Explicit, 1);
    set_recipes(&out_.pairs.back(), std::move(golden), std::move(mine));
  }
  return {};
}

Status Matcher::add_steps(MatchSide& side, const std::vector<RecipeStep>& steps, Recipe* recipe) {
  if (steps.empty()) return {};
  const std::optional<Dims>& shape = side.shape_of(recipe->records.front());
  if (!shape) return {};  // loading it will say why
  ASSAY_TRY(recipe->steps, resolve_steps(steps, *shape));
  return {};
}

bool Matcher::is_trivial(const Recipe& recipe) {
  return recipe.records.size() < 2 && recipe.steps.empty() && recipe.note.empty();
}

void Matcher::set_recipes(RecordPair* pair, Recipe golden, Recipe mine) {
  const auto keep = [&](Recipe recipe, int32_t* index) {
    if (is_trivial(recipe)) return;
    *index = static_cast<int32_t>(out_.recipes.size());
    out_.recipes.push_back(std::move(recipe));
  };
  keep(std::move(golden), &pair->golden_recipe);
  keep(std::move(mine), &pair->mine_recipe);
}

}  // namespace assay::pair
