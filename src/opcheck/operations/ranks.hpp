// SPDX-License-Identifier: Apache-2.0
// The executions of a collective on all ranks.
#pragma once
#include <cstdint>
#include <vector>

#include "opcheck/operation.hpp"

namespace assay::opcheck {

/// All ranks' executions of one operation, and which of them this one is.
struct Ranks {
  std::vector<Case::Peer> peers;
  int64_t own = 0;
  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(peers.size()); }
};

/// errors  Invalid (rank, rankSize) | NotFound (ranks that the dump lacks) | of Case::peers
[[nodiscard]] Result<Ranks> ranks_of(const Case& one);

}  // namespace assay::opcheck
