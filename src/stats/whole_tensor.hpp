// SPDX-License-Identifier: Apache-2.0
// What the offline tools compute of a whole tensor, which may have many gigabytes: Ctrl-C must not
// wait for it. Inside an InterruptScope whose flag is set these functions end within a block, and
// what they return then is thrown away.
#pragma once
#include "stats/digest.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::stats {

/// What compute_stats() gives, bit for bit.
[[nodiscard]] TensorStats statistics_of(const TensorView& view);
/// What digest() gives.
[[nodiscard]] Digest digest_of(const TensorView& view);

}  // namespace assay::stats
