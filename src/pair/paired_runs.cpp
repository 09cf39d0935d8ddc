// SPDX-License-Identifier: Apache-2.0
// The runs are copied and renamed, so that whatever pairs by rank, step and module afterwards does
// as the user says.
#include "pair/paired_runs.hpp"

#include <algorithm>
#include <set>

#include "run/common_names.hpp"

namespace assay::pair {
namespace {

using run::Run;
using run::TensorRecord;

using PathPairs = std::vector<std::pair<std::string, std::string>>;

/// Records and operations for which `is_left_out` holds are no operands any more.
template <typename IsLeftOut>
void leave_out(Run* run, const IsLeftOut& is_left_out) {
  for (TensorRecord& record : run->records) {
    if (is_left_out(record)) record.kind = run::RecordKind::WatchedAgain;
  }
  std::erase_if(run->operations, is_left_out);
}

bool has_step(const Run& run, int64_t step) {
  return std::ranges::find(run.records, step, &TensorRecord::step) != run.records.end();
}

/// The path with its longest beginning that stands on the `from` side of a pair replaced; what is
/// below a module goes along.
std::string replaced(const PathPairs& pairs, std::string_view path,
                     std::string PathPairs::value_type::* from,
                     std::string PathPairs::value_type::* to) {
  const PathPairs::value_type* best = nullptr;
  for (const auto& one : pairs) {
    const std::string& module = one.*from;
    const bool holds =
        path == module || (path.starts_with(module + ".") && module.size() < path.size());
    if (holds && (best == nullptr || module.size() > (best->*from).size())) best = &one;
  }
  if (best == nullptr) return std::string(path);
  return best->*to + std::string(path.substr((best->*from).size()));
}

/// Modules of mine that bear a name which the user gives to another one get one that golden does
/// not have.
PathPairs with_taken_names_freed(PathPairs pairs) {
  PathPairs freed;
  for (const auto& [golden, mine] : pairs) {
    const std::string& name = golden;
    if (std::ranges::find(pairs, name, &PathPairs::value_type::second) == pairs.end())
      freed.emplace_back(name + " (not paired)", name);
  }
  pairs.insert(pairs.end(), freed.begin(), freed.end());
  return pairs;
}

}  // namespace

namespace {

/// Single processes with other numbers: (golden, mine).
std::optional<std::pair<int, int>> renamed_rank(const RankAlignment& ranks) {
  if (ranks.groups.size() != 1 || ranks.may_be_shards()) return std::nullopt;
  const std::pair one(ranks.first_golden(), ranks.first_mine());
  return one.first == one.second ? std::nullopt : std::optional(one);
}

}  // namespace

bool PairedRuns::are_needed(const Correspondence& pairs) {
  return !pairs.user.ranks.empty() || !pairs.step_pairs.empty() || !pairs.modules.empty() ||
         renamed_rank(pairs.ranks);
}

Result<PairedRuns> PairedRuns::make(const Run& golden, const Run& mine,
                                    const Correspondence& pairs) {
  PairedRuns runs(golden, mine);
  if (!pairs.user.ranks.empty()) {
    if (!pairs.ranks.problem.empty()) return fail(Errc::Usage, pairs.ranks.problem);
    runs.keep_ranks(pairs.user.ranks);
  }
  runs.use_ranks(pairs.ranks);
  ASSAY_TRY_STATUS(runs.use_steps(pairs.step_pairs));
  runs.use_modules(pairs.modules);
  return runs;
}

void PairedRuns::keep_ranks(const std::vector<int>& ranks) {
  const auto is_left_out = [&](const auto& one) {
    return std::ranges::find(ranks, one.rank) == ranks.end();
  };
  leave_out(&golden_, is_left_out);
  leave_out(&mine_, is_left_out);
}

void PairedRuns::use_ranks(const RankAlignment& ranks) {
  ranks_ = renamed_rank(ranks);
  if (!ranks_) return;
  for (TensorRecord& record : mine_.records) record.rank = ranks_->first;
  for (run::OperationRecord& operation : mine_.operations) operation.rank = ranks_->first;
}

Status PairedRuns::use_steps(const std::vector<std::pair<int64_t, int64_t>>& steps) {
  if (steps.empty()) return {};
  std::map<int64_t, int64_t> golden_steps;  // by the other run's
  for (const auto& [golden, mine] : steps) {
    if (!has_step(golden_, golden) || !has_step(mine_, mine)) {
      const bool in_golden = has_step(golden_, golden);
      return fail(Errc::Usage, "step " + std::to_string(in_golden ? mine : golden) +
                                   " of --token-map is not in " + (in_golden ? "mine" : "golden"));
    }
    // A step that the user names twice is judged with the first partner; the table has both.
    if (!golden_steps.contains(mine) && mine_steps_.emplace(golden, mine).second)
      golden_steps.emplace(mine, golden);
  }
  leave_out(&golden_,
            [&](const auto& one) { return one.step >= 0 && !mine_steps_.contains(one.step); });
  leave_out(&mine_,
            [&](const auto& one) { return one.step >= 0 && !golden_steps.contains(one.step); });
  const auto rename = [&](auto* one) {
    const auto found = golden_steps.find(one->step);
    if (one->step < 0 || found == golden_steps.end()) return;
    one->step = found->second;
    one->step_name = std::to_string(found->second);
  };
  for (TensorRecord& record : mine_.records) rename(&record);
  for (run::OperationRecord& operation : mine_.operations) rename(&operation);
  return {};
}

void PairedRuns::use_modules(const PathPairs& modules) {
  if (modules.empty()) return;
  modules_ = with_taken_names_freed(modules);
  run::rename_modules(
      [this](std::string_view path) {
        return replaced(modules_, path, &PathPairs::value_type::second,
                        &PathPairs::value_type::first);
      },
      &mine_);
}

int64_t PairedRuns::step_of_mine(int64_t golden_step) const {
  const auto found = mine_steps_.find(golden_step);
  return found == mine_steps_.end() ? golden_step : found->second;
}

std::string PairedRuns::name_of_mine(std::string_view golden_name) const {
  const std::string_view module = module_of_node(golden_name);
  return replaced(modules_, module, &PathPairs::value_type::first, &PathPairs::value_type::second) +
         std::string(golden_name.substr(module.size()));
}

}  // namespace assay::pair
