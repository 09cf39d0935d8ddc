// SPDX-License-Identifier: Apache-2.0
// How the shards of a tensor on several ranks become the tensor that the other side has.
#pragma once
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "pair/operand.hpp"
#include "tensor/node.hpp"

namespace assay::pair {

struct MergedPair {
  Recipe golden;
  Recipe mine;
  /// A sentence when the merge is doubtful: replicas that differ (with rank and by how much), no
  /// way to make the shapes equal. Empty when all is well.
  std::string problem;
};

/// Decides from shapes first, and from values where shapes leave a choice (replicas or partial
/// sums, concatenation or interleaving): the candidate that is nearest to the other side wins.
/// Shapes count up to axes of size 1 and joined leading axes ([batch, seq, hidden] and [tokens,
/// hidden]).
///
/// golden_shards, mine_shards   records of the same node, role, slot and step, in numeric order of
///                              their ranks; at least one each
[[nodiscard]] MergedPair merge_shards(const run::Run& golden, std::span<const size_t> golden_shards,
                                      const run::Run& mine, std::span<const size_t> mine_shards);

/// What shards of one tensor have in common, whatever their rank.
using ShardKey = std::tuple<int64_t, std::string, Role, std::string, uint32_t, uint32_t>;
[[nodiscard]] ShardKey shard_key(const run::TensorRecord& record);

/// What the ranks of a run hold of each tensor.
class Shards {
 public:
  /// counts  of a record: whether it is one; of several of a rank the first is
  template <typename Counts>
  Shards(const run::Run& run, const Counts& counts) {
    for (size_t i = 0; i < run.records.size(); ++i) {
      if (!counts(run.records[i])) continue;
      std::vector<size_t>& known = records_[shard_key(run.records[i])];
      if (known.empty() || run.records[known.back()].rank != run.records[i].rank)
        known.push_back(i);
    }
  }
  /// Of the tensor that a record of any run is of: records in the order of their ranks.
  [[nodiscard]] const std::vector<size_t>& of(const run::TensorRecord& record) const {
    static const std::vector<size_t> kNone;
    const auto found = records_.find(shard_key(record));
    return found == records_.end() ? kNone : found->second;
  }

 private:
  std::map<ShardKey, std::vector<size_t>> records_;
};

struct WholeTensor {
  Tensor tensor;
  // where it is more than one part after the other: "interleave:0 in 3 blocks of ranks 0,1"
  std::string how;
};
/// The tensor of golden's shape that the shards of all captured ranks make.
///
/// golden   a whole tensor
/// mine     one of the shards
/// errors   Unsupported, with what they are instead | of load_operand()
[[nodiscard]] Result<WholeTensor> load_whole(const run::Run& golden_run, size_t golden,
                                             const run::Run& mine_run, size_t mine);

}  // namespace assay::pair
