// SPDX-License-Identifier: Apache-2.0
// The data flow of a compiled graph: its text names the maker of every operand. Operators of the
// dump may be several of the text in one, which the fusion's metadata or their names tell.
//   docs/formats/ge-tree.md
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "pair/torchair.hpp"
#include "report/html/wired_flow.hpp"

namespace assay::report::html {
namespace {

using formats::GraphOp;
using pair::GraphValue;

FlowLeaf leaf_of(std::string_view type) {
  if (type == "Data" || type == "RefData") return FlowLeaf::Input;
  constexpr std::string_view kParameters[] = {"Const", "Constant", "ConstPlaceHolder",
                                              "FileConstant", "Variable"};
  return std::ranges::find(kParameters, type) == std::end(kParameters) ? FlowLeaf::None
                                                                       : FlowLeaf::Parameter;
}

class TextStructure {
 public:
  struct Operands {
    std::string type;
    size_t inputs = 0;
    size_t outputs = 0;
  };
  /// The operators that have records, by name.
  using Dumped = std::map<std::string, Operands, std::less<>>;

  TextStructure(const pair::GeGraph& graph, const Dumped& dumped) : graph_(graph), dumped_(dumped) {
    for (const auto& [name, operands] : dumped) names_.insert(name);
  }

  Structure make() {
    std::map<int64_t, std::vector<WiredOperation>> by_position;
    std::set<const GraphOp*> inside;
    for (const auto& [name, operands] : dumped_) {
      const std::vector<const GraphOp*> members = members_of(name);
      inside.insert(members.begin(), members.end());
    }
    for (const auto& [name, operands] : dumped_)
      by_position[position_of(name)].push_back(dumped_operation(name, operands));
    for (const GraphOp& op : graph_.operators()) {
      if (!inside.contains(&op) && leaf_of(op.type) == FlowLeaf::None)
        by_position[graph_.position(op.name)].push_back(plain_operation(op));
    }
    for (auto& [position, list] : by_position)
      std::ranges::move(list, std::back_inserter(out_.operations));
    out_.index();
    return std::move(out_);
  }

 private:
  [[nodiscard]] std::vector<const GraphOp*> members_of(std::string_view name) const {
    return graph_.origin(name, {}, names_).members;
  }

  [[nodiscard]] int64_t position_of(std::string_view name) const {
    const std::vector<const GraphOp*> members = members_of(name);
    return members.empty() ? -1 : graph_.position(members.back()->name);
  }

  // ---- wires ------------------------------------------------------------------------------------

  uint32_t wire_of(const GraphValue& value) {
    const auto [found, is_new] = wires_.try_emplace({value.op, value.output}, out_.wires.size());
    if (is_new) {
      Wire wire;
      if (const GraphOp* op = graph_.find(value.op)) {
        wire.name = op->name;
        wire.leaf = dumped_.contains(op->name) ? FlowLeaf::None : leaf_of(op->type);
        wire.type = type_of(*op, value.output);
      }
      out_.wires.push_back(std::move(wire));
    }
    return static_cast<uint32_t>(found->second);
  }

  static std::string type_of(const GraphOp& op, int64_t output) {
    if (output < 0 || static_cast<size_t>(output) >= op.output_desc.size()) return {};
    const formats::GraphDescriptor& tensor = op.output_desc[static_cast<size_t>(output)];
    return tensor.shape.empty() ? tensor.dtype : tensor.dtype + " " + shape_text(tensor.shape);
  }

  /// The value before fusion that an operator's output is: of a fused one that of its last member,
  /// unless the metadata says another.
  [[nodiscard]] GraphValue value_of(std::string_view name, int64_t output) const {
    if (auto origin = graph_.origin_of_output(name, static_cast<size_t>(output))) return *origin;
    if (graph_.find(name) != nullptr) return {graph_.find(name)->name, output};
    const std::vector<const GraphOp*> members = members_of(name);
    return {members.empty() ? std::string(name) : members.back()->name, output};
  }

  /// Of an absent operand kNoIndex; edges that only order execution are left out.
  std::vector<uint32_t> inputs_of(const GraphOp& op, const std::set<std::string_view>& without) {
    std::vector<uint32_t> list;
    for (const std::string& edge : op.inputs) {
      const auto [producer, output] = formats::split_graph_edge(edge);
      if (edge.empty()) {
        list.push_back(kNoIndex);
      } else if (output >= 0 && !without.contains(producer)) {
        list.push_back(wire_of({std::string(producer), output}));
      }
    }
    return list;
  }

  // ---- operations -------------------------------------------------------------------------------

  WiredOperation plain_operation(const GraphOp& op) {
    WiredOperation one;
    one.name = op.name;
    one.type = op.type;
    one.inputs = inputs_of(op, {});
    for (size_t i = 0; i < std::max<size_t>(op.output_desc.size(), 1); ++i)
      one.outputs.push_back(wire_of({op.name, static_cast<int64_t>(i)}));
    return one;
  }

  WiredOperation dumped_operation(const std::string& name, const Operands& operands) {
    WiredOperation one;
    one.name = name;
    one.type = operands.type;
    set_inputs(dumped_inputs(name), operands.inputs, &one);
    for (size_t i = 0; i < operands.outputs; ++i)
      one.outputs.push_back(wire_of(value_of(name, static_cast<int64_t>(i))));
    add_other_outputs(members_of(name), &one);
    return one;
  }

  /// By the optimised graph, else what the members take from outside, in their order.
  std::vector<uint32_t> dumped_inputs(const std::string& name) {
    std::vector<uint32_t> list;
    if (const auto values = graph_.values_of_inputs(name)) {
      for (const GraphValue& value : *values)
        list.push_back(value.op.empty() ? kNoIndex : wire_of(value_of(value.op, value.output)));
      return list;
    }
    const std::vector<const GraphOp*> members = members_of(name);
    std::set<std::string_view> inner;
    for (const GraphOp* member : members) {
      if (members.size() > 1) inner.insert(member->name);
    }
    for (const GraphOp* member : members)
      std::ranges::copy(inputs_of(*member, inner), std::back_inserter(list));
    return list;
  }

  /// Files number the operands that are there. Where there are not as many, nobody can tell which is
  /// which: what is read then stands behind the captured tensors.
  static void set_inputs(std::vector<uint32_t> wires, size_t slots, WiredOperation* one) {
    std::vector<uint32_t> present = wires;
    std::erase(present, kNoIndex);
    if (present.size() == slots || wires.size() == slots || slots == 0) {
      one->inputs = wires.size() == slots ? std::move(wires) : std::move(present);
      return;
    }
    one->inputs.assign(slots, kNoIndex);
    one->inputs.insert(one->inputs.end(), present.begin(), present.end());
    one->numbered_inputs = slots;
  }

  /// What others read of the members.
  void add_other_outputs(const std::vector<const GraphOp*>& members, WiredOperation* one) {
    for (const GraphOp* member : members) {
      for (size_t i = 0; i < std::max<size_t>(member->output_desc.size(), 1); ++i) {
        const uint32_t wire = wire_of({member->name, static_cast<int64_t>(i)});
        if (std::ranges::find(one->outputs, wire) == one->outputs.end())
          one->outputs.push_back(wire);
      }
    }
  }

  const pair::GeGraph& graph_;
  const Dumped& dumped_;
  std::set<std::string, std::less<>> names_;
  Structure out_;
  std::map<std::pair<std::string, int64_t>, size_t> wires_;
};

using GraphKey = std::pair<int, uint32_t>;  // rank, graph

/// Of all steps of each graph; of operands the most that a step has.
std::map<GraphKey, TextStructure::Dumped> dumped_of(const run::Run& run,
                                                    const std::vector<ExecutionRecords>& steps) {
  std::map<GraphKey, TextStructure::Dumped> all;
  for (const ExecutionRecords& step : steps) {
    TextStructure::Dumped dumped;
    for (const size_t i : step.records) {
      const run::TensorRecord& record = run.records[i];
      if (record.kind != run::RecordKind::Operand) continue;
      TextStructure::Operands& one = dumped[record.node];
      one.type = record.op_type;
      ++(record.role == Role::Input ? one.inputs : one.outputs);
    }
    for (const auto& [name, operands] : dumped) {
      TextStructure::Operands& most = all[{step.rank, step.graph}][name];
      most.type = operands.type;
      most.inputs = std::max(most.inputs, operands.inputs);
      most.outputs = std::max(most.outputs, operands.outputs);
    }
  }
  return all;
}

}  // namespace

DataFlow flow_of_graph_texts(const run::Run& run) {
  FlowBuilder builder(run, FlowBasis::GraphText);
  if (!run.has(run::Trait::GeOperators) || run.graph_files.empty())
    return std::move(builder.flow());
  const std::vector<ExecutionRecords> steps = executions_of(run);
  std::map<GraphKey, Structure> structures;
  for (const auto& [key, dumped] : dumped_of(run, steps)) {
    const pair::GeGraph graph = pair::read_graph(run, key.first, key.second, &builder.flow().notes);
    structures.emplace(key, TextStructure(graph, dumped).make());
  }
  for (const ExecutionRecords& step : steps) {
    const auto structure = structures.find({step.rank, step.graph});
    if (structure != structures.end()) add_execution(structure->second, step.records, &builder);
  }
  return std::move(builder.flow());
}

}  // namespace assay::report::html
