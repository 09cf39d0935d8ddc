// SPDX-License-Identifier: Apache-2.0
// The nodes of a graph and what flows between them, as topology.json.
//   docs/formats/native.md, "ggml"
#pragma once
#include <span>
#include <string>

#include "capture/ggml/engine.hpp"

namespace assay::capture::ggml {

struct TopologyNode {
  const EngineTensor* tensor = nullptr;
  std::string name;       // as records name it: "norm-0::ggml.rms_norm.1"
  std::string type;       // "ggml.rms_norm"
  std::string arguments;  // a JSON object
  bool writes = false;    // puts something new into memory that it does not own
};

/// nodes   in the order of the graph. A source in memory that an earlier node has written comes
///         from that node, although no pointer says so: what reads a cache comes after SET_ROWS. No
///         node is its own source.
[[nodiscard]] std::string topology_json(const Engine& engine, std::span<const TopologyNode> nodes);

}  // namespace assay::capture::ggml
