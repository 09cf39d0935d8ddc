// SPDX-License-Identifier: Apache-2.0
// The order in which two runs are made comparable: numbers of layers and experts, trees of ranks,
// names, order of execution, values. Each step relies on the names that the one before it gave.
#include "run/pair.hpp"

#include "base/text.hpp"
#include "run/common_names.hpp"
#include "run/execution_order.hpp"
#include "run/lend.hpp"
#include "run/local_numbers.hpp"
#include "run/open.hpp"

namespace assay::run {

std::vector<std::string> reconcile(Run* golden, Run* mine) {
  std::vector<std::string> notes;
  for (const auto& [run, side] : {std::pair(golden, "golden: "), std::pair(mine, "mine: ")})
    if (const std::string note = number_stages_on(run); !note.empty()) notes.push_back(side + note);
  for (std::string& note : number_experts_on(golden, mine)) notes.push_back(std::move(note));
  for (Run* run : {golden, mine}) join_trees(run);
  for (std::string& note : use_common_names(golden, mine)) notes.push_back(std::move(note));
  share_execution_order(golden, mine);
  for (const auto& [borrower, lender] : {std::pair(golden, mine), std::pair(mine, golden)})
    for (std::string& note : lend_values(borrower, *lender)) notes.push_back(std::move(note));
  return notes;
}

namespace {

/// Gives the ranks of a run their places in the groups of a job; empty: they keep those they have.
/// A capture need not have all ranks of its job, but none beyond it.
Status tell_parallel(const ParallelSizes& parallel, Run* mine) {
  if (parallel.empty()) return {};
  mine->parallel.clear();
  for (const TensorRecord& record : mine->records) {
    if (record.rank >= parallel.job_size())
      return fail(Errc::Usage, "parallel " + parallel.text + " is a job of " +
                                   counted(static_cast<size_t>(parallel.job_size()), "rank") +
                                   ", and " + mine->path + " has a rank " +
                                   std::to_string(record.rank));
    if (!mine->parallel.contains(record.rank))
      mine->parallel[record.rank] = parallel.places_of(record.rank);
  }
  return {};
}

}  // namespace

Result<RunPair> open_pair(const std::string& golden, const std::string& mine,
                          const std::string& golden_weights, const ParallelSizes& parallel,
                          Names names) {
  RunPair pair;
  ASSAY_TRY(pair.golden, open_run(golden));
  ASSAY_TRY(pair.mine, open_run(mine));
  ASSAY_TRY_STATUS(tell_parallel(parallel, &pair.mine));
  ASSAY_TRY(pair.notes, lend_weights(&pair.golden, golden_weights));
  if (names == Names::AsTheyAre) return pair;
  for (std::string& note : reconcile(&pair.golden, &pair.mine))
    pair.notes.push_back(std::move(note));
  return pair;
}

}  // namespace assay::run
