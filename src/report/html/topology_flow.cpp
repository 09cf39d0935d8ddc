// SPDX-License-Identifier: Apache-2.0
// The data flow of an ATB dump: its topology names the tensors of every operation.
//   docs/formats/atb-topology.md
#include <map>
#include <tuple>

#include "report/html/wired_flow.hpp"
#include "run/atb_names.hpp"
#include "topology/graph.hpp"

namespace assay::report::html {
namespace {

using run::TopologyNode;

/// One model, or one operation outside models: its tensors' names mean nothing elsewhere.
class ScopeWiring {
 public:
  ScopeWiring(const std::vector<const TopologyNode*>& roots, Structure* out)
      : out_(*out), first_(static_cast<uint32_t>(out->operations.size())) {
    for (const TopologyNode* root : roots) collect(*root);
  }

  void wire() {
    std::vector<topology::Interface> leaves;
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i]->children.empty()) leaves.push_back({i, nodes_[i]->inputs, nodes_[i]->outputs});
    }
    wiring_ = topology::wire(std::move(leaves), {}, {});
    for (const topology::WiredNode& leaf : wiring_.nodes) {
      at(leaf.node).inputs = wires_of(leaf.inputs);
      at(leaf.node).outputs = wires_of(leaf.outputs);
    }
    mark_inputs();
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i]->children.empty()) wire_graph(i);
    }
  }

 private:
  /// In pre-order, so that all that is inside a graph follows it without a gap.
  void collect(const TopologyNode& node) {
    const size_t place = nodes_.size();
    nodes_.push_back(&node);
    last_inside_.push_back(0);
    WiredOperation one;
    one.name = node.name;
    one.type = node.type;
    one.module = node.name;
    one.encloses = !node.children.empty();
    out_.operations.push_back(std::move(one));
    for (const TopologyNode& child : node.children) collect(child);
    last_inside_[place] = nodes_.size();
  }

  WiredOperation& at(uint32_t place) { return out_.operations[first_ + place]; }

  uint32_t wire_of(const std::string& name) {
    if (name.empty()) return kNoIndex;
    const auto [found, is_new] = wires_.try_emplace(name, out_.wires.size());
    if (is_new) {
      const auto version = wiring_.versions.find(name);
      out_.wires.push_back(
          {version == wiring_.versions.end() ? name : version->second, FlowLeaf::None, {}});
    }
    return static_cast<uint32_t>(found->second);
  }

  std::vector<uint32_t> wires_of(const std::vector<std::string>& names) {
    std::vector<uint32_t> list;
    for (const std::string& name : names) list.push_back(wire_of(name));
    return list;
  }

  void mark_inputs() {
    for (const std::string& name : wiring_.inputs) out_.wires[wire_of(name)].leaf = FlowLeaf::Input;
  }

  /// A graph reads what the first of its operations reads under that name, and returns what the last
  /// of them wrote.
  void wire_graph(uint32_t place) {
    std::map<std::string_view, uint32_t> read, written;
    for (size_t i = place + 1; i < last_inside_[place]; ++i) {
      if (!nodes_[i]->children.empty()) continue;
      const WiredOperation& inside = out_.operations[first_ + i];
      for (const uint32_t wire : inside.inputs) {
        if (wire != kNoIndex) read.try_emplace(out_.wires[wire].name, wire);
      }
      for (const uint32_t wire : inside.outputs) {
        if (wire != kNoIndex) written.insert_or_assign(out_.wires[wire].name, wire);
      }
    }
    const auto pick = [](const std::vector<std::string>& names, const auto& known) {
      std::vector<uint32_t> list;
      for (const std::string& name : names) {
        const auto found = known.find(name);
        list.push_back(found == known.end() ? kNoIndex : found->second);
      }
      return list;
    };
    at(place).inputs = pick(nodes_[place]->inputs, read);
    at(place).outputs = pick(nodes_[place]->outputs, written);
  }

  Structure& out_;
  const uint32_t first_;  // of out_.operations: the others are of other scopes
  std::vector<const TopologyNode*> nodes_;
  std::vector<size_t> last_inside_;  // by place: the first behind all that is inside
  topology::Wiring wiring_;
  std::map<std::string, size_t> wires_;
};

/// The operations of the top level by their models; those of no model each alone.
std::vector<std::vector<const TopologyNode*>> scopes_of(const run::Run& run) {
  std::map<uint64_t, size_t> model_of;
  for (size_t i = 0; i < run.models.size(); ++i) {
    for (const uint64_t id : run.models[i].ids) model_of.emplace(id, i);
  }
  std::vector<std::vector<const TopologyNode*>> scopes(run.models.size());
  for (const TopologyNode& child : run.topology->children) {
    const auto name = run::parse_atb_node_folder(child.name);
    const auto model = name ? model_of.find(name->id) : model_of.end();
    if (model == model_of.end()) {
      scopes.push_back({&child});
    } else {
      scopes[model->second].push_back(&child);
    }
  }
  return scopes;
}

}  // namespace

DataFlow flow_of_topology(const run::Run& run) {
  FlowBuilder builder(run, FlowBasis::Topology);
  Structure structure;
  if (run.topology) {
    for (const auto& scope : scopes_of(run)) ScopeWiring(scope, &structure).wire();
  }
  structure.index();
  for (const ExecutionRecords& execution : executions_of(run))
    add_execution(structure, execution.records, &builder);
  return std::move(builder.flow());
}

}  // namespace assay::report::html
