// SPDX-License-Identifier: Apache-2.0
// Opens a run: finds its layout and reads it, then sorts the records and numbers them once for all;
// what refers to records by number follows.

#include <algorithm>
#include <compare>
#include <optional>
#include <tuple>

#include "base/file_changes.hpp"
#include "base/file_source.hpp"
#include "run/detect.hpp"
#include "run/documented_folder.hpp"
#include "run/natural_sort.hpp"
#include "run/open.hpp"
#include "run/run.hpp"

namespace assay::run {
namespace {

/// Which record stood where before the records were numbered anew.
class OldPlaces {
 public:
  explicit OldPlaces(const std::vector<TensorRecord>& records) {
    places_.reserve(records.size());
    for (size_t i = 0; i < records.size(); ++i)
      places_.push_back({records[i].rank, records[i].order, i});
    if (!std::ranges::is_sorted(places_)) std::ranges::sort(places_);
  }
  /// The first record of that order; nothing when there is none.
  [[nodiscard]] std::optional<uint64_t> find(int rank, uint64_t order) const {
    const auto found = at_or_behind(rank, order);
    const bool is_it = found != places_.end() && found->rank == rank && found->order == order;
    return is_it ? std::optional(found->record) : std::nullopt;
  }
  /// The first record of that order or a later one; the number of all records when there is none.
  [[nodiscard]] uint64_t first_behind(int rank, uint64_t order) const {
    const auto found = at_or_behind(rank, order);
    return found == places_.end() ? places_.size() : found->record;
  }

 private:
  struct Place {
    int rank;
    uint64_t order;
    uint64_t record;
    auto operator<=>(const Place&) const = default;
  };
  [[nodiscard]] std::vector<Place>::const_iterator at_or_behind(int rank, uint64_t order) const {
    return std::ranges::lower_bound(places_, Place{rank, order, 0});
  }

  std::vector<Place> places_;
};

/// What names records by their order follows them to their new numbers.
void renumber(const OldPlaces& places, Run* run) {
  for (TensorRecord& record : run->records) {
    if (record.producer < 0) continue;
    const auto found = places.find(record.rank, static_cast<uint64_t>(record.producer));
    record.producer = found ? static_cast<int64_t>(*found) : -1;
  }
  // Lines of operators and records count together: an operator stands before the record that comes
  // next.
  for (OperationRecord& operation : run->operations)
    operation.order = places.first_behind(operation.rank, operation.order);
}

bool stands_before(const TensorRecord& a, const TensorRecord& b) {
  const auto numbers = [](const TensorRecord& r) { return std::tuple(r.rank, r.step); };
  if (numbers(a) != numbers(b)) return numbers(a) < numbers(b);
  if (a.step_name != b.step_name) return natural_less(a.step_name, b.step_name);
  if (a.order != b.order) return a.order < b.order;
  if (a.node != b.node) return natural_less(a.node, b.node);
  const auto place = [](const TensorRecord& r) { return std::tuple(r.call, r.role); };
  if (place(a) != place(b)) return place(a) < place(b);
  return natural_less(a.slot, b.slot);
}

/// Sorts by (rank, step, order, node, call, role, slot) and numbers the records in that order. Node
/// and call only decide between records that the source gave one order.
void sort_records(Run* run) {
  std::vector<TensorRecord>* records = &run->records;
  // Sorting takes half of the memory of the records again, and mostly there is nothing to do.
  if (!std::ranges::is_sorted(*records, stands_before))
    std::ranges::stable_sort(*records, stands_before);
  const bool has_program =
      std::ranges::any_of(run->operations,
                          [](const OperationRecord& operation) { return operation.order > 0; }) ||
      std::ranges::any_of(*records,
                          [](const TensorRecord& record) { return record.producer >= 0; });
  if (has_program) {
    const auto place = [](const OperationRecord& operation) {
      return std::tuple(operation.rank, operation.step, operation.order);
    };
    if (!std::ranges::is_sorted(run->operations, {}, place))
      std::ranges::stable_sort(run->operations, {}, place);
    renumber(OldPlaces(*records), run);
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

Result<Run> open_run(const std::string& asked) {
  const std::string path = documented_folder(asked);
  const ReadingScope reading;
  Result<Run> found = detect_and_read(path);
  // A list that could not be fetched is no damage of the run.
  if (is_elsewhere(path)) ASSAY_TRY_STATUS(reading.take_failure());
  ASSAY_TRY(Run run, std::move(found));
  run.path = path;
  if (path != asked) run.warnings.push_back(asked + " is not there; " + path + " is read");
  for (const Damage& one : run.damage) run.warnings.push_back("damaged: " + one.describe());
  sort_records(&run);
  return run;
}

}  // namespace assay::run
