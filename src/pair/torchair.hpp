// SPDX-License-Identifier: Apache-2.0
// Pairs between dumps of graph mode: GE against FX, GE against GE (fused against unfused).
#pragma once
#include <string>
#include <vector>

#include "pair/ge_graph.hpp"
#include "pair/match.hpp"

namespace assay::pair {

/// One report: a graph on a rank.
struct GraphMatching {
  int rank = -1;  // -1: the dump has no rank folders
  int graph = 0;  // place among the graphs of the process
  Matching matching;
};

/// A graph before the passes, or what comes next to it, with the metadata of the others. A text that
/// cannot be read is named, and names of operators tell what they can.
[[nodiscard]] GeGraph read_graph(const run::Run& run, int rank, uint32_t graph,
                                 std::vector<std::string>* warnings);

/// True when mine is a dump of GE with its graph text, so that these rules apply.
[[nodiscard]] bool is_torchair_pair(const run::Run& golden, const run::Run& mine);

/// errors  Usage ("No common rank data in golden_path and my_path.")
[[nodiscard]] Result<std::vector<GraphMatching>> match_torchair(const run::Run& golden,
                                                                const run::Run& mine,
                                                                const UserRules& user,
                                                                const MatchOptions& options);

}  // namespace assay::pair
