// SPDX-License-Identifier: Apache-2.0
#include "pair/first_inputs.hpp"

#include <algorithm>

#include "pair/places.hpp"
#include "pair/slices.hpp"

namespace assay::pair {

using run::Role;
using run::TensorRecord;

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
  std::map<std::string, size_t> of_second;
  for (const size_t i : second->second) of_second.emplace(other.place_of(i), i);
  Work work = Work::Unknown;
  const TensorRecord* execution = nullptr;
  for (const size_t i : first->second) {
    const TensorRecord& record = run_.records[i];
    if (execution != nullptr && (execution->node != record.node || execution->call != record.call))
      break;
    const auto partner = of_second.find(place_of(i));
    if (partner == of_second.end()) continue;
    execution = &record;
    const Work told = judge(record, other.run_.records[partner->second]);
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

std::string FirstInputs::place_of(size_t i) const {
  const TensorRecord& record = run_.records[i];
  return record.node + "\n" + std::to_string(record.call) + "\n" + record.slot;
}

bool have_equal_values(const TensorRecord& a, const TensorRecord& b) {
  const bool is_same_type = a.dtype == b.dtype;
  if (is_same_type && a.digest && b.digest && a.digest == b.digest) return true;
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
