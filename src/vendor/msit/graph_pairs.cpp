// SPDX-License-Identifier: Apache-2.0
// Pairs of graph mode as msit 8.2 made them, with what it got wrong.
#include <algorithm>

#include "pair/graph_matcher.hpp"
#include "vendor/msit/pairs.hpp"

namespace assay::vendor::msit {
namespace {

using formats::GraphOp;
using pair::GraphMatcher;
using pair::Operands;
using pair::OperatorOrigin;
using pair::Operators;
using pair::Rule;

constexpr std::string_view kFusedOpType = "AutomaticBufferFusionOp";

// Files sorted by their names: INPUT.10 before INPUT.2.
std::vector<size_t> by_file_name(const GraphMatcher& matcher, std::vector<size_t> records) {
  std::ranges::sort(records, {}, [&](size_t i) -> const std::string& {
    return pair::file_of(matcher.golden().records[i]);
  });
  return records;
}

void match_fx(GraphMatcher& matcher, const Operands& op, const Operators& fx) {
  const OperatorOrigin origin = matcher.decompose(op);
  if (origin.members.empty()) {
    if (GraphMatcher::changes_form_only(op)) matcher.match_own_input(op);
    return;
  }
  const auto nodes_of = [&](const GraphOp& member) {
    std::vector<const Operands*> nodes;
    for (size_t i = 0; i < member.output_desc.size(); ++i) {
      const auto value = pair::fx_value_of(member, i);
      if (!value) continue;
      const auto node = fx.find(value->node);
      if (node == fx.end()) {
        matcher.warn_missing_fx(op, value->node);
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
    const Operands& last = *nodes.back();
    matcher.pair_in_order(by_file_name(matcher, last.inputs), op.inputs, Rule::FxTensorName);
    matcher.pair_in_order(by_file_name(matcher, last.outputs), op.outputs, Rule::FxTensorName);
    return;
  }
  for (const Operands* node : nodes_of(*origin.members.front()))
    matcher.pair_in_order(by_file_name(matcher, node->inputs), op.inputs, Rule::NameDecomposition);
  for (const Operands* node : nodes_of(*origin.members.back()))
    matcher.pair_in_order(by_file_name(matcher, node->outputs), op.outputs,
                          Rule::NameDecomposition);
}

// Inputs of all members that no member makes, with their labels; returns the last member that has a
// file.
const Operands* gather_fused(GraphMatcher& matcher, const Operands& op, const Operators& golden,
                             std::vector<std::pair<int64_t, std::string>>* inputs) {
  const OperatorOrigin origin = matcher.decompose(op);
  if (!origin.rest.empty())
    matcher.warn("Failed parsing fused op name: " + origin.rest +
                 ". Compare manually if required.");
  const Operands* last = nullptr;
  for (const GraphOp* member : origin.members) {
    const auto found = golden.find(member->name);
    const bool dumped = found != golden.end();
    if (dumped) {
      last = &found->second;
    } else {
      matcher.warn("No dump data for op: " + member->name + ".");
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

void match_ge(GraphMatcher& matcher, const Operands& op, const Operators& golden) {
  std::vector<std::pair<int64_t, std::string>> inputs;  // record, label
  const Operands* last = nullptr;
  Rule rule = Rule::EqualNames;
  if (op.op_type.starts_with(kFusedOpType)) {
    rule = Rule::NameDecomposition;
    last = gather_fused(matcher, op, golden, &inputs);
  } else if (const auto same = golden.find(op.name); same != golden.end()) {
    last = &same->second;
    for (const size_t i : last->inputs) inputs.emplace_back(static_cast<int64_t>(i), last->file);
  } else {
    return matcher.warn("Golden data missing, My tensor name: " + op.name);
  }
  std::string output_label = last == nullptr ? "" : last->file;
  const size_t rows = std::min(inputs.size(), op.inputs.size());
  for (size_t i = 0; i < rows; ++i) {
    if (i == 0) output_label += ",inputs,0";
    if (inputs[i].first < 0) continue;  // the original's metrics failed here
    matcher.add(static_cast<size_t>(inputs[i].first), op.inputs[i], rule, 1, inputs[i].second);
  }
  if (last == nullptr) return;
  for (size_t i = 0; i < std::min(last->outputs.size(), op.outputs.size()); ++i) {
    output_label += ",outputs," + std::to_string(i);
    matcher.add(last->outputs[i], op.outputs[i], rule, 1, output_label);
  }
}

}  // namespace

void match_operator(GraphMatcher& matcher, const Operands& op, const Operators& golden) {
  matcher.golden_is_fx() ? match_fx(matcher, op, golden) : match_ge(matcher, op, golden);
}

void sort_graph(std::vector<pair::RecordPair>* pairs) {
  std::ranges::stable_sort(*pairs, {}, [](const pair::RecordPair& pair) {
    const std::string_view label = pair.mine_label;
    return label.substr(label.rfind('.') + 1);
  });
}

}  // namespace assay::vendor::msit
