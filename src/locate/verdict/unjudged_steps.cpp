// SPDX-License-Identifier: Apache-2.0
// Sets of step numbers: common ones from the first other input on, and those of one run alone.
#include "locate/verdict/unjudged_steps.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

namespace assay::locate {
namespace {

using Steps = std::set<int64_t>;

/// Steps of the modules' calls; of a run without any, of its operators.
Steps steps_of(const Program& program) {
  Steps steps;
  for (const ModuleCall& call : program.calls) steps.insert(call.step);
  if (!steps.empty()) return steps;
  for (const Operator& one : program.operators) steps.insert(one.step);
  return steps;
}

std::vector<int64_t> without(const Steps& steps, const Steps& others) {
  std::vector<int64_t> left;
  std::ranges::set_difference(steps, others, std::back_inserter(left));
  return left;
}

}  // namespace

std::vector<UnjudgedSteps> unjudged_steps(const Stages& stages) {
  const Steps golden = steps_of(*stages.golden);
  const Steps mine = steps_of(*stages.mine);
  std::vector<UnjudgedSteps> list;
  const auto add = [&list](StepsOf of, std::vector<int64_t> steps) {
    if (!steps.empty()) list.push_back({of, std::move(steps)});
  };
  if (stages.inputs) {
    std::vector<int64_t> both;
    std::ranges::set_intersection(golden, mine, std::back_inserter(both));
    std::erase_if(both, [&](int64_t step) { return step < stages.inputs->step; });
    add(StepsOf::Both, std::move(both));
  }
  add(StepsOf::Golden, without(golden, mine));
  add(StepsOf::Mine, stages.steps_by_tokens ? stages.unpaired_steps : without(mine, golden));
  return list;
}

std::string steps_text(const std::vector<int64_t>& steps) {
  const std::string first = std::to_string(steps.front());
  if (steps.size() == 1) return "step " + first;
  const bool whole = steps.back() - steps.front() + 1 == static_cast<int64_t>(steps.size());
  return (whole ? "steps " : std::to_string(steps.size()) + " of the steps ") + first + " to " +
         std::to_string(steps.back());
}

std::string unjudged_text(const UnjudgedSteps& steps) {
  const std::string text = steps_text(steps.steps);
  if (steps.of != StepsOf::Both)
    return text + ", which " + std::string(steps_of_name(steps.of)) + " alone has";
  return text + ", which " + (steps.steps.size() == 1 ? "has" : "have") + " other tokens";
}

}  // namespace assay::locate
