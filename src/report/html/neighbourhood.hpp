// SPDX-License-Identifier: Apache-2.0
// The producers and consumers around one node of a run, few enough to be drawn, and those of single
// tensors as lists.   docs/formats/page.md, "Graph and links"
#pragma once
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "locate/verdict/locate.hpp"
#include "report/html/data_flow.hpp"

namespace assay::report::html {

/// Who made a tensor, or reads it.
struct FlowLink {
  uint32_t node = kNoIndex;  // index into DataFlow::nodes; kNoIndex: a parameter
  uint32_t value = kNoIndex;
  std::string slot;            // that the value has at the consumer
  uint32_t record = kNoIndex;  // the tensor at the other end of the link
};

struct NeighbourhoodLimits {
  size_t hops = 3;    // from the centre
  size_t nodes = 60;  // with parameters
  size_t fan = 8;     // producers, or consumers, that are drawn at one node
};

/// A node of the drawing: an execution of the flow, or a parameter.
struct NeighbourNode {
  uint32_t node = kNoIndex;   // index into DataFlow::nodes; kNoIndex: a parameter
  uint32_t value = kNoIndex;  // of a parameter: index into DataFlow::values
  uint32_t hops = 0;          // from the centre
  size_t more_producers = 0;  // that are not drawn
  size_t more_consumers = 0;
};

struct NeighbourEdge {
  size_t from = 0;  // indices into Neighbourhood::nodes
  size_t to = 0;
  std::string slot;           // of the consumer: "self"
  uint32_t value = kNoIndex;  // what flows: index into DataFlow::values
};

struct Neighbourhood {
  std::vector<NeighbourNode> nodes;  // the centre first, then by distance; empty: see `reason`
  std::vector<NeighbourEdge> edges;
  std::string reason;  // why there is no graph, one clause
};

/// Nodes that run inside each other are never drawn beside each other: around an operator there are
/// operators, around a module there are modules.
///
/// centre  index into flow.nodes; nothing: there is none, and the result says so
[[nodiscard]] Neighbourhood neighbourhood(const DataFlow& flow, std::optional<uint32_t> centre,
                                          const NeighbourhoodLimits& limits = {});

/// The node of a record; of a parameter the first that reads it.
[[nodiscard]] std::optional<uint32_t> node_of(const DataFlow& flow, size_t record);
/// The node that a finding is about: that of its tensor, else of its name, else of its module.
[[nodiscard]] std::optional<uint32_t> node_of(const DataFlow& flow, const locate::Finding& finding);

struct RecordLinks {
  std::vector<FlowLink> producers;
  std::vector<FlowLink> consumers;
  size_t more_producers = 0;  // beyond the limit
  size_t more_consumers = 0;
};

/// Of an output: what its node computed it from, and who reads it. Of an input: who made it, and
/// who else reads it. Of a parameter: who reads it.
[[nodiscard]] RecordLinks links_of(const DataFlow& flow, size_t record, size_t limit = 8);

/// What a report has about a record.
struct RecordRow {
  int64_t row = 0;
  locate::RowJudgement verdict = locate::RowJudgement::None;
};
using RecordRows = std::unordered_map<size_t, RecordRow>;  // by index into Run::records

/// The object "graph" of a page.
[[nodiscard]] std::string neighbourhood_json(const DataFlow& flow, const Neighbourhood& around,
                                             const RecordRows& rows);
/// The object "links" of a tensor.
[[nodiscard]] std::string links_json(const DataFlow& flow, size_t record, const RecordLinks& links,
                                     const RecordRows& rows);

}  // namespace assay::report::html
