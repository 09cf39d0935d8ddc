// SPDX-License-Identifier: Apache-2.0
// What differs between two structures: operations added, removed, with other parameters, or wired
// otherwise.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "topology/graph.hpp"

namespace assay::pair {

enum class DifferenceKind : uint8_t { Added, Removed, ChangedParameters, Rewired };
[[nodiscard]] std::string_view difference_name(
    DifferenceKind kind);  // "added" "removed" "parameters" "wiring"

struct ParameterChange {
  std::string name;
  // as written, with the name of an enumeration: "8 (ADD)"; empty when absent there
  std::string golden;
  std::string mine;
  bool in_golden = true;
  bool in_mine = true;
};

struct Difference {
  DifferenceKind kind = DifferenceKind::Added;
  std::string golden;  // the node's name on each side, empty where it does not exist
  std::string mine;
  std::string type;
  std::string inside;  // the graph that holds it, golden's name where it has one
  std::vector<ParameterChange> parameters;  // ChangedParameters
  std::string detail;                       // Rewired: one sentence
};

struct GraphDiff {
  std::vector<Difference> differences;  // in golden's order, additions where they stand
  // indices of nodes that stand for each other
  std::vector<std::pair<uint32_t, uint32_t>> same_nodes;
};

/// Nodes are the same when they have the same type and stand at the same place among their
/// siblings, as an alignment of both lists finds it; their names and ids may differ. A graph that
/// was added or removed is one difference, its operations are not listed.
[[nodiscard]] GraphDiff graph_diff(const topology::Graph& golden, const topology::Graph& mine);

}  // namespace assay::pair
