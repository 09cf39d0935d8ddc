// SPDX-License-Identifier: Apache-2.0
#include "compare/match/torchair.hpp"

namespace assay::compare {

bool is_torchair_pair(const run::Run&, const run::Run&) { return false; }

Result<std::vector<GraphMatching>> match_torchair(const run::Run&, const run::Run&,
                                                  const MatchOptions&) {
  return std::vector<GraphMatching>{};
}

}  // namespace assay::compare
