// SPDX-License-Identifier: Apache-2.0
// One pass over the tasks: each joins the part that is open for its group, rank and step, or begins
// the next one where the limits would be passed. Then the parts are sorted, largest first.
#include "run/parts.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace assay::run {
namespace {

class Planner {
 public:
  Planner(std::span<const TaskPlace> tasks, const PartLimits& limits)
      : tasks_(tasks), limits_(limits) {}

  std::vector<Part> plan() {
    for (size_t i = 0; i < tasks_.size(); ++i) {
      const TaskPlace& task = tasks_[i];
      Part& part = open_part({task.group, task.crosses_ranks, task.rank, task.step}, task.bytes);
      part.tasks.push_back(i);
      part.bytes += task.bytes;
      part.crosses_ranks = task.crosses_ranks;
    }
    std::ranges::stable_sort(parts_, [](const Part& a, const Part& b) {
      return std::pair(b.bytes, a.tasks.front()) < std::pair(a.bytes, b.tasks.front());
    });
    return std::move(parts_);
  }

 private:
  using Place = std::tuple<size_t, bool, int, int64_t>;

  /// The part that goes on at a place, or a new one when that would become too large.
  Part& open_part(const Place& place, uint64_t bytes) {
    const auto [open, is_new] = open_.try_emplace(place, parts_.size());
    const bool is_full = !is_new && (parts_[open->second].tasks.size() >= limits_.tasks ||
                                     parts_[open->second].bytes + bytes > limits_.bytes);
    if (is_new || is_full) {
      open->second = parts_.size();
      parts_.emplace_back();
    }
    return parts_[open->second];
  }

  std::span<const TaskPlace> tasks_;
  const PartLimits& limits_;
  std::vector<Part> parts_;
  std::map<Place, size_t> open_;
};

}  // namespace

std::vector<Part> plan_parts(std::span<const TaskPlace> tasks, const PartLimits& limits) {
  return Planner(tasks, limits).plan();
}

}  // namespace assay::run
