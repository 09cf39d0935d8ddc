// SPDX-License-Identifier: Apache-2.0
// A comparison of many ranks at a glance: which ranks differ from golden otherwise than their peers
// do, which hold the same tensors of the model. docs/scale.md
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compare/compare.hpp"

namespace assay::report {

/// The error of a row: relative L2, of statistics the relative error of the L2 norm; 0 where both
/// sides are equal, NaN where nothing was compared.
[[nodiscard]] double error_of(const compare::Row& row);

struct RankErrors {
  int rank = 0;
  size_t pairs = 0;
  size_t different = 0;
  size_t unreadable = 0;
  double worst = 0;  // the largest error
  /// Rows whose error is so many times the median of all ranks at the same place as those of
  /// healthy ranks are not (RankSummary::beside_factor).
  size_t beside_peers = 0;
  /// The first of them in execution order; null: none.
  const compare::Row* first_beside = nullptr;
  double peers_there = 0;  // the median at that place
};

struct RankSummary {
  /// So many times the median at its place is an error that healthy ranks of the job do not have.
  double beside_factor = 0;
  /// Those that differ from their peers, by rank.
  std::vector<RankErrors> beside;
  size_t peers = 0;      // ranks that do not
  RankErrors all_peers;  // what they are together; `rank` means nothing
  /// "rank 517 differs from its 1023 peers, from layers.20.mlp output of step 0 on"; of several
  /// ranks what they have in common, as far as `parallel` tells: "the 4 ranks of tp 5".
  std::string sentence;
};

/// Nothing for less than three ranks, of which none has peers. Rows are those of the last sheet,
/// which shows most. A rank is said to differ from its peers when 5 % of its rows do, or one where
/// most of them have no error at all.
///
/// parallel   places of ranks in the groups of the job
[[nodiscard]] std::optional<RankSummary> summarise_ranks(
    const compare::Comparison& comparison, const std::map<int, native::ParallelPlaces>& parallel);

/// "tp 5, dp 64": the places of a rank in groups of more than one; empty when they are not known.
[[nodiscard]] std::string places_text(const std::map<int, native::ParallelPlaces>& parallel,
                                      int rank);

}  // namespace assay::report
