// SPDX-License-Identifier: Apache-2.0
// The neighbourhood as the page gets it.   docs/formats/page.md, "Graph and links"
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "report/html/neighbourhood.hpp"
#include "run/load.hpp"

namespace assay::report::html {
namespace {

using Json = nlohmann::ordered_json;
using locate::RowJudgement;

// Names come from files and need not be UTF-8.
std::string text(std::string_view raw) { return printable(raw); }

std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Unique in one flow: nodes and parameters are numbered apart.
std::string id_of(uint32_t node, uint32_t value) {
  return node != kNoIndex ? "n" + std::to_string(node) : "v" + std::to_string(value);
}

/// "float32 [4, 64]"; some layouts only say it in the file itself.
std::string type_of(const run::Run& run, uint32_t record) {
  if (record == kNoIndex) return {};
  run::TensorRecord one = run.records[record];
  if ((!one.dtype || !one.shape) && one.bytes && !run::load_header(one)) return {};
  std::string out(one.dtype ? name(*one.dtype) : std::string_view());
  if (one.shape) out += (out.empty() ? "" : " ") + shape_text(*one.shape);
  return out;
}

/// What flows there, as the consumer has it, else as it was made.
std::string label_of(const DataFlow& flow, uint32_t value, uint32_t consumer,
                     const std::string& slot) {
  const FlowValue& one = flow.values[value];
  if (consumer != kNoIndex) {
    for (const FlowPort& port : flow.nodes[consumer].inputs) {
      if (port.value != value || port.record == kNoIndex) continue;
      if (flow.run->records[port.record].slot != slot) continue;
      if (std::string known = type_of(*flow.run, port.record); !known.empty()) return known;
    }
  }
  for (const FlowPlace& maker : one.makers) {
    const uint32_t record = flow.nodes[maker.node].outputs[maker.port].record;
    if (std::string known = type_of(*flow.run, record); !known.empty()) return known;
  }
  if (std::string known = type_of(*flow.run, one.record); !known.empty()) return known;
  return one.type;
}

/// The row of a node: of its outputs, else of its inputs, the first that something is said of.
const RecordRow* row_of(const std::vector<FlowPort>& ports, const RecordRows& rows) {
  const RecordRow* first = nullptr;
  for (const FlowPort& port : ports) {
    const auto found = port.record == kNoIndex ? rows.end() : rows.find(port.record);
    if (found == rows.end()) continue;
    if (found->second.verdict != RowJudgement::None) return &found->second;
    if (first == nullptr) first = &found->second;
  }
  return first;
}

const RecordRow* row_of(const DataFlow& flow, uint32_t node, uint32_t value,
                        const RecordRows& rows) {
  if (node == kNoIndex) return row_of({{flow.values[value].record, value}}, rows);
  const RecordRow* row = row_of(flow.nodes[node].outputs, rows);
  return row != nullptr ? row : row_of(flow.nodes[node].inputs, rows);
}

void set_row(const RecordRow* row, Json* json) {
  (*json)["row"] = row == nullptr ? Json(nullptr) : Json(row->row);
  (*json)["verdict"] = judgement_name(row == nullptr ? RowJudgement::None : row->verdict);
}

std::string_view leaf_name(FlowLeaf leaf) {
  if (leaf == FlowLeaf::Parameter) return "parameter";
  return leaf == FlowLeaf::Input ? "input" : "";
}

/// What a node and a link have in common.
Json end_json(const DataFlow& flow, uint32_t node, uint32_t value) {
  Json json;
  json["id"] = id_of(node, value);
  if (node == kNoIndex) {
    json["name"] = text(flow.values[value].name);
    json["type"] = leaf_name(flow.values[value].leaf);
  } else {
    json["name"] = text(flow.nodes[node].name);
    json["type"] = text(flow.nodes[node].type);
  }
  return json;
}

Json node_json(const DataFlow& flow, const NeighbourNode& node, const RecordRows& rows) {
  Json json = end_json(flow, node.node, node.value);
  const bool is_leaf = node.node == kNoIndex;
  json["module"] = is_leaf ? Json(nullptr) : Json(text(flow.nodes[node.node].module));
  json["step"] = is_leaf ? Json(nullptr) : Json(flow.nodes[node.node].step);
  json["rank"] = is_leaf ? Json(nullptr) : Json(flow.nodes[node.node].rank);
  json["call"] = is_leaf ? Json(nullptr) : Json(flow.nodes[node.node].call);
  set_row(row_of(flow, node.node, node.value, rows), &json);
  json["more_producers"] = node.more_producers;
  json["more_consumers"] = node.more_consumers;
  json["leaf"] = is_leaf;
  return json;
}

Json link_json(const DataFlow& flow, const FlowLink& link, const RecordRows& rows,
               uint32_t consumer) {
  Json json = end_json(flow, link.node, link.node == kNoIndex ? link.value : kNoIndex);
  json["slot"] = text(link.slot);
  json["label"] = label_of(flow, link.value, consumer, link.slot);
  const auto own = link.record == kNoIndex ? rows.end() : rows.find(link.record);
  set_row(own != rows.end() ? &own->second : row_of(flow, link.node, link.value, rows), &json);
  return json;
}

}  // namespace

std::string neighbourhood_json(const DataFlow& flow, const Neighbourhood& around,
                               const RecordRows& rows) {
  const auto id = [&](size_t place) {
    return id_of(around.nodes[place].node, around.nodes[place].value);
  };
  Json json;
  json["centre"] = around.nodes.empty() ? Json(nullptr) : Json(id(0));
  json["basis"] = basis_name(flow.basis);
  json["reason"] = around.reason.empty() ? Json(nullptr) : Json(text(around.reason));
  json["nodes"] = Json::array();
  for (const NeighbourNode& node : around.nodes)
    json["nodes"].push_back(node_json(flow, node, rows));
  json["edges"] = Json::array();
  for (const NeighbourEdge& edge : around.edges) {
    json["edges"].push_back(
        {{"from", id(edge.from)},
         {"to", id(edge.to)},
         {"slot", text(edge.slot)},
         {"label", label_of(flow, edge.value, around.nodes[edge.to].node, edge.slot)}});
  }
  return dumped(json);
}

std::string links_json(const DataFlow& flow, size_t record, const RecordLinks& links,
                       const RecordRows& rows) {
  const uint32_t own = record < flow.node_of_record.size() ? flow.node_of_record[record] : kNoIndex;
  Json json;
  json["producers"] = Json::array();
  for (const FlowLink& link : links.producers)
    json["producers"].push_back(link_json(flow, link, rows, own));
  json["consumers"] = Json::array();
  for (const FlowLink& link : links.consumers)
    json["consumers"].push_back(link_json(flow, link, rows, link.node));
  json["more_producers"] = links.more_producers;
  json["more_consumers"] = links.more_consumers;
  return dumped(json);
}

}  // namespace assay::report::html
