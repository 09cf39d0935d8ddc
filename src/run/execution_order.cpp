// SPDX-License-Identifier: Apache-2.0
// Builds a timetable of the run that knows its order, looks every record of the other up in it (in
// the same step, then in any, then by path and role alone), and sorts by these times within rank
// and step.
#include "run/execution_order.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

#include "run/common_names.hpp"

namespace assay::run {
namespace {

/// What was executed, whatever the step: path, role, call, slot.
using Execution = std::tuple<std::string, Role, uint32_t, std::string>;

Execution execution_of(const Run& run, const TensorRecord& record) {
  return {module_path(run, record.node), record.role, record.call, record.slot};
}

/// When in a step something ran, told by a run that knows.
class Timetable {
 public:
  explicit Timetable(const Run& run) {
    std::map<std::pair<int, int64_t>, uint64_t> begins;
    for (const TensorRecord& record : run.records) {
      const std::pair step{record.rank, record.step};
      const uint64_t begin = begins.try_emplace(step, record.order).first->second;
      const uint64_t time = record.order - begin;
      const Execution execution = execution_of(run, record);
      in_step_.emplace(std::pair(record.step, execution), time);
      in_any_step_.emplace(execution, time);
      in_any_step_.emplace(without_slot(execution), time);
    }
  }

  [[nodiscard]] std::optional<uint64_t> time_of(const Run& run, const TensorRecord& record) const {
    const Execution execution = execution_of(run, record);
    if (const auto found = in_step_.find({record.step, execution}); found != in_step_.end())
      return found->second;
    for (const Execution& like : {execution, without_slot(execution)}) {
      if (const auto found = in_any_step_.find(like); found != in_any_step_.end())
        return found->second;
    }
    return std::nullopt;
  }

 private:
  static Execution without_slot(Execution execution) {
    std::get<2>(execution) = 0;
    std::get<3>(execution) = "*";
    return execution;
  }

  std::map<std::pair<int64_t, Execution>, uint64_t> in_step_;
  std::map<Execution, uint64_t> in_any_step_;
};

/// A record without a namesake takes the time of the one in front of it, and stays behind that.
void take_order(const Timetable& timetable, Run* run) {
  bool all_known = true;
  std::vector<uint64_t> times;
  const TensorRecord* previous = nullptr;
  for (const TensorRecord& record : run->records) {
    const bool same_step = previous != nullptr && previous->rank == record.rank &&
                           previous->step_name == record.step_name;
    const std::optional<uint64_t> time = timetable.time_of(*run, record);
    times.push_back(time.value_or(same_step ? times.back() : 0));
    if (!time && record.role == Role::Output && record.kind == RecordKind::Operand)
      all_known = false;
    previous = &record;
  }
  std::vector<size_t> places(run->records.size());
  std::iota(places.begin(), places.end(), size_t{0});
  // The records are sorted by rank and step already; within them times decide.
  for (size_t begin = 0; begin < places.size();) {
    size_t end = begin + 1;
    const TensorRecord& first = run->records[begin];
    while (end < places.size() && run->records[end].rank == first.rank &&
           run->records[end].step == first.step && run->records[end].step_name == first.step_name)
      ++end;
    std::stable_sort(places.begin() + static_cast<std::ptrdiff_t>(begin),
                     places.begin() + static_cast<std::ptrdiff_t>(end),
                     [&](size_t a, size_t b) { return times[a] < times[b]; });
    begin = end;
  }
  std::vector<TensorRecord> sorted;
  sorted.reserve(places.size());
  for (const size_t place : places) sorted.push_back(std::move(run->records[place]));
  run->records = std::move(sorted);
  for (size_t i = 0; i < run->records.size(); ++i) run->records[i].order = i;
  run->order_known = all_known;
}

}  // namespace

void share_execution_order(Run* golden, Run* mine) {
  if (golden->order_known == mine->order_known) return;
  if (golden->order_known) {
    take_order(Timetable(*golden), mine);
  } else {
    take_order(Timetable(*mine), golden);
  }
}

}  // namespace assay::run
