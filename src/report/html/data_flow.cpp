// SPDX-License-Identifier: Apache-2.0
// Chooses what a run's data flow is read from, and says so when there is nothing to read it from.
#include "report/html/data_flow.hpp"

#include <algorithm>

#include "report/html/flow_builder.hpp"

namespace assay::report::html {
namespace {

/// Paths of modules have dots, those of ATB's operations slashes.
bool is_below(std::string_view path, std::string_view outer) {
  if (outer.empty()) return true;
  return path.starts_with(outer) &&
         (path.size() == outer.size() || path[outer.size()] == '.' || path[outer.size()] == '/');
}

std::string reason_of(const run::Run& run) {
  if (run.records.empty()) return "the run holds no tensors";
  if (run.has(run::Trait::AtbOperations))
    return "the dump has no topology that names its tensors: capture it with --type layer or model";
  if (run.has(run::Trait::GeOperators))
    return run.graph_files.empty() ? "the dump has no text of its graphs"
                                   : "no operator of the dump is in the text of its graphs";
  if (run.has(run::Trait::CompiledGraphs))
    return "the dump has no text of its graphs, and tensors of this layout do not say who made "
           "them";
  if (run.has(run::Trait::Steps))
    return "no output of a module is the input of another one: capture it with --level "
           "operator";
  return "the files do not say which operation made their tensors";
}

bool is_related(const FlowValue& value) {
  const auto is_read = [](const FlowPlace& place) { return place.port != kNoIndex; };
  return (value.leaf != FlowLeaf::None || !value.makers.empty()) &&
         std::ranges::any_of(value.users, is_read);
}

}  // namespace

std::string_view basis_name(FlowBasis basis) {
  switch (basis) {
    case FlowBasis::Nothing:
      return "";
    case FlowBasis::Operators:
      return "operators";
    case FlowBasis::Topology:
      return "topology";
    case FlowBasis::GraphText:
      return "graph_text";
    case FlowBasis::EqualValues:
      return "equal_values";
  }
  return "";
}

bool DataFlow::encloses(const FlowNode& outer, const FlowNode& inner) const {
  if (!outer.encloses || outer.rank != inner.rank || outer.step != inner.step || &outer == &inner)
    return false;
  if (!is_below(inner.module, outer.module)) return false;
  if (inner.encloses && inner.module.size() == outer.module.size()) return false;
  // One module may be called several times; what is inside a call lies between its first input and
  // its last output.
  const bool has_span = run->order_known && outer.begin < outer.end;
  return !has_span || (outer.begin <= inner.begin && inner.begin <= outer.end);
}

DataFlow data_flow(const run::Run& run) {
  DataFlow flow = run.has(run::Trait::AtbOperations)    ? flow_of_topology(run)
                  : run.has(run::Trait::CompiledGraphs) ? flow_of_graph_texts(run)
                                                        : flow_of_program(run);
  if (std::ranges::none_of(flow.values, is_related)) {
    flow.basis = FlowBasis::Nothing;
    flow.reason = flow.notes.empty() ? reason_of(run) : flow.notes.front();
  }
  return flow;
}

}  // namespace assay::report::html
