// SPDX-License-Identifier: Apache-2.0
// The pairs of the original, with what it got wrong.
#include <algorithm>

#include "pair/graph_matcher.hpp"

namespace assay::pair {

using formats::GraphOp;

namespace {

constexpr std::string_view kFusedOpType = "AutomaticBufferFusionOp";

}  // namespace

std::vector<size_t> GraphMatcher::by_file_name(std::vector<size_t> records) const {
  std::sort(records.begin(), records.end(), [this](size_t a, size_t b) {
    return file_of(golden_.records[a]) < file_of(golden_.records[b]);
  });
  return records;
}

void GraphMatcher::match_fx_msit(const Operands& op, const Operators& fx) {
  const OperatorOrigin origin = origin_of(op);
  if (origin.members.empty()) return match_own_input(op);
  const auto nodes_of = [&](const GraphOp& member) {
    std::vector<const Operands*> nodes;
    for (size_t i = 0; i < member.output_desc.size(); ++i) {
      const auto value = fx_value_of(member, i);
      if (!value) continue;
      const auto node = fx.find(value->node);
      if (node == fx.end()) {
        warn_missing_fx(op, value->node);
      } else {
        nodes.push_back(&node->second);
      }
    }
    return nodes;
  };
  if (origin.members.size() == 1) {
    const std::vector<const Operands*> nodes = nodes_of(*origin.members[0]);
    if (nodes.empty()) return;
    // Rows of earlier descriptors were overwritten by those of the last.
    pair_in_order(by_file_name(nodes.back()->inputs), op.inputs, Rule::FxTensorName);
    pair_in_order(by_file_name(nodes.back()->outputs), op.outputs, Rule::FxTensorName);
    return;
  }
  for (const Operands* node : nodes_of(*origin.members.front()))
    pair_in_order(by_file_name(node->inputs), op.inputs, Rule::NameDecomposition);
  for (const Operands* node : nodes_of(*origin.members.back()))
    pair_in_order(by_file_name(node->outputs), op.outputs, Rule::NameDecomposition);
}

void GraphMatcher::match_ge_msit(const Operands& op, const Operators& golden) {
  std::vector<std::pair<int64_t, std::string>> inputs;  // record, label
  const Operands* last = nullptr;
  Rule rule = Rule::EqualNames;
  if (op.op_type.starts_with(kFusedOpType)) {
    rule = Rule::NameDecomposition;
    last = gather_fused_msit(op, golden, &inputs);
  } else if (const auto same = golden.find(op.name); same != golden.end()) {
    last = &same->second;
    for (const size_t i : last->inputs) inputs.emplace_back(static_cast<int64_t>(i), last->file);
  } else {
    return warn("Golden data missing, My tensor name: " + op.name);
  }
  std::string output_label = last == nullptr ? "" : last->file;
  const size_t rows = std::min(inputs.size(), op.inputs.size());
  for (size_t i = 0; i < rows; ++i) {
    if (i == 0) output_label += ",inputs,0";
    if (inputs[i].first < 0) continue;  // the original's metrics failed here
    add(static_cast<size_t>(inputs[i].first), op.inputs[i], rule);
    out_.pairs.back().golden_label = inputs[i].second;
  }
  if (last == nullptr) return;
  for (size_t i = 0; i < std::min(last->outputs.size(), op.outputs.size()); ++i) {
    output_label += ",outputs," + std::to_string(i);
    add(last->outputs[i], op.outputs[i], rule);
    out_.pairs.back().golden_label = output_label;
  }
}

const Operands* GraphMatcher::gather_fused_msit(
    const Operands& op, const Operators& golden,
    std::vector<std::pair<int64_t, std::string>>* inputs) {
  const OperatorOrigin origin = graph_.decompose(op.name, all_names_);
  if (!origin.rest.empty())
    warn("Failed parsing fused op name: " + origin.rest + ". Compare manually if required.");
  const Operands* last = nullptr;
  for (const GraphOp* member : origin.members) {
    const auto found = golden.find(member->name);
    const bool dumped = found != golden.end();
    if (dumped) {
      last = &found->second;
    } else {
      warn("No dump data for op: " + member->name + ".");
    }
    const size_t count =
        dumped ? std::min(member->inputs.size(), last->inputs.size()) : member->inputs.size();
    for (size_t i = 0; i < count; ++i) {
      const std::string_view producer = formats::split_graph_edge(member->inputs[i]).first;
      if (std::any_of(origin.members.begin(), origin.members.end(),
                      [&](const GraphOp* other) { return other->name == producer; }))
        continue;
      if (dumped) {
        inputs->emplace_back(static_cast<int64_t>(last->inputs[i]),
                             last->file + ",inputs," + std::to_string(i));
      } else {
        inputs->emplace_back(-1, "");
      }
    }
  }
  return last;
}

}  // namespace assay::pair
