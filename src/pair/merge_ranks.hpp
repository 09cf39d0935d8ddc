// SPDX-License-Identifier: Apache-2.0
// How the shards of a tensor on several ranks become the tensor that the other side has.
#pragma once
#include <span>
#include <string>

#include "pair/operand.hpp"

namespace assay::pair {

struct MergedPair {
  Recipe golden;
  Recipe mine;
  /// A sentence when the merge is doubtful: replicas that differ (with rank and by how much), no way
  /// to make the shapes equal. Empty when all is well.
  std::string problem;
};

/// Decides from shapes first, and from values where shapes leave a choice (replicas or partial sums,
/// concatenation or interleaving): the candidate that is nearest to the other side wins. Shapes count
/// up to axes of size 1 and joined leading axes ([batch, seq, hidden] and [tokens, hidden]).
///
/// golden_shards, mine_shards   records of the same node, role, slot and step, in numeric order of
///                              their ranks; at least one each
[[nodiscard]] MergedPair merge_shards(const run::Run& golden, std::span<const size_t> golden_shards,
                                      const run::Run& mine, std::span<const size_t> mine_shards);

}  // namespace assay::pair
