// SPDX-License-Identifier: Apache-2.0
// The graph is the neighbourhood of the suspect or, without one, of the worst record. In large runs
// only records in it, and those that must, have links.
#include "report/html/flow_blobs.hpp"

#include <algorithm>

namespace assay::report::html {
namespace {

// Of more records than these only some have links: they would outweigh the table.
constexpr size_t kMostLinked = 4000;

std::optional<uint32_t> centre_of(const DataFlow& flow, const FlowOfPage& input) {
  if (input.suspect != nullptr) {
    if (const std::optional<uint32_t> node = node_of(flow, *input.suspect)) return node;
  }
  return input.worst_record ? node_of(flow, *input.worst_record) : std::nullopt;
}

/// Records of the nodes that are drawn no further from the centre than that.
std::vector<size_t> records_of(const DataFlow& flow, const Neighbourhood& around, uint32_t hops) {
  std::vector<size_t> records;
  const auto add = [&](const std::vector<FlowPort>& ports) {
    for (const FlowPort& port : ports) {
      if (port.record != kNoIndex) records.push_back(port.record);
    }
  };
  for (const NeighbourNode& node : around.nodes) {
    if (node.hops > hops) continue;
    if (node.node == kNoIndex) {
      if (flow.values[node.value].record != kNoIndex)
        records.push_back(flow.values[node.value].record);
      continue;
    }
    add(flow.nodes[node.node].inputs);
    add(flow.nodes[node.node].outputs);
  }
  return records;
}

std::string links_text(const DataFlow& flow, const std::vector<size_t>& records,
                       const RecordRows& rows) {
  std::string out;
  for (const size_t record : records) {
    const RecordLinks links = links_of(flow, record);
    if (links.producers.empty() && links.consumers.empty()) continue;
    out += (out.empty() ? "{\"" : ",\"") + std::to_string(rows.at(record).row) +
           "\":" + links_json(flow, record, links, rows);
  }
  return out.empty() ? out : out + "}";
}

}  // namespace

std::vector<size_t> add_flow(const FlowOfPage& input, const RecordRows& rows,
                             std::vector<Blob>* blobs) {
  if (rows.empty()) return {};
  const DataFlow flow = data_flow(input.mine);
  const Neighbourhood around = neighbourhood(flow, centre_of(flow, input));
  if (!around.nodes.empty()) blobs->push_back({"graph", neighbourhood_json(flow, around, rows)});
  std::vector<size_t> linked = input.records;
  if (linked.size() > kMostLinked) {
    linked = records_of(flow, around, UINT32_MAX);
    linked.insert(linked.end(), input.always.begin(), input.always.end());
  }
  std::erase_if(linked, [&](size_t record) { return !rows.contains(record); });
  std::ranges::sort(linked);
  const auto repeated = std::ranges::unique(linked);
  linked.erase(repeated.begin(), repeated.end());
  if (std::string links = links_text(flow, linked, rows); !links.empty())
    blobs->push_back({"links", std::move(links)});
  return records_of(flow, around, 1);
}

}  // namespace assay::report::html
