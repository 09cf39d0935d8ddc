// SPDX-License-Identifier: Apache-2.0
// Values that the ranks of mine hold in parts, as the tensors that golden has.
#pragma once
#include "locate/program/pairing.hpp"
#include "locate/program/program.hpp"

namespace assay::locate {

/// Relative L2 against golden up to which what a rank holds counts as the whole tensor: a part of a
/// sum is further away.
inline constexpr double kReplicaDifference = 0.1;

/// Finds, where golden is a single process and mine several, which inputs and outputs of paired
/// module calls are cut over the ranks, partial sums or replicas, and how they become golden's
/// tensors: `is_shared`, `joined` and `joined_parts` of `mine`. Parts that do not fit together stay
/// what they are.
void join_shards(const Program& golden, const Pairing& pairing, Program* mine);

}  // namespace assay::locate
