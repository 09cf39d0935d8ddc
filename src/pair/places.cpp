// SPDX-License-Identifier: Apache-2.0
#include "pair/places.hpp"

#include "run/common_names.hpp"

namespace assay::pair {

using run::Role;
using run::TensorRecord;

bool is_operand(const TensorRecord& record) {
  return record.kind == run::RecordKind::Operand && record.value.empty();
}

std::string place_of(const run::Run& run, const TensorRecord& record) {
  const std::string path = run::module_path(run, record.node);
  std::string place = path.empty() ? "(root)" : path;
  if (record.role == Role::Weight || record.role == Role::Buffer) {
    place += " weight";
  } else {
    if (record.graph > 0) place += " graph " + std::to_string(record.graph);
    place += " call " + std::to_string(record.call) + " step " +
             (record.step >= 0 ? std::to_string(record.step) : record.step_name.str()) + " " +
             std::string(run::role_name(record.role));
  }
  if (!record.slot.empty()) place += " " + record.slot;
  if (record.rank > 0) place += " rank " + std::to_string(record.rank);
  return place;
}

Places::Places(const run::Run& golden) {
  for (size_t i = 0; i < golden.records.size(); ++i) {
    if (is_operand(golden.records[i])) records_.emplace(place_of(golden, golden.records[i]), i);
  }
}

size_t Places::golden_at(const std::string& place) const {
  const auto found = records_.find(place);
  return found == records_.end() ? kNoPartner : found->second;
}

}  // namespace assay::pair
