// SPDX-License-Identifier: Apache-2.0
// An origin is hidden when the walk found all values of its module, and of those inside it, right
// and finite from there on, and an output of the module is among them.
#include "locate/verdict/hidden_infinities.hpp"

#include <algorithm>
#include <set>

#include "locate/program/owner.hpp"

namespace assay::locate {
namespace {

bool is_hidden(const Finding& origin, const Program& mine, const Walk& walk,
               const std::set<size_t>& not_finite) {
  if (origin.module.empty()) return false;
  bool any_output = false;
  for (const WalkStep& step : walk.steps) {
    const ModuleCall& call = mine.calls[step.call];
    if (call.rank != origin.rank || call.step != origin.step ||
        !is_inside(call.module, origin.module))
      continue;
    const Use& use = (step.input ? call.inputs : call.outputs)[step.use];
    if (use.time < origin.time) continue;
    if (!step.reason.empty() || step.suspicious || not_finite.contains(use.record)) return false;
    any_output = any_output || (!step.input && call.module == origin.module);
  }
  return any_output;
}

}  // namespace

std::vector<Finding> take_hidden_infinities(const Program& mine, const Walk& walk,
                                            NanOrigins* origins) {
  std::set<size_t> not_finite(origins->inherited.begin(), origins->inherited.end());
  for (const Finding& origin : origins->findings) not_finite.insert(origin.mine_record);
  const auto matters = [&](const Finding& origin) {
    return !origins->only_infinite.contains(origin.mine_record) ||
           !is_hidden(origin, mine, walk, not_finite);
  };
  const auto hidden = std::ranges::stable_partition(origins->findings, matters);
  std::vector<Finding> taken(hidden.begin(), hidden.end());
  origins->findings.erase(hidden.begin(), hidden.end());
  if (origins->findings.empty()) origins->inherited.clear();
  return taken;
}

}  // namespace assay::locate
