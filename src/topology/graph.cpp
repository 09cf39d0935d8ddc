// SPDX-License-Identifier: Apache-2.0
// read_graph() tells the kind of a text by its first characters or keys. Readers of ATB's files and
// of module trees are here, then layers put into their model, levels, and types of tensors.
#include "topology/graph.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "topology/atb_json.hpp"
#include "topology/atb_names.hpp"
#include "topology/ge_graph.hpp"
#include "topology/json_document.hpp"

namespace assay::topology {
namespace {

using Value = JsonDocument::Value;

constexpr size_t kMaxParamNesting = 64;
constexpr size_t kMaxJsonDepth = 2 * kMaxNesting + kMaxParamNesting;

// ---- parameters ---------------------------------------------------------------------------------

std::string text_of(const JsonDocument& json, Value value) {
  if (json.is(value, JsonKind::String)) return json.string(value);
  std::string text;
  json.append_compact(value, &text);
  return text;
}

Parameter::Value scalar_of(const JsonDocument& json, Value value) {
  switch (json.kind(value)) {
    case JsonKind::Null:
      return std::monostate{};
    case JsonKind::True:
      return true;
    case JsonKind::False:
      return false;
    case JsonKind::Integer:
      // Beyond 64 bits the digits are worth more than a rounded number.
      if (const std::optional<int64_t> integer = json.integer(value)) return *integer;
      return text_of(json, value);
    case JsonKind::Float:
      return json.number(value).value_or(0.0);
    default:
      return text_of(json, value);
  }
}

Parameter::Value list_of(const JsonDocument& json, Value list) {
  bool all_integers = true;
  bool all_numbers = true;
  for (Value item = json.first(list); item != JsonDocument::kNone; item = json.next(item)) {
    const bool is_bool = json.is(item, JsonKind::True) || json.is(item, JsonKind::False);
    const bool is_integer = is_bool || json.integer(item).has_value();
    all_integers = all_integers && is_integer;
    all_numbers = all_numbers && !is_bool && json.number(item).has_value();
  }
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  std::vector<std::string> texts;
  for (Value item = json.first(list); item != JsonDocument::kNone; item = json.next(item)) {
    if (all_integers) {
      integers.push_back(json.integer(item).value_or(json.is(item, JsonKind::True) ? 1 : 0));
    } else if (all_numbers) {
      numbers.push_back(json.number(item).value_or(0.0));
    } else {
      texts.push_back(text_of(json, item));
    }
  }
  if (all_integers) return integers;
  if (all_numbers) return numbers;
  return texts;
}

/// Appends one parameter, or all members of an object with its name and a dot in front.
void add_parameters(const JsonDocument& json, Value value, const std::string& name, size_t depth,
                    std::vector<Parameter>* parameters) {
  if (json.is(value, JsonKind::Object) && depth < kMaxParamNesting) {
    for (Value member = json.first(value); member != JsonDocument::kNone;
         member = json.next(member)) {
      const std::string key = json.key(member);
      add_parameters(json, member, name.empty() ? key : name + "." + key, depth + 1, parameters);
    }
    return;
  }
  Parameter parameter{name, {}, text_of(json, value)};
  parameter.value = json.is(value, JsonKind::Array) ? list_of(json, value) : scalar_of(json, value);
  parameters->push_back(std::move(parameter));
}

/// A key that stands twice means its last value.
std::vector<Parameter> without_repetition(std::vector<Parameter> parameters) {
  std::map<std::string, size_t> last;
  for (size_t i = 0; i < parameters.size(); ++i) last[parameters[i].name] = i;
  if (last.size() == parameters.size()) return parameters;
  std::vector<Parameter> kept;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (last[parameters[i].name] == i) kept.push_back(std::move(parameters[i]));
  }
  return kept;
}

std::vector<Parameter> parameters_of(const JsonDocument& json, Value param) {
  std::vector<Parameter> parameters;
  if (param == JsonDocument::kNone || json.is(param, JsonKind::Null)) return parameters;
  if (json.is(param, JsonKind::Object)) {
    add_parameters(json, param, "", 0, &parameters);
  } else if (json.text(param) != "\"\"") {
    add_parameters(json, param, "param", 0, &parameters);
  }
  return without_repetition(std::move(parameters));
}

// ---- ATB's files --------------------------------------------------------------------------------

/// Reads layer and model files with a list of open graphs instead of recursion.
class AtbReader {
 public:
  explicit AtbReader(const JsonDocument& json) : json_(json) {}

  Result<Graph> run(GraphKind kind) {
    graph_.kind = kind;
    Node root;
    if (kind == GraphKind::Model) {
      ASSAY_TRY(root.name, text_member(0, "modelName"));
      root.type = root.name;
    } else {
      ASSAY_TRY_STATUS(read_name(0, "", &root));
    }
    ASSAY_TRY_STATUS(read_wires(0, &root));
    root.parameters = parameters_of(json_, json_.find(0, "param"));
    ASSAY_TRY(graph_.weights, name_list(0, "weightTensors"));
    read_properties();
    graph_.nodes.push_back(std::move(root));
    ASSAY_TRY_STATUS(open(0, 0));
    while (!open_.empty()) ASSAY_TRY_STATUS(next_node());
    return std::move(graph_);
  }

 private:
  struct Open {
    uint32_t node;
    Value next_child;
  };

  Status open(Value value, uint32_t node) {
    const Value nodes = json_.find(value, "nodes");
    if (nodes == JsonDocument::kNone || json_.is(nodes, JsonKind::Null)) return {};
    if (!json_.is(nodes, JsonKind::Array))
      return fail(Errc::Invalid, "\"nodes\" is no list", json_.offset(nodes));
    graph_.nodes[node].is_graph = true;
    open_.push_back({node, json_.first(nodes)});
    return {};
  }

  Status next_node() {
    Open& open_graph = open_.back();
    const Value value = open_graph.next_child;
    if (value == JsonDocument::kNone) {
      open_.pop_back();
      return {};
    }
    open_graph.next_child = json_.next(value);
    if (!json_.is(value, JsonKind::Object))
      return fail(Errc::Invalid, "a node is no object", json_.offset(value));
    if (graph_.nodes.size() >= kMaxGraphNodes)
      return fail(Errc::TooLarge, "more than 1048576 nodes", json_.offset(value));
    const auto index = static_cast<uint32_t>(graph_.nodes.size());
    const uint32_t parent_index = open_graph.node;
    const std::string place = joined_ids(
        graph_.nodes[parent_index].ids, std::to_string(graph_.nodes[parent_index].children.size()));
    Node node;
    ASSAY_TRY_STATUS(read_name(value, place, &node));
    ASSAY_TRY_STATUS(read_wires(value, &node));
    node.parameters = parameters_of(json_, json_.find(value, "param"));
    node.parent = parent_index;
    node.depth = graph_.nodes[parent_index].depth + 1;
    graph_.nodes[parent_index].children.push_back(index);
    graph_.nodes.push_back(std::move(node));
    return open(value, index);
  }

  /// A member that may be absent or null, and is text otherwise.
  Result<std::string> text_member(Value object, std::string_view key) const {
    const Value value = json_.find(object, key);
    if (value == JsonDocument::kNone || json_.is(value, JsonKind::Null)) return std::string();
    if (!json_.is(value, JsonKind::String))
      return fail(Errc::Invalid, "\"" + std::string(key) + "\" is no text", json_.offset(value));
    return json_.string(value);
  }
  Result<std::vector<std::string>> name_list(Value object, std::string_view key) const {
    std::vector<std::string> names;
    const Value list = json_.find(object, key);
    if (list == JsonDocument::kNone || json_.is(list, JsonKind::Null)) return names;
    if (!json_.is(list, JsonKind::Array))
      return fail(Errc::Invalid, "\"" + std::string(key) + "\" is no list", json_.offset(list));
    for (Value item = json_.first(list); item != JsonDocument::kNone; item = json_.next(item)) {
      if (!json_.is(item, JsonKind::String))
        return fail(Errc::Invalid, "\"" + std::string(key) + "\" holds something that is no name",
                    json_.offset(item));
      names.push_back(json_.string(item));
    }
    return names;
  }

  /// A node has opName and opType; a plugin of older probes has only a name.
  /// place   its ids as they follow from where it stands
  Status read_name(Value value, const std::string& place, Node* node) {
    ASSAY_TRY(node->name, text_member(value, "opName"));
    ASSAY_TRY(node->type, text_member(value, "opType"));
    ASSAY_TRY(const std::string plugin, text_member(value, "name"));
    if (node->name.empty()) {
      node->name = plugin;
      if (node->type.empty()) node->type = plugin;
      node->ids = place;
    }
    if (node->name.empty()) {
      node->name = node->type.empty() ? "unnamed" : node->type;
      if (!place.empty()) node->name += "_" + place;
      graph_.notes.push_back("the node at byte " + std::to_string(json_.offset(value)) +
                             " has no name; it is called " + node->name);
    }
    if (node->type.empty()) node->type = type_of(node->name);
    if (node->type.empty()) node->type = node->name;
    if (node->ids.empty()) node->ids = ids_of(node->name, node->type);
    return {};
  }

  Status read_wires(Value value, Node* node) const {
    ASSAY_TRY(node->inputs, name_list(value, "inTensors"));
    ASSAY_TRY(node->outputs, name_list(value, "outTensors"));
    ASSAY_TRY(node->internals, name_list(value, "internalTensors"));
    const bool has_no_wires = json_.find(value, "inTensors") == JsonDocument::kNone &&
                              json_.find(value, "outTensors") == JsonDocument::kNone;
    // The original stopped writing a node where an id named nothing.
    node->truncated =
        json_.is(json_.find(value, "truncated"), JsonKind::True) || (value != 0 && has_no_wires);
    return {};
  }

  void read_properties() {
    static constexpr std::string_view kKnown[] = {
        "opName",     "opType",          "modelName",     "name",  "param",    "inTensors",
        "outTensors", "internalTensors", "weightTensors", "nodes", "truncated"};
    for (Value member = json_.first(0); member != JsonDocument::kNone;
         member = json_.next(member)) {
      const std::string key = json_.key(member);
      if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown))
        add_parameters(json_, member, key, 0, &graph_.properties);
    }
  }

  const JsonDocument& json_;
  Graph graph_;
  std::vector<Open> open_;
};

/// Root lists from the leaves, for files whose root has none.
void derive_outside(Graph* graph) {
  Node& root = graph->nodes.front();
  if (!root.is_graph || !root.inputs.empty() || !root.outputs.empty()) return;
  std::set<std::string> produced;
  std::set<std::string> read;
  for (const uint32_t index : nodes_at_level(*graph, -1)) {
    const Node& node = graph->nodes[index];
    read.insert(node.inputs.begin(), node.inputs.end());
    produced.insert(node.outputs.begin(), node.outputs.end());
  }
  std::set<std::string> seen;
  for (const uint32_t index : nodes_at_level(*graph, -1)) {
    for (const std::string& name : graph->nodes[index].inputs) {
      if (!produced.contains(name) && seen.insert(name).second) root.inputs.push_back(name);
    }
    for (const std::string& name : graph->nodes[index].outputs) {
      const bool leaves = !read.contains(name) || name.find("_output_") != std::string::npos;
      if (leaves && seen.insert(name).second) root.outputs.push_back(name);
    }
  }
  if (!root.inputs.empty() || !root.outputs.empty())
    graph->notes.push_back("the file does not say what enters and leaves " + root.name +
                           "; it was taken from the nodes");
}

bool is_own_report(const JsonDocument& json) {
  return json.find(0, "inTensorNum") != JsonDocument::kNone &&
         json.find(0, "inTensors") == JsonDocument::kNone &&
         json.is(json.find(0, "opName"), JsonKind::String);
}

}  // namespace

Result<Graph> read_graph(std::string_view text) {
  if (is_graph_text(text)) return read_ge_graph(text);
  Result<JsonDocument> parsed = JsonDocument::parse(text, kMaxJsonDepth);
  if (!parsed) {
    // The oldest hook dump did not truncate model_tree.json, so that the end of a longer tree can
    // follow it.
    const Result<ModuleNode> tree = read_model_tree(text);
    if (tree && !tree->name.empty() && !tree->children.empty()) return graph_of_tree(*tree);
    return fail(std::move(parsed).error());
  }
  const JsonDocument json = *std::move(parsed);
  const auto has = [&](std::string_view key) { return json.find(0, key) != JsonDocument::kNone; };
  if (!json.is(0, JsonKind::Object))
    return fail(Errc::Invalid, "the file holds no JSON object, so it is no topology", 0);
  if (is_own_report(json)) {
    ASSAY_TRY(const std::string file, layer_file(json.string(json.find(0, "opName")), text));
    return read_graph(file);
  }
  if (has("children") || (has("type") && has("name") && !has("nodes"))) {
    ASSAY_TRY(const ModuleNode tree, read_model_tree(text));
    return graph_of_tree(tree);
  }
  if (!has("modelName") && !has("opName") && !has("nodes")) {
    return fail(
        Errc::Invalid,
        "the JSON has none of \"opName\", \"modelName\" and \"children\", so it is no topology", 0);
  }
  ASSAY_TRY(Graph graph,
            AtbReader(json).run(has("modelName") ? GraphKind::Model : GraphKind::Layer));
  derive_outside(&graph);
  return graph;
}

Graph graph_of_tree(const ModuleNode& tree) {
  Graph graph;
  graph.kind = GraphKind::ModuleTree;
  struct Pending {
    const ModuleNode* module;
    uint32_t parent;
  };
  std::vector<Pending> pending{{&tree, 0}};
  while (!pending.empty()) {
    const auto [module, parent] = pending.back();
    pending.pop_back();
    const auto index = static_cast<uint32_t>(graph.nodes.size());
    Node node;
    node.name = module->name.empty() ? module->type : module->name;
    node.type = module->type;
    node.is_graph = !module->children.empty();
    if (module->exec_order) {
      node.parameters.push_back(
          {"exec_order", *module->exec_order, std::to_string(*module->exec_order)});
    }
    node.parent = parent;
    if (index > 0) {
      node.depth = graph.nodes[parent].depth + 1;
      graph.nodes[parent].children.push_back(index);
    }
    graph.nodes.push_back(std::move(node));
    // Recorded order where all have it, otherwise as registered.
    std::vector<const ModuleNode*> children;
    for (const ModuleNode& child : module->children) children.push_back(&child);
    const bool has_order =
        std::all_of(children.begin(), children.end(),
                    [](const ModuleNode* child) { return child->exec_order.has_value(); });
    if (has_order) {
      std::stable_sort(
          children.begin(), children.end(),
          [](const ModuleNode* a, const ModuleNode* b) { return *a->exec_order < *b->exec_order; });
    }
    for (auto child = children.rbegin(); child != children.rend(); ++child)
      pending.push_back({*child, index});
  }
  return graph;
}

namespace {

void rename_all(const std::map<std::string, std::string>& names, std::vector<std::string>* list) {
  for (std::string& name : *list) {
    const auto renamed = names.find(name);
    if (renamed != names.end()) name = renamed->second;
  }
}

/// Appends what is inside `layer` below the last node of `graph`, which is the layer as its model
/// sees it.
void graft(const Graph& layer, Graph* graph) {
  const auto outer = static_cast<uint32_t>(graph->nodes.size() - 1);
  std::map<std::string, std::string> names;
  const auto hand_over = [&](const std::vector<std::string>& inside,
                             const std::vector<std::string>& outside) {
    for (size_t i = 0; i < inside.size() && i < outside.size(); ++i)
      names.try_emplace(inside[i], outside[i]);
  };
  hand_over(layer.root().inputs, graph->nodes[outer].inputs);
  hand_over(layer.root().outputs, graph->nodes[outer].outputs);
  graph->nodes[outer].is_graph = true;
  graph->nodes[outer].internals = layer.root().internals;
  if (graph->nodes[outer].parameters.empty())
    graph->nodes[outer].parameters = layer.root().parameters;
  for (uint32_t i = 1; i < layer.nodes.size(); ++i) {
    Node node = layer.nodes[i];
    rename_all(names, &node.inputs);
    rename_all(names, &node.outputs);
    node.parent += outer;
    node.depth += graph->nodes[outer].depth;
    node.children.clear();
    graph->nodes[node.parent].children.push_back(static_cast<uint32_t>(graph->nodes.size()));
    graph->nodes.push_back(std::move(node));
  }
}

}  // namespace

Graph with_layers(Graph model,
                  const std::function<std::optional<Graph>(const std::string& op_name)>& layer_of) {
  Graph whole;
  std::vector<uint32_t> moved_to(model.nodes.size());
  for (uint32_t i = 0; i < model.nodes.size(); ++i) {
    Node node = std::move(model.nodes[i]);
    moved_to[i] = static_cast<uint32_t>(whole.nodes.size());
    node.parent = moved_to[node.parent];
    node.children.clear();
    if (i > 0) whole.nodes[node.parent].children.push_back(moved_to[i]);
    const bool is_closed_layer =
        model.kind == GraphKind::Model && node.depth == 1 && !node.is_graph;
    const std::string name = node.name;
    whole.nodes.push_back(std::move(node));
    if (!is_closed_layer) continue;
    const std::optional<Graph> layer = layer_of(name);
    if (layer && whole.nodes.size() + layer->nodes.size() <= kMaxGraphNodes) graft(*layer, &whole);
  }
  model.nodes = std::move(whole.nodes);
  return model;
}

std::vector<uint32_t> nodes_at_level(const Graph& graph, int level) {
  if (level < -1) level = 1;
  std::vector<uint32_t> chosen;
  for (uint32_t index = 0; index < graph.nodes.size(); ++index) {
    const Node& node = graph.nodes[index];
    const bool is_leaf = node.children.empty();
    const bool is_deep_enough = level >= 0 && node.depth >= static_cast<uint32_t>(level);
    const bool is_inside_a_chosen = level >= 0 && node.depth > static_cast<uint32_t>(level);
    if ((is_leaf || is_deep_enough) && !is_inside_a_chosen) chosen.push_back(index);
  }
  return chosen;
}

// ---- types --------------------------------------------------------------------------------------

std::string type_text(const TensorType& type) {
  std::string text = type.dtype.empty() ? "?" : type.dtype;
  text += '[';
  if (!type.shape) text += '?';
  for (size_t i = 0; type.shape && i < type.shape->size(); ++i) {
    if (i > 0) text += ',';
    const std::vector<int64_t>& lengths = (*type.shape)[i];
    for (size_t k = 0; k < lengths.size(); ++k)
      text += (k > 0 ? "|" : "") + std::to_string(lengths[k]);
    if (lengths.empty()) text += '?';
  }
  return text + "]";
}

void merge_type(std::string_view dtype, const std::optional<std::vector<int64_t>>& dims,
                TensorType* type) {
  if (type->dtype.empty()) type->dtype = std::string(dtype);
  if (!dims || type->rank_varies) return;
  if (!type->shape) {
    type->shape.emplace(dims->size());
  } else if (type->shape->size() != dims->size()) {
    type->shape.reset();
    type->rank_varies = true;
    return;
  }
  for (size_t i = 0; i < dims->size(); ++i) {
    std::vector<int64_t>& lengths = (*type->shape)[i];
    const auto at = std::lower_bound(lengths.begin(), lengths.end(), (*dims)[i]);
    if (at == lengths.end() || *at != (*dims)[i]) lengths.insert(at, (*dims)[i]);
  }
}

}  // namespace assay::topology
