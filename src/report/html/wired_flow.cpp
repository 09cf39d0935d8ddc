// SPDX-License-Identifier: Apache-2.0
// Operations with records, and those that share a tensor with them, become nodes; records are then
// put to their ports, and nodes that make and read one tensor are joined by its value.
#include "report/html/wired_flow.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "run/atb_names.hpp"

namespace assay::report::html {
namespace {

using run::TensorRecord;

class ExecutionBuilder {
 public:
  ExecutionBuilder(const Structure& structure, const std::vector<size_t>& records,
                   FlowBuilder* builder)
      : structure_(structure), run_(*builder->flow().run), builder_(*builder) {
    for (const size_t i : records) {
      const TensorRecord& record = run_.records[i];
      if (record.kind != run::RecordKind::Operand) continue;
      if (record.role != Role::Input && record.role != Role::Output) continue;
      by_node_[record.node].push_back(i);
    }
    if (!by_node_.empty()) example_ = &run_.records[by_node_.begin()->second.front()];
  }

  void build() {
    if (example_ == nullptr) return;
    uint64_t order = example_->order;
    for (const uint32_t place : places_to_add()) {
      const WiredOperation& one = structure_.operations[place];
      const auto found = by_node_.find(one.name);
      add(one, found == by_node_.end() ? std::vector<size_t>{} : found->second, &order);
    }
    for (const auto& [name, records] : by_node_) {
      if (!structure_.place_of.contains(name) && !give_to_parent(name, records))
        add_unknown(name, records, &order);
    }
  }

 private:
  /// Of operations with records, and of those beside them; ascending.
  [[nodiscard]] std::set<uint32_t> places_to_add() const {
    std::set<uint32_t> places, wires;
    for (const auto& [name, records] : by_node_) {
      const auto found = structure_.place_of.find(name);
      if (found == structure_.place_of.end()) continue;
      places.insert(found->second);
      const WiredOperation& one = structure_.operations[found->second];
      wires.insert(one.inputs.begin(), one.inputs.end());
      wires.insert(one.outputs.begin(), one.outputs.end());
    }
    for (const uint32_t wire : wires) {
      if (wire == kNoIndex) continue;
      const std::vector<uint32_t>& beside = structure_.operations_of[wire];
      places.insert(beside.begin(), beside.end());
    }
    return places;
  }

  /// A kernel is seen as the operation that ran it: no topology knows kernels.
  bool give_to_parent(std::string_view name, const std::vector<size_t>& records) {
    const auto parent = nodes_.find(run::atb_parent(name));
    if (!run::is_atb_kernel(name) || parent == nodes_.end()) return false;
    for (const size_t i : records) builder_.flow().node_of_record[i] = parent->second;
    return true;
  }

  void add_unknown(std::string_view name, const std::vector<size_t>& records, uint64_t* order) {
    WiredOperation one;
    one.name = name;
    one.type = run_.records[records.front()].op_type;
    if (run_.has(run::Trait::AtbOperations)) one.module = name;
    add(one, records, order);
  }

  /// order  of the operation before, for those without records
  void add(const WiredOperation& one, const std::vector<size_t>& records, uint64_t* order) {
    FlowNode node;
    node.name = one.name;
    node.type = one.type;
    node.module = one.module;
    node.encloses = one.encloses;
    node.rank = example_->rank;
    node.step = example_->step;
    node.call = example_->call;
    node.begin = node.end = *order;
    for (size_t i = 0; i < records.size(); ++i) {
      const uint64_t at = run_.records[records[i]].order;
      node.begin = i == 0 ? at : std::min(node.begin, at);
      node.end = i == 0 ? at : std::max(node.end, at);
    }
    *order = std::max(*order, node.begin);
    node.inputs.resize(one.inputs.size());
    node.outputs.resize(one.outputs.size());
    for (size_t i = one.numbered_inputs; i < node.inputs.size(); ++i)
      node.inputs[i].has_number = false;
    for (const size_t i : records) place_record(i, &node);
    const uint32_t index = builder_.add_node(std::move(node));
    nodes_.emplace(one.name, index);
    for (const size_t i : records) builder_.flow().node_of_record[i] = index;
    connect(one, index);
    for (const size_t i : records) share_value(i, index);
  }

  /// A tensor may have been saved before and after the operation: what it read is the one before,
  /// what it made the one after.
  void place_record(size_t index, FlowNode* node) {
    const TensorRecord& record = run_.records[index];
    const std::optional<size_t> number = run::atb_operand_number(record.slot);
    const bool is_output = record.role == Role::Output;
    std::vector<FlowPort>& ports = is_output ? node->outputs : node->inputs;
    if (!number || *number >= kMaxPorts) {
      ports.push_back({static_cast<uint32_t>(index), kNoIndex});
      return;
    }
    if (*number >= ports.size()) ports.resize(*number + 1);
    const bool is_late = record.slot.ends_with(".after");
    const bool is_early = record.slot.ends_with(".before");
    FlowPort& port = ports[*number];
    if (port.record == kNoIndex || (is_output ? !is_early : !is_late))
      port.record = static_cast<uint32_t>(index);
  }

  void connect(const WiredOperation& one, uint32_t index) {
    for (uint32_t port = 0; port < one.inputs.size(); ++port) {
      if (one.inputs[port] != kNoIndex) builder_.read({index, port}, value_of(one.inputs[port]));
    }
    for (uint32_t port = 0; port < one.outputs.size(); ++port) {
      if (one.outputs[port] != kNoIndex) builder_.make({index, port}, value_of(one.outputs[port]));
    }
  }

  /// Says which value a record holds; a tensor that was saved twice has two records of one value.
  void share_value(size_t index, uint32_t node) {
    const TensorRecord& record = run_.records[index];
    const std::optional<size_t> number = run::atb_operand_number(record.slot);
    const FlowNode& one = builder_.node(node);
    const auto& ports = record.role == Role::Output ? one.outputs : one.inputs;
    if (number && *number < ports.size())
      builder_.flow().value_of_record[index] = ports[*number].value;
  }

  uint32_t value_of(uint32_t wire) {
    const auto [found, is_new] = values_.try_emplace(wire, 0);
    if (is_new) {
      const Wire& one = structure_.wires[wire];
      found->second = builder_.add_value(one.name, one.leaf);
      builder_.value(found->second).type = one.type;
    }
    return found->second;
  }

  static constexpr size_t kMaxPorts = 65536;  // tensors of a kind at one node; limit of topologies

  const Structure& structure_;
  const run::Run& run_;
  FlowBuilder& builder_;
  std::map<std::string_view, std::vector<size_t>> by_node_;
  const TensorRecord* example_ = nullptr;
  std::map<std::string, uint32_t, std::less<>> nodes_;  // that were added, by name
  std::unordered_map<uint32_t, uint32_t> values_;       // by wire
};

}  // namespace

void Structure::index() {
  operations_of.assign(wires.size(), {});
  for (uint32_t place = 0; place < operations.size(); ++place) {
    const WiredOperation& one = operations[place];
    place_of.emplace(one.name, place);
    if (one.encloses) continue;
    for (const auto* list : {&one.inputs, &one.outputs}) {
      for (const uint32_t wire : *list) {
        if (wire != kNoIndex) operations_of[wire].push_back(place);
      }
    }
  }
}

void add_execution(const Structure& structure, const std::vector<size_t>& records,
                   FlowBuilder* builder) {
  ExecutionBuilder(structure, records, builder).build();
}

std::vector<ExecutionRecords> executions_of(const run::Run& run) {
  std::map<std::tuple<int, uint32_t, std::string_view, uint32_t>, std::vector<size_t>> groups;
  for (size_t i = 0; i < run.records.size(); ++i) {
    const TensorRecord& record = run.records[i];
    groups[{record.rank, record.graph, record.step_name, record.call}].push_back(i);
  }
  std::vector<ExecutionRecords> list;
  for (auto& [key, records] : groups)
    list.push_back({std::get<0>(key), std::get<1>(key), std::move(records)});
  std::ranges::stable_sort(list, {}, [](const ExecutionRecords& one) { return one.records[0]; });
  return list;
}

}  // namespace assay::report::html
