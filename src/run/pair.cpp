// SPDX-License-Identifier: Apache-2.0
#include "run/pair.hpp"

#include "run/common_names.hpp"
#include "run/execution_order.hpp"
#include "run/lend.hpp"
#include "run/local_numbers.hpp"

namespace assay::run {

std::vector<std::string> reconcile(Run* golden, Run* mine) {
  std::vector<std::string> notes;
  for (const auto& [run, side] : {std::pair(golden, "golden: "), std::pair(mine, "mine: ")})
    if (const std::string note = number_stages_on(run); !note.empty()) notes.push_back(side + note);
  for (std::string& note : number_experts_on(golden, mine)) notes.push_back(std::move(note));
  for (std::string& note : use_common_names(golden, mine)) notes.push_back(std::move(note));
  share_execution_order(golden, mine);
  for (const auto& [borrower, lender] : {std::pair(golden, mine), std::pair(mine, golden)})
    for (std::string& note : lend_values(borrower, *lender)) notes.push_back(std::move(note));
  return notes;
}

Result<RunPair> open_pair(const std::string& golden, const std::string& mine,
                          const std::string& golden_weights) {
  RunPair pair;
  ASSAY_TRY(pair.golden, open_run(golden));
  ASSAY_TRY(pair.mine, open_run(mine));
  ASSAY_TRY(pair.notes, lend_weights(&pair.golden, golden_weights));
  for (std::string& note : reconcile(&pair.golden, &pair.mine))
    pair.notes.push_back(std::move(note));
  return pair;
}

}  // namespace assay::run
