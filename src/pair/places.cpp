// SPDX-License-Identifier: Apache-2.0
// An index of hashes: the name of a place is made again for each record that has the hash.
#include "pair/places.hpp"

#include <algorithm>
#include <functional>

#include "run/common_names.hpp"

namespace assay::pair {

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
             std::string(role_name(record.role));
  }
  if (!record.slot.empty()) place += " " + record.slot;
  if (record.rank > 0) place += " rank " + std::to_string(record.rank);
  return place;
}

namespace {

uint32_t hash_of(std::string_view place) {
  return static_cast<uint32_t>(std::hash<std::string_view>()(place));
}

}  // namespace

Places::Places(const run::Run& golden) : golden_(&golden) {
  entries_.reserve(golden.records.size());
  for (size_t i = 0; i < golden.records.size(); ++i) {
    const TensorRecord& record = golden.records[i];
    if (is_operand(record))
      entries_.push_back({hash_of(place_of(golden, record)), static_cast<uint32_t>(i)});
  }
  std::ranges::sort(entries_);
}

size_t Places::golden_at(std::string_view place) const {
  for (const Entry& entry : std::ranges::equal_range(entries_, hash_of(place), {}, &Entry::hash)) {
    if (place_of(*golden_, golden_->records[entry.record]) == place) return entry.record;
  }
  return kNoPartner;
}

}  // namespace assay::pair
