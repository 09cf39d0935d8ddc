// SPDX-License-Identifier: Apache-2.0
// Pairs of tensors that names and tables do not give: found by what is in them.
#pragma once
#include <atomic>
#include <cstddef>
#include <span>
#include <vector>

#include "run/run.hpp"

namespace assay::pair {

struct ValuePair {
  size_t golden = 0;  // index into the records of the run
  size_t mine = 0;
  double confidence = 0;  // (0, 1]
  bool by_place = false;  // type, shape and place decided, not what the tensors hold
};

struct ValueMatchOptions {
  int jobs = 0;  // <= 0: one per core; never changes the result
  const std::atomic<bool>* interrupted = nullptr;
};

/// Pairs records of one rank and token, one to one. A pair needs equal element counts and roles,
/// and fingerprints (norm, mean, fixed random projections; of records without data their
/// statistics) that agree within what low precision explains and fit no other candidate as well.
/// Tensors with the same content pair in execution order when both sides have as many of them.
/// Among what is left, type and shape signature and the place between pairs that are sure decide,
/// with a lower confidence. When in doubt a record stays alone.
///
/// golden, mine   candidates, in execution order; those in `anchors` are pairs already known, which
///                bound where the others can be
/// returns        in the order of the run under test
[[nodiscard]] std::vector<ValuePair> match_by_value(const run::Run& golden,
                                                    std::span<const size_t> golden_candidates,
                                                    const run::Run& mine,
                                                    std::span<const size_t> mine_candidates,
                                                    std::span<const ValuePair> anchors,
                                                    const ValueMatchOptions& options);

}  // namespace assay::pair
