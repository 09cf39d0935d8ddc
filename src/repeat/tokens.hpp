// SPDX-License-Identifier: Apache-2.0
// A row whose tokens came in other calls, or behind padding, against the row as a whole: position
// by position.   docs/invariance.md, "Chunks, prefix and padding"
#pragma once
#include <cstdint>
#include <vector>

#include "repeat/leaks.hpp"

namespace assay::repeat {

/// Places on an axis of both sides that hold the same positions of the row.
struct Window {
  int64_t first_size = 1;
  int64_t first_begin = 0;
  int64_t other_size = 1;
  int64_t other_begin = 0;
  int64_t count = 1;
};

/// Two forward calls with positions in common.
struct CallPair {
  int64_t first_step = 0;
  int64_t other_step = 0;
  Window tokens;  // that the calls are given
  Window keys;    // that they attend to, from the first position on
};

/// What the row's operators made in `other`, against the same positions of the row alone.
///
/// An operator is judged when its inputs are known to hold the same values at these positions. Its
/// place is that in `other`. An operator that some module ran more often in one of the calls than
/// in the other has no counterpart there. Whole numbers are not compared, since positions and masks
/// have another meaning in another call; what is computed of them is. Nor are modules of a layer
/// that read and write at places which they compute: experts.
///
/// splits  of the batch of `other`; null: it has the row alone
/// errors  of run::load_tensor()
[[nodiscard]] Result<RowComparison> compare_tokens(const Execution& first, const RowPlace& other,
                                                   const std::vector<CallPair>& calls,
                                                   const Splits* splits);

}  // namespace assay::repeat
