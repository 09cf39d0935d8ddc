// SPDX-License-Identifier: Apache-2.0
// Each further run is compared with the first at once; of those that differ one is kept. Findings
// know the runs that have them, and equal ones of several layers are put together.
#include "repeat/repetition.hpp"

#include <algorithm>
#include <set>
#include <tuple>

#include "run/layers.hpp"

namespace assay::repeat {
namespace {

/// The module with `*` for the number of its layer; where there is no module, the operator's name.
std::string pattern_of(const Place& place) {
  const std::string& name = place.module.empty() ? place.node : place.module;
  const std::optional<run::NumberedLayer> layer = run::layer_of_node(name);
  if (!layer || !name.starts_with(layer->name())) return name;
  return layer->named("*") + name.substr(layer->name().size());
}

}  // namespace

Repetition::Repetition(std::shared_ptr<const run::Run> first, size_t number)
    : first_run_(std::move(first)), first_(first_run_), first_number_(number) {}

bool Repetition::add(std::shared_ptr<const run::Run> run, size_t number) {
  ++later_;
  const Execution other(run);
  RunComparison compared = compare_runs(first_, other);
  const bool is_equal = compared.differences.empty();
  add_to_grid(std::move(compared.states), is_equal, number);
  if (!is_equal && different_ == nullptr) different_ = std::move(run);
  for (Difference& one : compared.differences) {
    const Key key(one.place.index, std::string(cause_name(one.cause)) + one.place.node);
    Seen& seen = seen_.try_emplace(key, Seen{one, {}}).first->second;
    seen.results.emplace(number, std::move(one.result));
  }
  return is_equal;
}

void Repetition::add_to_grid(std::vector<State> states, bool is_equal, size_t number) {
  if (!is_equal) {
    if (++different_count_ > kGridRuns) return;
    grid_.push_back({number, 0, std::make_shared<const std::vector<State>>(std::move(states))});
    return;
  }
  if (of_equal_runs_ == nullptr)
    of_equal_runs_ = std::make_shared<const std::vector<State>>(std::move(states));
  grid_.push_back({number, 0, of_equal_runs_});
}

size_t Repetition::step_count() const {
  std::set<std::pair<int, int64_t>> steps;
  for (const locate::Operator& one : first_.program().operators) steps.emplace(one.rank, one.step);
  return steps.size();
}

size_t Repetition::unseen_count() const {
  const auto is_seen = [&](const locate::Use& use) {
    const run::TensorRecord& record = first_.run().records[use.record];
    return record.digest || !record.value.empty() || use.producer != locate::kNone;
  };
  return static_cast<size_t>(
      std::ranges::count_if(first_.program().operators, [&](const locate::Operator& one) {
        return !reference::aten::is_view(one.name) && !std::ranges::all_of(one.outputs, is_seen);
      }));
}

std::vector<Finding> Repetition::findings() const {
  std::vector<Finding> findings;
  for (const auto& [key, seen] : seen_) {
    Finding finding{seen.difference, {}, 0};
    std::set<std::string_view> results;
    for (const auto& [number, result] : seen.results) {
      finding.runs.push_back(number);
      results.insert(result);
    }
    finding.results = results.size();
    findings.push_back(std::move(finding));
  }
  return findings;
}

std::vector<Alike> alike(const std::vector<Finding>& findings) {
  std::vector<Alike> all;
  std::map<std::tuple<Cause, std::string, std::string>, size_t> known;
  for (const Finding& one : findings) {
    const Place& place = one.difference.place;
    const auto [at, is_new] = known.emplace(
        std::tuple(one.difference.cause, pattern_of(place), place.operation), all.size());
    if (is_new)
      all.push_back({one.difference.cause, std::get<1>(at->first), place.operation, 0, {}});
    Alike& group = all[at->second];
    ++group.places;
    std::vector<size_t> runs;
    std::ranges::set_union(group.runs, one.runs, std::back_inserter(runs));
    group.runs = std::move(runs);
  }
  return all;
}

}  // namespace assay::repeat
