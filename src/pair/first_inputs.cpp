// SPDX-License-Identifier: Apache-2.0
// Inputs are listed by rank and step in the order of execution. Those of the first execution that
// both ranks have decide: one that differs makes it other work.
#include "pair/first_inputs.hpp"

#include <algorithm>
#include <tuple>

#include "pair/places.hpp"
#include "pair/slices.hpp"
#include "run/load.hpp"

namespace assay::pair {

using run::TensorRecord;

namespace {

/// The inputs of a rank in a step, by their places.
class Partners {
 public:
  /// Both outlive this.
  Partners(const run::Run& run, const std::vector<size_t>& records)
      : run_(run), records_(records) {}

  /// Null: there is none.
  const TensorRecord* of(const TensorRecord& record) {
    const Place place = place_of(record);
    for (size_t i = 0; i < std::min(records_.size(), kNear); ++i)
      if (place_of(run_.records[records_[i]]) == place) return &run_.records[records_[i]];
    if (by_place_.empty()) {
      for (const size_t i : records_) by_place_.emplace(place_of(run_.records[i]), i);
    }
    const auto found = by_place_.find(place);
    return found == by_place_.end() ? nullptr : &run_.records[found->second];
  }

 private:
  using Place = std::tuple<uint32_t, uint32_t, uint32_t>;
  static constexpr size_t kNear = 8;  // what is given first to one is first to the other, too

  static Place place_of(const TensorRecord& record) {
    return {record.node.handle(), record.call, record.slot.handle()};
  }

  const run::Run& run_;
  const std::vector<size_t>& records_;
  std::map<Place, size_t> by_place_;
};

}  // namespace

FirstInputs::FirstInputs(const run::Run& run) : run_(run) {
  for (size_t i = 0; i < run.records.size(); ++i) {
    const TensorRecord& record = run.records[i];
    if (is_operand(record) && record.role == Role::Input)
      inputs_[{record.rank, record.step}].push_back(i);
  }
  for (auto& [place, records] : inputs_)
    std::ranges::stable_sort(records, {}, [&](size_t i) { return run.records[i].order; });
}

Work FirstInputs::compare(int rank, int64_t step, const FirstInputs& other, int other_rank,
                          const Judgement& judge) const {
  const auto first = inputs_.find({rank, step});
  const auto second = other.inputs_.find({other_rank, step});
  if (first == inputs_.end() || second == other.inputs_.end()) return Work::Unknown;
  Partners partners(other.run_, second->second);
  Work work = Work::Unknown;
  const TensorRecord* execution = nullptr;
  for (const size_t i : first->second) {
    const TensorRecord& record = run_.records[i];
    if (execution != nullptr && (execution->node != record.node || execution->call != record.call))
      break;
    const TensorRecord* partner = partners.of(record);
    if (partner == nullptr) continue;
    execution = &record;
    const Work told = judge(record, *partner);
    if (told == Work::Other) return Work::Other;
    if (told == Work::Same) work = Work::Same;
  }
  return work;
}

std::set<int64_t> FirstInputs::steps_of(int rank) const {
  std::set<int64_t> steps;
  for (const auto& [place, records] : inputs_)
    if (place.first == rank) steps.insert(place.second);
  return steps;
}

bool have_equal_values(const TensorRecord& a, const TensorRecord& b) {
  const bool is_same_type = a.dtype == b.dtype;
  if (is_same_type && a.digest && b.digest) return a.digest == b.digest;
  if (a.stats && b.stats && !(a.bytes && b.bytes)) return is_same_type && a.stats == b.stats;
  if (a.dtype && b.dtype && is_integer(*a.dtype) && is_integer(*b.dtype)) {
    const auto first = integer_values(a);
    const auto second = integer_values(b);
    return first && second && *first == *second;
  }
  const Result<Tensor> first = run::load_tensor(a);
  const Result<Tensor> second = run::load_tensor(b);
  return first && second && first->view.dtype == second->view.dtype &&
         first->view.shape == second->view.shape && first->view.is_contiguous() &&
         second->view.is_contiguous() &&
         as_text(first->view.contiguous_bytes()) == as_text(second->view.contiguous_bytes());
}

}  // namespace assay::pair
