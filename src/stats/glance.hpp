// SPDX-License-Identifier: Apache-2.0
// Was this memory written since? Without reading all of it.
#pragma once
#include <cstdint>

#include "base/bytes.hpp"

namespace assay::stats {

/// A hash of a sample of some memory, to notice that it was written since; never 0. All bytes of up
/// to 16 KiB. Of larger ones a line of 64 bytes at a random place of each piece; a piece has 1 KiB,
/// or more where that would be over 512 lines and one for each 128 KiB. A write that changes all of n
/// consecutive bytes is missed with a probability of at most (1 - n / (2 piece))^2, as it is when it
/// lies half in each of two pieces; from two pieces on never.
[[nodiscard]] uint64_t glance(ByteSpan bytes);

}  // namespace assay::stats
