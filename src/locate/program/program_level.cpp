// SPDX-License-Identifier: Apache-2.0
// The first of these that was captured decides: operators with inputs and outputs, outputs of
// module calls (of layers only, with inputs of leaf modules, or neither), statistics.
#include "locate/program/program_level.hpp"

#include <algorithm>
#include <set>

namespace assay::locate {
namespace {

bool has_bytes(const Program& program, const std::vector<Use>& uses) {
  return std::ranges::any_of(
      uses, [&](const Use& use) { return program.run->records[use.record].bytes.has_value(); });
}

/// A fingerprint's program is one although most of its values are not there: types and shapes are.
bool is_described(const Program& program, const std::vector<Use>& uses) {
  return std::ranges::any_of(uses, [&](const Use& use) {
    const run::TensorRecord& record = program.run->records[use.record];
    return record.dtype && record.shape;
  });
}

bool has_operators(const Program& program) {
  const auto is_there = program.run->has(run::Trait::WithoutValues) ? is_described : has_bytes;
  return std::ranges::any_of(program.operators, [&](const Operator& one) {
    return is_there(program, one.inputs) && is_there(program, one.outputs);
  });
}

/// Most of the parameters that operators read have no bytes.
bool lacks_leaves(const Program& program) {
  std::set<std::string_view> there, missing;
  for (const Operator& one : program.operators) {
    for (const Use& use : one.inputs) {
      if (use.leaf.empty() || use.producer != kNone) continue;
      (program.run->records[use.record].bytes ? there : missing).insert(use.leaf);
    }
  }
  return missing.size() > there.size();
}

/// Names of modules without children as the host declared them, so that a list of plain linear
/// modules is not taken for one of layers.
void collect_leaves(const run::TopologyNode& node, std::set<std::string>* leaves) {
  if (node.children.empty())
    leaves->insert(node.name.starts_with("root.") ? node.name.substr(5) : node.name);
  for (const run::TopologyNode& child : node.children) collect_leaves(child, leaves);
}

bool ends_with_number(std::string_view module) {
  const size_t dot = module.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? module : module.substr(dot + 1);
  return !last.empty() && last.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Only repeated blocks `x.<number>` beside the root.
bool only_layers(const Program& program) {
  std::set<std::string> leaves;
  if (program.run->topology) collect_leaves(*program.run->topology, &leaves);
  bool any = false;
  for (const ModuleCall& call : program.calls) {
    if (call.module.empty()) continue;
    if (!ends_with_number(call.module) || leaves.contains(call.module)) return false;
    any = true;
  }
  return any;
}

/// At least half of the leaf modules that have outputs have inputs, too: a missing file does not
/// make another level.
bool has_leaf_inputs(const Program& program) {
  size_t with_outputs = 0;
  size_t with_both = 0;
  for (const ModuleCall& call : program.calls) {
    if (!call.leaf || !has_bytes(program, call.outputs)) continue;
    ++with_outputs;
    with_both += has_bytes(program, call.inputs);
  }
  return with_both > 0 && 2 * with_both >= with_outputs;
}

CaptureLevel level_of(const Program& program) {
  if (has_operators(program)) return CaptureLevel::Operators;
  const bool outputs = std::ranges::any_of(
      program.calls, [&](const ModuleCall& call) { return has_bytes(program, call.outputs); });
  if (outputs) {
    if (only_layers(program)) return CaptureLevel::Layers;
    return has_leaf_inputs(program) ? CaptureLevel::Leaves : CaptureLevel::Modules;
  }
  const bool statistics =
      std::ranges::any_of(program.run->records,
                          [](const run::TensorRecord& record) { return record.stats.has_value(); });
  return statistics && !program.has_bytes ? CaptureLevel::Statistics : CaptureLevel::Nothing;
}

}  // namespace

void classify(Program* program) {
  program->has_bytes =
      std::ranges::any_of(program->run->records,
                          [](const run::TensorRecord& record) { return record.bytes.has_value(); });
  program->level = level_of(*program);
  program->lacks_leaves = program->run->has(run::Trait::WithoutValues) && lacks_leaves(*program);
}

}  // namespace assay::locate
