// SPDX-License-Identifier: Apache-2.0
// Operators that only one side has.   docs/localisation.md, "Pair tests"
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "locate/judge/pair_tests.hpp"

namespace assay::locate {
namespace {

/// Operators of one name in one module call.
using GroupKey = std::tuple<int, int64_t, std::string_view, uint32_t, std::string_view>;
GroupKey group_of(const Operator& one) {
  return {one.rank, one.step, one.module, one.module_call, one.name};
}

struct Lonely {
  size_t first = kNone;
  size_t count = 0;
};

std::set<int64_t> steps_of(const Program& program) {
  std::set<int64_t> steps;
  for (const Operator& one : program.operators) steps.insert(one.step);
  return steps;
}

/// Groups of operators without partner, in execution order of their first. A step that the other
/// side did not capture lacks nothing.
std::vector<Lonely> lonely_operators(const Program& program, const std::vector<size_t>& partner_of,
                                     const std::set<int64_t>& other_steps) {
  std::map<GroupKey, size_t> places;
  std::vector<Lonely> groups;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    const Operator& one = program.operators[i];
    if (partner_of[i] != kNone || is_transparent(one.name) || !other_steps.contains(one.step))
      continue;
    const auto [found, is_new] = places.try_emplace(group_of(one), groups.size());
    if (is_new) groups.push_back({i, 0});
    ++groups[found->second].count;
  }
  return groups;
}

std::string count_text(const Lonely& group, const Program& program) {
  const std::string& name = program.operators[group.first].name;
  return group.count == 1 ? name : std::to_string(group.count) + " x " + name;
}

/// When, in the run under test's order, an operator of golden would have run: where the next one
/// with a partner does.
std::vector<uint64_t> times_in_mine(const PairContext& pair) {
  std::vector<uint64_t> times(pair.golden.operators.size());
  std::map<int, uint64_t> next;  // by rank
  for (const Operator& one : pair.mine.operators) next[one.rank] = one.time;
  for (size_t i = times.size(); i-- > 0;) {
    uint64_t& time = next[pair.golden.operators[i].rank];
    const size_t partner = pair.pairing.mine_of[i];
    if (partner != kNone) time = pair.mine.operators[partner].time;
    times[i] = time;
  }
  return times;
}

}  // namespace

void test_topology(const PairContext& pair, PairTests* tests) {
  for (const Lonely& extra :
       lonely_operators(pair.mine, pair.pairing.golden_of, steps_of(pair.golden))) {
    Finding finding = finding_at(pair, FindingKind::Topology, extra.first, kNone);
    finding.detail = "extra " + count_text(extra, pair.mine);
    tests->findings.push_back(std::move(finding));
  }
  const std::vector<uint64_t> times = times_in_mine(pair);
  for (const Lonely& missing :
       lonely_operators(pair.golden, pair.pairing.mine_of, steps_of(pair.mine))) {
    Finding finding = finding_at(pair, FindingKind::Topology, kNone, missing.first);
    finding.time = times[missing.first];
    finding.detail = "missing " + count_text(missing, pair.golden);
    tests->findings.push_back(std::move(finding));
  }
}

}  // namespace assay::locate
