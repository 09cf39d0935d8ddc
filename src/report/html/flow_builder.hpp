// SPDX-License-Identifier: Apache-2.0
// The parts that a data flow is made of; for the files that make one.
#pragma once
#include <string>
#include <utility>

#include "report/html/data_flow.hpp"

namespace assay::report::html {

class FlowBuilder {
 public:
  FlowBuilder(const run::Run& run, FlowBasis basis) {
    flow_.run = &run;
    flow_.basis = basis;
    flow_.node_of_record.assign(run.records.size(), kNoIndex);
    flow_.value_of_record.assign(run.records.size(), kNoIndex);
  }

  [[nodiscard]] DataFlow& flow() { return flow_; }
  [[nodiscard]] FlowNode& node(uint32_t index) { return flow_.nodes[index]; }
  [[nodiscard]] FlowValue& value(uint32_t index) { return flow_.values[index]; }

  uint32_t add_node(FlowNode node) {
    flow_.nodes.push_back(std::move(node));
    return static_cast<uint32_t>(flow_.nodes.size() - 1);
  }
  uint32_t add_value(std::string name = {}, FlowLeaf leaf = FlowLeaf::None) {
    FlowValue value;
    value.name = std::move(name);
    value.leaf = leaf;
    flow_.values.push_back(std::move(value));
    return static_cast<uint32_t>(flow_.values.size() - 1);
  }

  /// The port of a node has this value, which it reads.
  void read(FlowPlace place, uint32_t value) {
    set(&node(place.node).inputs[place.port], value);
    flow_.values[value].users.push_back(place);
  }
  /// The port of a node has this value; whether it made it is another question.
  void show(FlowPlace place, uint32_t value) { set(&node(place.node).outputs[place.port], value); }
  /// A parameter that nobody is seen to read.
  void hold(uint32_t node, uint32_t value) {
    flow_.nodes[node].parameters.push_back(value);
    flow_.values[value].users.push_back({node, kNoIndex});
  }
  void make(FlowPlace place, uint32_t value) {
    show(place, value);
    flow_.values[value].makers.push_back(place);
  }

 private:
  void set(FlowPort* port, uint32_t value) {
    port->value = value;
    if (port->record != kNoIndex) flow_.value_of_record[port->record] = value;
  }

  DataFlow flow_;
};

/// Of operators, modules and values that are equal.
[[nodiscard]] DataFlow flow_of_program(const run::Run& run);
/// Of the tensors' names in the topology of an ATB dump.
[[nodiscard]] DataFlow flow_of_topology(const run::Run& run);
/// Of the texts of compiled graphs.
[[nodiscard]] DataFlow flow_of_graph_texts(const run::Run& run);

}  // namespace assay::report::html
