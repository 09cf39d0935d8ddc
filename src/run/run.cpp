// SPDX-License-Identifier: Apache-2.0
#include "run/run.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/file_changes.hpp"
#include "base/file_source.hpp"
#include "run/detect.hpp"
#include "run/natural_sort.hpp"

namespace assay::run {
namespace {

using Place = std::pair<int, uint64_t>;  // rank, order

/// Which record stood at a place before the records were numbered anew. The first of several.
std::map<Place, uint64_t> places_of(const std::vector<TensorRecord>& records) {
  std::map<Place, uint64_t> places;
  for (size_t i = 0; i < records.size(); ++i)
    places.emplace(Place(records[i].rank, records[i].order), i);
  return places;
}

/// What names records by their order follows them to their new numbers.
void renumber(const std::map<Place, uint64_t>& places, Run* run) {
  for (TensorRecord& record : run->records) {
    if (record.producer < 0) continue;
    const auto found = places.find({record.rank, static_cast<uint64_t>(record.producer)});
    record.producer = found == places.end() ? -1 : static_cast<int64_t>(found->second);
  }
  for (OperationRecord& operation : run->operations) {
    // An operator stands before the first record behind its line.
    const auto found = places.lower_bound({operation.rank, operation.order});
    operation.order = found == places.end() ? run->records.size() : found->second;
  }
}

/// Sorts by (rank, step, order, node, call, role, slot) and numbers the records in that order. Node
/// and call only decide between records that the source gave one order.
void sort_records(Run* run) {
  std::vector<TensorRecord>* records = &run->records;
  std::stable_sort(
      records->begin(), records->end(), [](const TensorRecord& a, const TensorRecord& b) {
        const auto numbers = [](const TensorRecord& r) { return std::tuple(r.rank, r.step); };
        if (numbers(a) != numbers(b)) return numbers(a) < numbers(b);
        if (a.step_name != b.step_name) return natural_less(a.step_name, b.step_name);
        if (a.order != b.order) return a.order < b.order;
        if (a.node != b.node) return natural_less(a.node, b.node);
        const auto place = [](const TensorRecord& r) { return std::tuple(r.call, r.role); };
        if (place(a) != place(b)) return place(a) < place(b);
        return natural_less(a.slot, b.slot);
      });
  const bool has_program =
      std::ranges::any_of(run->operations,
                          [](const OperationRecord& operation) { return operation.order > 0; }) ||
      std::ranges::any_of(*records,
                          [](const TensorRecord& record) { return record.producer >= 0; });
  if (has_program) {
    std::stable_sort(run->operations.begin(), run->operations.end(),
                     [](const OperationRecord& a, const OperationRecord& b) {
                       return std::tuple(a.rank, a.step, a.order) <
                              std::tuple(b.rank, b.step, b.order);
                     });
    renumber(places_of(*records), run);
  }
  uint64_t order = 0;
  for (TensorRecord& record : *records) record.order = order++;
}

}  // namespace

void FoundDamage::add(Damage damage) {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(list_, damage) == list_.end()) list_.push_back(std::move(damage));
}

std::vector<Damage> FoundDamage::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<Damage> sorted = list_;  // threads find it in any order
  std::ranges::sort(sorted, [](const Damage& a, const Damage& b) {
    return std::tie(a.file, a.what) < std::tie(b.file, b.what);
  });
  return sorted;
}

std::string Run::node_folder(const TensorRecord& record) const {
  const auto found = step_folders.find({record.rank, record.step_name});
  return found == step_folders.end() ? std::string() : found->second + "/" + record.node;
}

void Run::add_damage(const std::string& file, std::string what) {
  Damage one{file, std::move(what)};
  if (std::ranges::find(damage, one) == damage.end()) damage.push_back(std::move(one));
}

std::vector<Damage> Run::all_damage() const {
  std::vector<Damage> all = damage;
  const std::vector<Damage> found = found_damage->list();
  all.insert(all.end(), found.begin(), found.end());
  return all;
}

std::string Run::first_damage() const {
  const std::vector<Damage> all = all_damage();
  return all.empty() ? std::string() : all.front().describe();
}

Result<Run> open_run(const std::string& path) {
  const ReadingScope reading;
  Result<Run> found = detect_and_read(path);
  // A list that could not be fetched is no damage of the run.
  if (is_url(path)) ASSAY_TRY_STATUS(reading.take_failure());
  ASSAY_TRY(Run run, std::move(found));
  run.path = path;
  for (const Damage& one : run.damage) run.warnings.push_back("damaged: " + one.describe());
  sort_records(&run);
  return run;
}

}  // namespace assay::run
