// SPDX-License-Identifier: Apache-2.0
// What of two runs corresponds to what as a whole: ranks, steps, modules. A command finds it out
// once; the rows of its table (match_runs()) and its verdict (locate()) both rest on it, so that
// they cannot speak of different pairs.
#pragma once
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pair/engine.hpp"
#include "pair/explicit_pairs.hpp"
#include "pair/ranks.hpp"
#include "pair/step_tokens.hpp"

namespace assay::pair {

struct Correspondence {
  UserRules user = {};
  RankAlignment ranks = {};
  /// Which tokens of which steps are the same; by number where `step_pairs` says it, and for
  /// operations of ATB.
  StepAlignment steps = {};
  /// (golden, mine): the user's, or the only steps of two runs; empty: as `steps` has them.
  StepPairs step_pairs = {};
  /// Paths (golden, mine) of modules that the user named; the modules below go along.
  std::vector<std::pair<std::string, std::string>> modules = {};
  /// Entries of the user's map that speak of single tensors, or parts of them, and so of no module.
  size_t map_of_tensors = 0;
  /// Where one side's engine has no modules and the other one does; null: both sides name the same
  /// things.
  std::shared_ptr<const EngineAlignment> engine = {};
};

/// errors  NothingInCommon, Usage (two engines whose tokens have nothing in common). What the user
///         says of ranks and steps that no run has is found by those who use it.
[[nodiscard]] Result<Correspondence> correspond(const run::Run& golden, const run::Run& mine,
                                                const UserRules& user, Engines engines = {});

}  // namespace assay::pair
