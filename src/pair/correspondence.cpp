// SPDX-License-Identifier: Apache-2.0
// Ranks first, then what the user says of steps and modules. An engine aligns the rest itself; of
// other runs steps are aligned by their tokens, and operations of ATB by number.
#include "pair/correspondence.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace assay::pair {
namespace {

using run::Run;

/// The only step of a run whose path names it: the user gave one step's folder.
std::optional<int64_t> named_step(const Run& run) {
  std::set<int64_t> steps;
  for (const run::TensorRecord& record : run.records) {
    if (record.step >= 0) steps.insert(record.step);
  }
  if (steps.size() != 1) return std::nullopt;
  const std::string step = std::to_string(*steps.begin());
  const auto parts = split(run.path, '/');
  if (std::ranges::find(parts, step) == parts.end()) return std::nullopt;
  return *steps.begin();
}

StepPairs only_steps(const Run& golden, const Run& mine) {
  const std::optional<int64_t> golden_step = named_step(golden);
  const std::optional<int64_t> mine_step = named_step(mine);
  if (!golden_step || !mine_step || golden_step == mine_step) return {};
  return {{*golden_step, *mine_step}};
}

Result<std::shared_ptr<const EngineAlignment>> align_with(const Engine& engine, const Run& golden,
                                                          const Run& mine, StepPairs steps) {
  if (!engine.made(golden)) return engine.align(golden, mine, steps);
  for (auto& [golden_step, mine_step] : steps) std::swap(golden_step, mine_step);
  return engine.align(mine, golden, steps);
}

}  // namespace

Result<Correspondence> correspond(const Run& golden, const Run& mine, const UserRules& user,
                                  Engines engines) {
  Correspondence out{.user = user, .ranks = align_ranks(golden, mine, user.ranks)};
  out.step_pairs = user.token_map;
  name_modules(golden, mine, user.explicit_pairs, &out.modules, &out.map_of_tensors);
  if (const Engine* engine = engine_between(golden, mine, engines)) {
    ASSAY_TRY(out.engine, align_with(*engine, golden, mine, user.token_map));
    return out;
  }
  const bool has_operations =
      golden.has(run::Trait::AtbOperations) || mine.has(run::Trait::AtbOperations);
  if (user.token_map.empty() && !has_operations)
    out.steps = align_steps(golden, mine, out.ranks.first_golden(), out.ranks.first_mine());
  if (user.token_map.empty() && out.steps.by_number) out.step_pairs = only_steps(golden, mine);
  return out;
}

}  // namespace assay::pair
