// SPDX-License-Identifier: Apache-2.0
// Tensors that all ranks should hold alike, and do not.
#pragma once
#include <atomic>

#include "locate/program/finding.hpp"

namespace assay::locate {

/// The first output, of each step, that is replicated and differs between ranks. Replicated is what
/// golden's ranks hold alike; with a golden of one rank, what at least one rank has as golden has
/// it, whole, to kReplicaDifference: parts of a sum are not. Ranks in other stages of a pipeline, with
/// other experts, other parts of a sequence or other inputs share nothing; a golden of one rank tells
/// only of ranks whose inputs are known to be equal.
///
/// returns  at most one finding; none for runs of one rank
/// errors   Interrupted
[[nodiscard]] Result<std::vector<Finding>> find_rank_divergence(
    const run::Run& golden, const run::Run& mine, const std::atomic<bool>* interrupted);

}  // namespace assay::locate
