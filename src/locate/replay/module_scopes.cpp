// SPDX-License-Identifier: Apache-2.0
// Two indices: the calls of each module in the order in which they end, and the judgeable outputs
// of each call. What is inside a module is found by time between them.
#include "locate/replay/module_scopes.hpp"

#include <algorithm>

#include "locate/program/owner.hpp"

namespace assay::locate {

ModuleScopes::ModuleScopes(const Program& mine, const Replay& replay)
    : mine_(mine), replay_(replay) {
  for (size_t i = 0; i < mine.calls.size(); ++i)
    calls_[{mine.calls[i].rank, mine.calls[i].module}].push_back(i);
  for (auto& [place, calls] : calls_)
    std::ranges::stable_sort(calls, {}, [&](size_t i) { return mine.calls[i].end; });
  for (size_t i = 0; i < replay.boundaries().size(); ++i) {
    const Boundary& one = replay.boundaries()[i];
    if (one.input || one.golden == kNoValue || !replay.type_at(i)) continue;
    outputs_of_[one.call].push_back(i);
  }
}

size_t ModuleScopes::depth_of(std::string_view module) {
  return module.empty() ? 0 : 1 + static_cast<size_t>(std::ranges::count(module, '.'));
}

const ModuleScopes::Calls& ModuleScopes::calls(int rank, const std::string& module) const {
  static const Calls kNoCalls;
  const auto found = calls_.find({rank, module});
  return found == calls_.end() ? kNoCalls : found->second;
}

const std::vector<size_t>& ModuleScopes::outputs_of(size_t call) const {
  static const std::vector<size_t> kNoOutputs;
  const auto found = outputs_of_.find(call);
  return found == outputs_of_.end() ? kNoOutputs : found->second;
}

size_t ModuleScopes::call_around(int rank, const std::string& module, uint64_t time) const {
  const Calls& all = calls(rank, module);
  const auto call =
      std::ranges::lower_bound(all, time, {}, [this](size_t i) { return mine_.calls[i].end; });
  return call == all.end() ? kNone : *call;
}

bool ModuleScopes::is_within(size_t boundary, int rank, const std::string& module) const {
  const ModuleCall& call = call_of(boundary);
  return call.rank == rank && call.module != module && is_inside(call.module, module);
}

void ModuleScopes::drop_inside(int rank, const std::string& module,
                               std::vector<bool>* dropped) const {
  const std::vector<Boundary>& all = replay_.boundaries();  // by rank, then time
  std::vector<uint64_t> times;                              // of what is inside
  for (size_t i = 0; i < all.size(); ++i) {
    if (is_within(i, rank, module)) times.push_back(all[i].time);
  }
  uint64_t before = 0;
  for (const size_t call : calls(rank, module)) {
    const uint64_t end = mine_.calls[call].end;
    const auto first = std::ranges::upper_bound(times, before);
    before = end;
    if (first == times.end() || *first > end) continue;
    const auto place = [&](const Boundary& one) {
      return std::pair(mine_.calls[one.call].rank, one.time);
    };
    const auto begin = std::ranges::lower_bound(all, std::pair(rank, *first), {}, place);
    for (auto one = begin; one != all.end() && place(*one) <= std::pair(rank, end); ++one) {
      if (one->call != call) (*dropped)[static_cast<size_t>(one - all.begin())] = true;
    }
  }
}

}  // namespace assay::locate
