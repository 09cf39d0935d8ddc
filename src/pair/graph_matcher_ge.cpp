// SPDX-License-Identifier: Apache-2.0
// GE fused against unfused: operators of equal name, and fused ones against their members.
#include <algorithm>

#include "pair/graph_matcher.hpp"

namespace assay::pair {

using formats::GraphOp;

namespace {

constexpr std::string_view kFusedOpType = "AutomaticBufferFusionOp";
constexpr std::string_view kGraphInputType = "Data";

/// True when the slots are not 0, 1, 2 ...: operands were left out and the others kept their
/// indices.
bool has_gap(const run::Run& run, const std::vector<size_t>& records) {
  for (size_t i = 0; i < records.size(); ++i) {
    if (run.records[records[i]].slot != std::to_string(i)) return true;
  }
  return false;
}

}  // namespace

bool GraphMatcher::same_graph_inputs(const Operators& golden, const Operators& mine) {
  for (const auto& [name, op] : mine) {
    const auto same = golden.find(name);
    if (op.op_type != kGraphInputType || same == golden.end() || op.outputs.empty() ||
        same->second.outputs.empty())
      continue;
    const OperandShape a = shape_of(golden_, same->second.outputs[0]);
    const OperandShape b = shape_of(mine_, op.outputs[0]);
    if (a.shape && b.shape && *a.shape != *b.shape) return false;
  }
  return true;
}

void GraphMatcher::match_ge(const Operands& op, const Operators& golden) {
  if (op.op_type == kGraphInputType && !graph_inputs_agree_)
    return explain(op,
                   "graph inputs are numbered differently in golden: compared where they are read");
  const OperatorOrigin origin = origin_of(op);
  const auto same = golden.find(op.name);
  // A name that golden has is better than the same name taken apart.
  const bool use_same = same != golden.end() && op.op_type != kFusedOpType &&
                        (origin.members.empty() || origin.rule == Rule::EqualNames ||
                         origin.rule == Rule::NameDecomposition);
  if (use_same) {
    const std::vector<size_t>& inputs = same->second.inputs;
    if (has_gap(mine_, op.inputs) || has_gap(golden_, inputs)) {
      pair_by_slot(inputs, op.inputs, Rule::EqualNames);
    } else {
      pair_inputs({inputs.begin(), inputs.end()}, op.inputs, Rule::EqualNames);
    }
    pair_by_slot(same->second.outputs, op.outputs, Rule::EqualNames);
    return;
  }
  const bool is_fused = !origin.members.empty() &&
                        (origin.rule != Rule::EqualNames || golden_makes(op, origin, golden));
  if (is_fused && origin.rest.empty()) {
    match_fused_inputs(op, origin, golden);
    match_fused_outputs(op, origin, golden);
    return;
  }
  warn(is_fused || op.op_type == kFusedOpType
           ? "Failed parsing fused op name: " + (is_fused ? origin.rest : op.name) +
                 ". Compare manually if required."
           : "Golden data missing, My tensor name: " + op.name);
  explain(op, is_fused ? "its name cannot be taken apart" : "the operator is not in golden");
}

void GraphMatcher::pair_by_slot(const std::vector<size_t>& golden, const std::vector<size_t>& mine,
                                Rule rule) {
  for (const size_t m : mine) {
    for (const size_t g : golden) {
      if (golden_.records[g].slot == mine_.records[m].slot) add(g, m, rule);
    }
  }
}

void GraphMatcher::match_fused_inputs(const Operands& op, const OperatorOrigin& origin,
                                      const Operators& golden) {
  for (const GraphOp* member : origin.members) {
    if (!golden.contains(member->name)) warn("No dump data for op: " + member->name + ".");
  }
  for (const GraphOp* member : origin.members) {
    const auto found = golden.find(member->name);
    if (found != golden.end() && origin.members.size() > 1) explain_inside(op, found->second);
  }
  const std::vector<GraphOperand> operands = external_operands(origin.members);
  std::vector<int64_t> records;
  if (const auto identity = operands_of_inputs(op, operands)) {
    for (const GraphOperand* operand : *identity)
      records.push_back(golden_operand(*operand, golden));
  } else {
    for (const GraphOperand& operand : operands) records.push_back(golden_operand(operand, golden));
  }
  pair_inputs(records, op.inputs, origin.rule);
}

int64_t GraphMatcher::golden_operand(const GraphOperand& operand, const Operators& golden) const {
  if (const auto member = golden.find(operand.op->name); member != golden.end()) {
    const std::vector<size_t>& inputs = member->second.inputs;
    return operand.place < inputs.size() ? static_cast<int64_t>(inputs[operand.place]) : -1;
  }
  const Result<size_t> made = golden_output({operand.producer, operand.producer_output}, golden);
  return made ? static_cast<int64_t>(*made) : -1;
}

void GraphMatcher::find_renamed(const Operators& golden) {
  renamed_.clear();
  for (const auto& [name, op] : golden) {
    if (graph_.find(name) != nullptr) continue;
    const std::vector<GraphValue>& values = file_origins(op);
    for (size_t i = 0; i < op.outputs.size(); ++i) {
      GraphValue value = i < values.size() ? values[i] : GraphValue{};
      if (const auto known = golden_graph_.origin_of_output(name, i)) value = *known;
      if (!value.op.empty()) renamed_.try_emplace({value.op, value.output}, op.outputs[i]);
    }
  }
}

Result<size_t> GraphMatcher::golden_output(const GraphValue& value, const Operators& golden) const {
  const auto maker = golden.find(value.op);
  if (maker == golden.end()) {
    const auto other = renamed_.find({value.op, value.output});
    if (other != renamed_.end()) return other->second;
    return fail(Errc::NotFound, "No dump data for op: " + value.op);
  }
  const std::vector<size_t>& outputs = maker->second.outputs;
  if (value.output < 0 || static_cast<size_t>(value.output) >= outputs.size())
    return fail(Errc::NotFound, "the unfused operator has no such output: " + value.op);
  return outputs[static_cast<size_t>(value.output)];
}

bool GraphMatcher::golden_makes(const Operands& op, const OperatorOrigin& origin,
                                const Operators& golden) {
  return !op.outputs.empty() && golden_output(value_of_output(op, origin, 0), golden).has_value();
}

void GraphMatcher::match_fused_outputs(const Operands& op, const OperatorOrigin& origin,
                                       const Operators& golden) {
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const Result<size_t> record = golden_output(value_of_output(op, origin, i), golden);
    if (record) {
      add(*record, op.outputs[i], origin.rule);
    } else {
      mine_why_[op.outputs[i]] = record.error().message;
    }
  }
}

}  // namespace assay::pair
