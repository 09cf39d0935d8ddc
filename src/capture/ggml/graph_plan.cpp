// SPDX-License-Identifier: Apache-2.0
#include "capture/ggml/graph_plan.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "capture/ggml/arguments.hpp"

namespace assay::capture::ggml {
namespace {

constexpr int kComputeFlag = 16;
constexpr size_t kMaxSearchedSources = 256;

bool is_alias(const std::string& op) {
  return op == "reshape" || op == "view" || op == "permute" || op == "transpose";
}

/// "node_5 (view)" -> 6: where the name itself ends and what views have appended begins.
size_t own_name_size(std::string_view name) {
  const size_t appended = name.find(" (");
  return appended == std::string_view::npos ? name.size() : appended;
}

/// The nearest source, breadth first, with a name of its own; nullptr when there is none.
const EngineTensor* nearest_named_source(const TensorFields& node) {
  std::deque<const EngineTensor*> waiting{node.address()};
  std::set<const EngineTensor*> seen{node.address()};
  while (!waiting.empty() && seen.size() < kMaxSearchedSources) {
    const TensorFields fields = node.other(waiting.front());
    waiting.pop_front();
    for (size_t i = 0; i < fields.source_count(); ++i) {
      const EngineTensor* source = fields.source(i);
      if (source == nullptr || !seen.insert(source).second) continue;
      const std::string_view name = origin_name(node.other(source).name());
      if (!is_unnamed(name.substr(0, own_name_size(name)))) return source;
      waiting.push_back(source);
    }
  }
  return nullptr;
}

std::string recorded_name(const TensorFields& fields, PlannedNode* planned) {
  const std::string_view name = fields.name();
  const size_t own = own_name_size(name);
  if (!is_unnamed(name.substr(0, own))) return std::string(name);
  planned->named_after = nearest_named_source(fields);
  if (planned->named_after != nullptr)
    planned->name_of_that = origin_name(fields.other(planned->named_after).name());
  return "(" + planned->name_of_that + ")" + std::string(name.substr(own));
}

}  // namespace

std::string_view origin_name(std::string_view name) {
  const size_t first = name.find('#');
  const size_t last = name.rfind('#');
  if (first == std::string_view::npos || first == last) return name;
  const std::string_view number = name.substr(last + 1);
  if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos)
    return name;
  return name.substr(first + 1, last - first - 1);
}

bool is_unnamed(std::string_view name) {
  if (name.empty()) return true;
  for (const std::string_view stem : {std::string_view("node_"), std::string_view("leaf_")}) {
    if (name.starts_with(stem) && name.size() > stem.size() &&
        name.find_first_not_of("0123456789", stem.size()) == std::string_view::npos)
      return true;
  }
  return false;
}

bool GraphPlan::still_holds(EngineGraph* graph) const {
  const EngineFunctions& functions = engine->functions();
  const size_t bytes = engine->layout().used_bytes();
  if (functions.ggml_graph_n_nodes(graph) != static_cast<int>(nodes.size())) return false;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const PlannedNode& node = nodes[i];
    if (functions.ggml_graph_node(graph, static_cast<int>(i)) != node.tensor ||
        std::memcmp(snapshot.data() + i * bytes, node.tensor, bytes) != 0)
      return false;
    if (node.named_after != nullptr &&
        origin_name(engine->fields(node.named_after).name()) != node.name_of_that)
      return false;
  }
  return true;
}

std::shared_ptr<const GraphPlan> plan_graph(Session* session, const Settings* settings,
                                            const Engine* engine, EngineGraph* graph,
                                            const std::string& prefix) {
  auto plan = std::make_shared<GraphPlan>();
  plan->session = session;
  plan->settings = settings;
  plan->engine = engine;
  const EngineFunctions& functions = engine->functions();
  const auto count = static_cast<size_t>(std::max(0, functions.ggml_graph_n_nodes(graph)));
  const size_t bytes = engine->layout().used_bytes();
  plan->nodes.reserve(count);
  plan->snapshot.resize(count * bytes);
  bool any_marked = false;
  const auto held = session->lock();
  std::map<std::pair<const void*, const void*>, uint32_t> occurrences;
  for (size_t i = 0; i < count; ++i) {
    const EngineTensor* tensor = functions.ggml_graph_node(graph, static_cast<int>(i));
    const TensorFields fields = engine->fields(tensor);
    std::memcpy(plan->snapshot.data() + i * bytes, tensor, bytes);
    PlannedNode& node = plan->nodes.emplace_back();
    node.tensor = tensor;
    const std::string& op = engine->op_name(fields.op());
    const std::string name = recorded_name(fields, &node);
    node.node = session->node(prefix + name);
    node.operation = session->run().intern("ggml." + op);
    node.occurrence = occurrences[{node.node, node.operation}]++;
    node.alias = is_alias(op);
    node.computed = (fields.flags() & kComputeFlag) != 0;
    node.wanted = settings->wants_node(name, op);
    any_marked |= node.computed;
    plan->index.emplace(tensor, i);
  }
  for (PlannedNode& node : plan->nodes) {
    // Engines that do not mark what they compute compute everything.
    node.computed |= !any_marked;
    plan->not_computed += node.wanted && !node.computed;
    node.wanted &= node.computed;
    plan->wanted += node.wanted;
    if (node.wanted) node.arguments = arguments_json(*engine, engine->fields(node.tensor));
  }
  return plan;
}

}  // namespace assay::capture::ggml
