// SPDX-License-Identifier: Apache-2.0
#include "run/pair.hpp"

#include "run/common_names.hpp"
#include "run/execution_order.hpp"

namespace assay::run {

std::vector<std::string> reconcile(Run* golden, Run* mine) {
  std::vector<std::string> notes = use_common_names(golden, mine);
  share_execution_order(golden, mine);
  return notes;
}

Result<RunPair> open_pair(const std::string& golden, const std::string& mine) {
  RunPair pair;
  ASSAY_TRY(pair.golden, open_run(golden));
  ASSAY_TRY(pair.mine, open_run(mine));
  pair.notes = reconcile(&pair.golden, &pair.mine);
  return pair;
}

}  // namespace assay::run
