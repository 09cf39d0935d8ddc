// SPDX-License-Identifier: Apache-2.0
#include "run/run.hpp"

#include <algorithm>
#include <tuple>

#include "run/detect.hpp"
#include "run/natural_sort.hpp"

namespace assay::run {
namespace {

/// Sorts by (rank, step, order, node, call, role, slot) and numbers the records in that order. Node
/// and call only decide between records that the source gave one order.
void sort_records(std::vector<TensorRecord>* records) {
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
  uint64_t order = 0;
  for (TensorRecord& record : *records) record.order = order++;
}

}  // namespace

std::string_view role_name(Role role) {
  switch (role) {
    case Role::Input:
      return "input";
    case Role::Output:
      return "output";
    case Role::Weight:
      return "weight";
    case Role::Buffer:
      return "buffer";
  }
  return "";
}

Result<Run> open_run(const std::string& path) {
  ASSAY_TRY(Run run, detect_and_read(path));
  run.path = path;
  sort_records(&run.records);
  return run;
}

}  // namespace assay::run
