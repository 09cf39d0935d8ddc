// SPDX-License-Identifier: Apache-2.0
// What is to be recorded of a graph, decided at its first node: names, occurrences, parameters,
// which nodes are wanted, and the text of their lines.
#pragma once
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/ggml/graph_lines.hpp"
#include "capture/ggml/session.hpp"

namespace assay::capture::ggml {

/// Small: all of them are looked at in each call.
struct PlannedNode {
  const EngineTensor* tensor = nullptr;
  uint32_t first_line = 0;
  uint32_t line_end = 0;
  uint32_t first_read = 0;  // in GraphPlan::reads
  uint32_t read_end = 0;
  uint32_t first_late = 0;  // in GraphPlan::late_reads
  uint32_t late_end = 0;
  int32_t slot = -1;     // of the result's content
  bool alias = false;    // RESHAPE, VIEW, PERMUTE, TRANSPOSE: moves no data
  bool wanted = false;   // passes the filters, and the engine computes it
  bool is_stop = false;  // where a graph that runs in the order of its nodes is stopped
};

/// Borrows the tensors of the graph; a graph that is built anew may put other ones at the same
/// addresses.
struct GraphPlan {
  Session* session = nullptr;
  const Settings* settings = nullptr;
  const Engine* engine = nullptr;
  std::vector<PlannedNode> nodes;
  // Slots of inputs, by the node that needs them first: before it is computed.
  std::vector<uint32_t> reads;
  // What nodes read of caches, after them: all that writes there has run then.
  std::vector<uint32_t> late_reads;
  std::shared_ptr<const GraphLines> lines;
  std::unordered_map<const EngineTensor*, uint32_t> index;
  uint64_t wanted = 0;
  uint64_t not_computed = 0;
  /// The order in which the engine computes the nodes: seen in the first call, which stops at each.
  enum class Order : uint8_t { Unknown, OfGraph, Another } order = Order::Unknown;

  /// Whether the graph is still the one that was planned: some ten microseconds.
  [[nodiscard]] bool still_holds(EngineGraph* graph) const;

  struct Watched {
    const EngineTensor* tensor;
    uint64_t hash;
  };
  std::vector<uint64_t> hashes;  // of the bytes of every node
  std::vector<Watched> watched;  // leaves whose memory is read or whose values change
  // That unnamed nodes are called after.
  std::vector<std::pair<const EngineTensor*, std::string>> names;
  uint64_t written_leaves = 0;  // Session::written_leaves() when it was made
};

/// prefix   in front of every name: "" or "sched1/". Takes the session's lock.
[[nodiscard]] std::shared_ptr<GraphPlan> plan_graph(Session* session, const Settings* settings,
                                                    const Engine* engine, EngineGraph* graph,
                                                    const std::string& prefix);

/// The name of a copy between back ends, "CPU#inp_tokens#0", without what was put around it.
[[nodiscard]] std::string_view origin_name(std::string_view name);
/// "node_12", "leaf_3" and "": numbers that differ from graph to graph.
[[nodiscard]] bool is_unnamed(std::string_view name);

}  // namespace assay::capture::ggml
