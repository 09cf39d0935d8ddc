// SPDX-License-Identifier: Apache-2.0
// What is to be recorded of a graph, decided before it runs: names, occurrences, parameters, which nodes are wanted.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/ggml/session.hpp"

namespace assay::capture::ggml {

struct PlannedNode {
  const EngineTensor* tensor = nullptr;
  const writer::RecordNode* node = nullptr;
  const std::string* operation = nullptr;  // "ggml.mul_mat"
  uint32_t occurrence = 0;                 // of the operation among the nodes of that name
  bool alias = false;                      // RESHAPE, VIEW, PERMUTE, TRANSPOSE: moves no data
  bool computed = true;  // false: the engine skips it, and its memory means nothing
  bool wanted = false;   // passes the filters
  std::string arguments;
  const EngineTensor* named_after = nullptr;  // the source that an unnamed node is called after
  std::string name_of_that;
};

/// Borrows the tensors of the graph; a graph that is built anew may put other ones at the same addresses.
struct GraphPlan {
  Session* session = nullptr;
  const Settings* settings = nullptr;
  const Engine* engine = nullptr;
  std::vector<PlannedNode> nodes;
  std::vector<std::byte> snapshot;  // of every tensor, to tell a graph that is used again
  std::unordered_map<const EngineTensor*, size_t> index;
  uint64_t wanted = 0;
  uint64_t not_computed = 0;

  /// Whether the graph is still the one that was planned: a few microseconds.
  [[nodiscard]] bool still_holds(EngineGraph* graph) const;
};

/// prefix   in front of every name: "" or "sched1/". Takes the session's lock.
[[nodiscard]] std::shared_ptr<const GraphPlan> plan_graph(Session* session,
                                                          const Settings* settings,
                                                          const Engine* engine, EngineGraph* graph,
                                                          const std::string& prefix);

/// The name of a copy between back ends, "CPU#inp_tokens#0", without what was put around it.
[[nodiscard]] std::string_view origin_name(std::string_view name);
/// "node_12", "leaf_3" and "": numbers that differ from graph to graph.
[[nodiscard]] bool is_unnamed(std::string_view name);

}  // namespace assay::capture::ggml
