// SPDX-License-Identifier: Apache-2.0
// Tasks that cannot be sent stay with this process. The others are planned as parts, each of which
// is packed when the runner has room for it and taken back when it is done.
#include "run/do_parts.hpp"

#include <utility>

namespace assay::run {

Result<std::vector<size_t>> do_parts(PartRunner& runner, const PartWork& work) {
  std::vector<size_t> here;
  std::vector<size_t> sent;
  std::vector<TaskPlace> places;
  for (size_t task = 0; task < work.count; ++task) {
    if (!work.can_be_sent(task)) {
      here.push_back(task);
      continue;
    }
    sent.push_back(task);
    places.push_back(work.place_of(task));
  }
  std::vector<Part> parts = plan_parts(places);
  for (Part& part : parts)
    for (size_t& task : part.tasks) task = sent[task];
  size_t done = 0;
  ASSAY_TRY_STATUS(runner.run(
      parts.size(),
      [&](size_t i) {
        parts[i].files = work.files_of(parts[i]);
        return PartRunner::Request{parts[i], work.pack(parts[i])};
      },
      [&](size_t i, PartRunner::Outcome outcome) {
        work.take(parts[i], std::move(outcome));
        done += parts[i].tasks.size();
        if (work.progress) work.progress(done, work.count);
      }));
  return here;
}

}  // namespace assay::run
