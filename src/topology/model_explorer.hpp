// SPDX-License-Identifier: Apache-2.0
// A graph as Google Model Explorer's JSON: nesting as namespaces, node ids equal to the operations'
// ids in the dump. docs/formats/model-explorer.md
#pragma once
#include <string>

#include "topology/graph.hpp"

namespace assay::topology {

/// A graph collection with one graph of the nodes of `level`. Bytes depend on the arguments only.
[[nodiscard]] std::string model_explorer_json(const Graph& graph, int level = -1);

}  // namespace assay::topology
