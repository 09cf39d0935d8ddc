// SPDX-License-Identifier: Apache-2.0
// Which ranks of two runs are compared with each other.
#pragma once
#include <set>
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::pair {

/// Ranks of golden and of mine that hold the same tensors, or shards of the same tensors.
/// Ascending.
struct RankGroup {
  std::vector<int> golden;
  std::vector<int> mine;
  /// A replica with golden's inputs: another one is compared with these ranks of golden, too.
  bool is_again = false;
};

struct RankAlignment {
  std::vector<RankGroup> groups = {};
  std::string problem = {};             // why there is no group; empty when a run has no records
  std::vector<std::string> notes = {};  // one sentence for each side that has ranks of its own

  /// Groups with different numbers of ranks hold shards of the same tensors, or ranks are missing.
  /// Shapes decide.
  [[nodiscard]] bool may_be_shards() const;
  [[nodiscard]] bool has_replicas() const;
  /// The first rank that is compared, of each side; 0 when there is none.
  [[nodiscard]] int first_golden() const { return groups.empty() ? 0 : groups[0].golden[0]; }
  [[nodiscard]] int first_mine() const { return groups.empty() ? 0 : groups[0].mine[0]; }
};

/// Where the groups of a job are known (run::Run::parallel), each stage of a pipeline is compared
/// with its like, or with all of a model that has no stages; replicas of equal numbers, or with a
/// model that has none all that were given its inputs, as far as they were captured, and the first
/// one where none were.
///
/// wanted  the user's; empty: ranks of equal numbers. Runs of one process each are the same
///         process, whatever its number.
[[nodiscard]] RankAlignment align_ranks(const run::Run& golden, const run::Run& mine,
                                        const std::vector<int>& wanted);

[[nodiscard]] std::set<int> ranks_of(const run::Run& run);
/// The rank of the first operand: the first one that the user did not leave out. 0 when there is
/// none.
[[nodiscard]] int first_rank(const run::Run& run);
/// "ranks 1, 2 are in mine only", of numbers that the other side does not have; empty: there is
/// none, and nothing to say.
template <typename Number>
[[nodiscard]] std::string only_in(const std::string& side, const std::string& noun,
                                  const std::set<Number>& numbers) {
  if (numbers.empty()) return {};
  std::string text = numbers.size() == 1 ? noun + " " : noun + "s ";
  for (const Number number : numbers)
    text += (number == *numbers.begin() ? "" : ", ") + std::to_string(number);
  return text + (numbers.size() == 1 ? " is in " : " are in ") + side + " only";
}
/// The same of ranks that `compared` does not have.
[[nodiscard]] std::string missing_ranks(const std::set<int>& ranks, const std::set<int>& compared,
                                        const std::string& side);

}  // namespace assay::pair
