// SPDX-License-Identifier: Apache-2.0
// GE against FX: outputs by the attribute that names their FX value, inputs by the operands of the
// graph.
#include <algorithm>

#include "pair/graph_matcher.hpp"

namespace assay::pair {

using formats::GraphOp;

void GraphMatcher::match_fx(const Operands& op, const Operators& fx) {
  const OperatorOrigin origin = origin_of(op);
  // Only a part of the name is known: what the rest did to the tensors is not.
  if (origin.members.empty() || !origin.rest.empty()) return match_own_input(op);
  std::set<std::string> missing;
  const auto node_of = [&](const FxValue& value) -> const Operands* {
    const auto found = fx.find(value.node);
    if (found != fx.end()) return &found->second;
    if (missing.insert(value.node).second) warn_missing_fx(op, value.node);
    return nullptr;
  };
  for (size_t i = 0; i < op.outputs.size(); ++i) match_fx_output(op, origin, i, node_of);
  match_fx_inputs(op, origin, node_of);
}

void GraphMatcher::match_fx_output(const Operands& op, const OperatorOrigin& origin, size_t i,
                                   const FxNodeOf& node_of) {
  const GraphValue value = value_of_output(op, origin, i);
  const GraphOp* maker = graph_.find(value.op);
  const auto fx_value = maker == nullptr || value.output < 0
                            ? std::nullopt
                            : fx_value_of(*maker, static_cast<size_t>(value.output));
  if (!fx_value) {
    mine_why_[op.outputs[i]] = maker != nullptr && maker->type == "Data"
                                   ? "an input of the graph: FX has it as inputs of its readers"
                                   : "the graph names no FX value for it";
    return;
  }
  const Operands* node = node_of(*fx_value);
  if (node == nullptr) {
    mine_why_[op.outputs[i]] = "FX data missing: " + fx_value->node;
    return;
  }
  const std::string slot = std::to_string(fx_value->output);
  const auto record = std::find_if(node->outputs.begin(), node->outputs.end(), [&](size_t index) {
    return golden_.records[index].slot == slot;
  });
  if (record == node->outputs.end()) {
    mine_why_[op.outputs[i]] = "the FX node has no output " + slot;
  } else {
    add(*record, op.outputs[i], origin.members.size() == 1 ? Rule::FxTensorName : origin.rule);
  }
}

const Operands* GraphMatcher::fx_node_of(const GraphOp& op, const FxNodeOf& node_of) {
  for (size_t i = 0; i < op.output_desc.size(); ++i) {
    const auto value = fx_value_of(op, i);
    if (!value) continue;
    if (const Operands* node = node_of(*value)) return node;
  }
  return nullptr;
}

void GraphMatcher::match_fx_inputs(const Operands& op, const OperatorOrigin& origin,
                                   const FxNodeOf& node_of) {
  const std::vector<GraphOperand> operands = external_operands(origin.members);
  // For each member the tensors that its FX node took; nothing where the counts contradict.
  std::map<const GraphOp*, std::vector<size_t>> tensors;
  const std::vector<size_t>* first_tensors = nullptr;
  bool counts_agree = true;
  for (const GraphOp* member : origin.members) {
    const Operands* node = fx_node_of(*member, node_of);
    if (node == nullptr) {
      counts_agree = false;
      continue;
    }
    size_t wanted = 0;
    for (const GraphOperand& operand : external_operands({member})) wanted += !operand.constant;
    std::vector<size_t>& list = tensors[member] = tensor_inputs(*node, wanted);
    if (member == origin.members.front()) first_tensors = &list;
    if (origin.members.size() > 1) explain_inside(op, *node);
    counts_agree = counts_agree && wanted == list.size();
  }
  if (first_tensors == nullptr) return;
  const auto identity = operands_of_inputs(op, operands);
  if (counts_agree && identity && origin.members.size() > 1) {
    std::vector<int64_t> golden;
    std::vector<size_t> mine;
    for (size_t i = 0; i < identity->size(); ++i) {
      const GraphOperand& operand = *(*identity)[i];
      if (operand.constant) {
        skipped_.insert(op.inputs[i]);
      } else {
        golden.push_back(static_cast<int64_t>(tensors[operand.op][operand.data_place]));
        mine.push_back(op.inputs[i]);
      }
    }
    return pair_inputs(golden, mine, origin.rule);
  }
  size_t constants = 0;
  for (const GraphOperand& operand : operands) constants += operand.constant;
  const bool with_constants = op.inputs.size() == operands.size();
  if (counts_agree && (with_constants || op.inputs.size() + constants == operands.size())) {
    std::vector<int64_t> golden;
    std::vector<size_t> mine;
    size_t at = 0;
    for (const GraphOperand& operand : operands) {
      if (operand.constant) {
        if (with_constants) skipped_.insert(op.inputs[at++]);
        continue;
      }
      golden.push_back(static_cast<int64_t>(tensors[operand.op][operand.data_place]));
      mine.push_back(op.inputs[at++]);
    }
    return pair_inputs(golden, mine, origin.members.size() == 1 ? Rule::FxTensorName : origin.rule);
  }
  align_by_shape(*first_tensors, op.inputs);
}

void GraphMatcher::align_by_shape(const std::vector<size_t>& golden,
                                  const std::vector<size_t>& mine) {
  std::vector<int64_t> list(golden.begin(), golden.end());
  // One list longer than the other makes pair_inputs() look at shapes.
  if (list.size() == mine.size()) list.push_back(-1);
  pair_inputs(list, mine, Rule::AlignedByShape);
}

}  // namespace assay::pair
