// SPDX-License-Identifier: Apache-2.0
// Copies the run, drops the records and operators of other steps, and numbers the rest from 0.
#include "repeat/steps.hpp"

#include <algorithm>

namespace assay::repeat {
namespace {

/// Removes records of other steps and numbers the others anew.
template <typename Record>
void keep_steps(std::vector<Record>* records, int64_t first, int64_t count) {
  std::erase_if(*records, [&](const Record& one) {
    return one.step >= 0 && (one.step < first || one.step >= first + count);
  });
  for (Record& one : *records) {
    if (one.step < 0) continue;
    one.step -= first;
    one.step_name = std::to_string(one.step);
  }
}

}  // namespace

run::Run steps_of(const run::Run& run, int64_t first, int64_t count) {
  run::Run part = run;
  keep_steps(&part.records, first, count);
  keep_steps(&part.operations, first, count);
  return part;
}

int64_t step_count(const run::Run& run) {
  int64_t last = -1;
  for (const run::TensorRecord& one : run.records) last = std::max(last, one.step);
  return last + 1;
}

}  // namespace assay::repeat
