// SPDX-License-Identifier: Apache-2.0
// A graph as a weight-less ONNX model for viewers and tools. Bytes depend on the arguments only.
// What becomes what: docs/formats/onnx.md
#pragma once
#include <string>

#include "topology/graph.hpp"

namespace assay::topology {

struct OnnxOptions {
  int level = -1;                // as nodes_at_level(); the flat form only
  bool hierarchical = false;     // every graph node becomes a local function
  bool share_functions = false;  // hierarchical: graphs that differ in their numbers only share one
  bool compat_attributes = false;  // attributes as the original wrote them: FLOATS and STRINGS only
  std::string document = {};       // graph.doc_string: where the file comes from
};

/// A ModelProto of IR version 8 with every name written once, every graph input and output typed,
/// and the operator sets "atb" and "atb.graph", of the graph engine's graphs "ge" and "ge.graph".
[[nodiscard]] std::string onnx_model(const Graph& graph, const OnnxOptions& options);

}  // namespace assay::topology
