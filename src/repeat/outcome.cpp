// SPDX-License-Identifier: Apache-2.0
// Puts the findings of all groups (one for each number of threads) into one order, and makes the
// sentences that are said of them.
#include "repeat/outcome.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace assay::repeat {
namespace {

constexpr size_t kListedRuns = 6;

/// "run 3", "runs 1, 4 and 7", "runs 1-9".
std::string runs_text(const std::vector<size_t>& runs) {
  if (runs.empty()) return {};
  if (runs.size() == 1) return "run " + std::to_string(runs.front());
  if (runs.size() > 2 && runs.back() - runs.front() + 1 == runs.size())
    return "runs " + std::to_string(runs.front()) + "-" + std::to_string(runs.back());
  std::string text = "runs ";
  for (size_t i = 0; i < std::min(runs.size(), kListedRuns); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(runs[i]);
  return runs.size() > kListedRuns ? text + " ..." : text;
}

/// "model.norm (aten.mul.Tensor, step 0; model.py:12)"
std::string place_text(const Place& place) {
  std::string text = place.module.empty() ? place.node : place.module;
  text += " (" + place.operation + ", step " + std::to_string(place.step);
  if (place.rank > 0) text += ", rank " + std::to_string(place.rank);
  if (!place.source.empty()) text += "; " + place.source;
  return text + ")";
}

std::string slot_text(const std::string& slot) {
  return slot.empty() ? "an argument" : "its input " + slot;
}

std::string cause_text(const Difference& one) {
  const std::string place = place_text(one.place);
  switch (one.cause) {
    case Cause::Operator:
      return place + ": its inputs are equal bit for bit, its output is not";
    case Cause::Random:
      return place + ": a random operator without a seed";
    case Cause::Uninitialised:
      return place + ": " + slot_text(one.slot) + " is memory that nobody had written";
    case Cause::Weight:
      return place + ": the weight " + one.leaf + " is another one from the start";
    case Cause::Input:
      return place + ": " + slot_text(one.slot) +
             " is another value, and no captured operator made it: a random number, the time, or "
             "what lay in memory";
    case Cause::OtherOperators:
      break;
  }
  return place + ": one of the runs has no such operator";
}

void add_findings(const Repetition& group, std::vector<Finding>* all) {
  for (Finding& one : group.findings()) all->push_back(std::move(one));
  std::ranges::stable_sort(*all, {}, [](const Finding& one) { return one.difference.place.index; });
}

/// The states of a run of another group, by the operators of the first run of all.
GridRun moved(const GridRun& run, const Execution& own, const Execution& first) {
  std::vector<State> states;
  for (const locate::Operator& one : first.program().operators) {
    const size_t op = own.find(one);
    states.push_back(op == locate::kNone ? State::Missing : (*run.states)[op]);
  }
  return {run.number, run.threads, std::make_shared<const std::vector<State>>(std::move(states))};
}

void add_to_grid(const Repetition& group, const Repetition& first, int threads, Grid* grid) {
  for (const GridRun& run : group.grid()) {
    grid->runs.push_back(&group == &first ? run : moved(run, group.first(), first.first()));
    grid->runs.back().threads = threads;
  }
  grid->left_out += group.left_out();
}

Grid grid_of(const std::vector<std::unique_ptr<Repetition>>& groups,
             const std::vector<int>& threads,
             const std::vector<std::unique_ptr<Repetition>>& across) {
  const auto threads_of = [&](size_t group) { return group < threads.size() ? threads[group] : 0; };
  const Repetition& first = *groups.front();
  Grid grid;
  for (size_t op = 0; op < first.operator_count(); ++op)
    grid.operators.push_back(first.first().place_of(op));
  for (size_t i = 0; i < groups.size(); ++i) {
    if (i > 0) {
      grid.runs.push_back(across[i - 1]->grid().front());
      grid.runs.back().threads = threads_of(i);
    }
    add_to_grid(*groups[i], first, threads_of(i), &grid);
  }
  std::ranges::stable_sort(grid.runs, {}, &GridRun::number);
  return grid;
}

}  // namespace

bool Outcome::depends_on_threads() const {
  return std::ranges::any_of(threads,
                             [](const ThreadGroup& one) { return !one.against_first.empty(); });
}

std::string finding_text(const Finding& finding) {
  std::string text = cause_text(finding.difference) + ", in " + runs_text(finding.runs);
  if (finding.results > 1) text += " (" + counted(finding.results, "result") + ")";
  if (!finding.difference.unseen.empty()) {
    text += "; not captured of its inputs:";
    for (const std::string& slot : finding.difference.unseen) text += " " + slot;
  }
  return text;
}

std::string sentence_of(const Outcome& outcome) {
  if (!outcome.repeats())
    return "does not repeat: " + finding_text(outcome.findings.front()) + ", of " +
           counted(outcome.runs, "run") + " (0-" + std::to_string(outcome.runs - 1) + ")";
  std::string text = "repeats: " + counted(outcome.runs, "run");
  const size_t groups = outcome.threads.size();
  if (outcome.depends_on_threads()) text += ", with one number of threads each,";
  text += " are equal bit for bit: " + counted(outcome.operators, "operator") + " in " +
          counted(outcome.steps, "step");
  if (outcome.unseen > 0)
    text += "; " + counted(outcome.unseen, "operator") + " without a digest were not compared";
  if (groups > 1 && !outcome.depends_on_threads()) text += "; also with other numbers of threads";
  return text;
}

std::string elements_text(const Elements& elements, const Finding& finding) {
  std::string text = std::to_string(elements.different) + " of " +
                     counted(static_cast<uint64_t>(elements.count), "element") +
                     (elements.different == 1 ? " differs" : " differ");
  if (elements.worst >= 0)
    text += ", most at " + elements.worst_place + ": " + python_repr(elements.first) + ", then " +
            python_repr(elements.other);
  if (!std::isnan(elements.largest_ulp))
    text += " (" + python_repr(std::round(elements.largest_ulp)) + " ULP)";
  text += ": " + std::string(kind_name(elements.kind));
  if (elements.kind == Kind::Reordering) text += ", both are the exact result within rounding";
  if (elements.wrong_side)
    text += ", the " + std::string(*elements.wrong_side == 0 ? "first" : "second") + " is " +
            python_repr(elements.off_ulp) + " ULP off fp64's, allowed " +
            python_repr(elements.allowed_ulp);
  if (elements.kind == Kind::LooksReordered || elements.kind == Kind::LooksWrong)
    text += "; " + finding.difference.place.operation + " has no reference to tell";
  return text;
}

Outcome make_outcome(const std::vector<std::unique_ptr<Repetition>>& groups,
                     const std::vector<int>& threads,
                     const std::vector<std::unique_ptr<Repetition>>& across) {
  Outcome outcome;
  for (size_t i = 0; i < groups.size(); ++i) {
    outcome.runs += groups[i]->run_count();
    add_findings(*groups[i], &outcome.findings);
    outcome.threads.push_back({i < threads.size() ? threads[i] : 0, groups[i]->run_count(),
                               i == 0 ? std::vector<Finding>() : across[i - 1]->findings()});
    if (outcome.different_run == nullptr) outcome.different_run = groups[i]->different_run();
  }
  const Repetition& first = *groups.front();
  outcome.operators = first.operator_count();
  outcome.steps = first.step_count();
  outcome.unseen = first.unseen_count();
  outcome.grid = grid_of(groups, threads, across);
  outcome.first_run = first.first_run();
  return outcome;
}

}  // namespace assay::repeat
