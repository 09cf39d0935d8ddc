// SPDX-License-Identifier: Apache-2.0
// A node names its tensors by number, in the lists of the graph around it; a walk down with a list
// of open graphs makes names of them. A model's nodes take their layers by type, in the order of
// the reports.   docs/formats/atb-topology.md
#include "topology/atb_json.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.hpp"
#include "topology/atb_names.hpp"
#include "topology/json_document.hpp"

namespace assay::topology {
namespace {

using Value = JsonDocument::Value;

constexpr size_t kMaxParamNesting = 64;
// A graph is an object in an array, so it costs two levels of JSON.
constexpr size_t kMaxJsonDepth = 2 * kMaxNesting + kMaxParamNesting;
constexpr int64_t kMaxTensors = 1 << 16;  // of one kind at one node; real layers have below 100
constexpr size_t kMaxOpenNames = size_t{1}
                                 << 20;  // tensor names of all graphs that are open at once
constexpr size_t kMaxFileBytes = size_t{1} << 28;

/// The tensors of one operation by name; its children's ids index the three lists one after the
/// other.
struct TensorNames {
  std::vector<std::string> in;
  std::vector<std::string> out;
  std::vector<std::string> internal;

  [[nodiscard]] size_t size() const { return in.size() + out.size() + internal.size(); }
  [[nodiscard]] const std::string* at(size_t index) const {
    if (index < in.size()) return &in[index];
    index -= in.size();
    if (index < out.size()) return &out[index];
    index -= out.size();
    return index < internal.size() ? &internal[index] : nullptr;
  }
};

std::vector<std::string> numbered_names(const std::string& op_name, std::string_view kind,
                                        size_t count) {
  std::vector<std::string> names(count);
  for (size_t i = 0; i < count; ++i)
    names[i] = op_name + "_" + std::string(kind) + "_" + std::to_string(i);
  return names;
}

void append_key(std::string_view key, std::string* out) {
  if (out->back() != '{') *out += ',';
  *out += json_quote(key);
  *out += ':';
}
void append_string(std::string_view key, std::string_view value, std::string* out) {
  append_key(key, out);
  *out += json_quote(value);
}
void append_list(std::string_view key, const std::vector<std::string>& names, std::string* out) {
  append_key(key, out);
  *out += '[';
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) *out += ',';
    *out += json_quote(names[i]);
  }
  *out += ']';
}

/// A count that must be there.
Result<size_t> required_count(const JsonDocument& json, Value object, std::string_view key) {
  const Value value = json.find(object, key);
  if (value == JsonDocument::kNone)
    return fail(Errc::Invalid, "the report has no \"" + std::string(key) + "\"",
                json.offset(object));
  const std::optional<int64_t> count = json.integer(value);
  if (!count || *count < 0)
    return fail(Errc::Invalid, "\"" + std::string(key) + "\" is no count", json.offset(value));
  if (*count > kMaxTensors)
    return fail(Errc::TooLarge, "\"" + std::string(key) + "\" is more than 65536",
                json.offset(value));
  return static_cast<size_t>(*count);
}
/// A count that graphs have and others need not have.
Result<size_t> optional_count(const JsonDocument& json, Value object, std::string_view key) {
  if (json.find(object, key) == JsonDocument::kNone) return 0;
  return required_count(json, object, key);
}
Result<std::string> required_string(const JsonDocument& json, Value object, std::string_view key) {
  const Value value = json.find(object, key);
  if (value == JsonDocument::kNone)
    return fail(Errc::Invalid, "the report has no \"" + std::string(key) + "\"",
                json.offset(object));
  if (!json.is(value, JsonKind::String))
    return fail(Errc::Invalid, "\"" + std::string(key) + "\" is no text", json.offset(value));
  return json.string(value);
}

/// Writes the "nodes" of a graph, all levels, with a list of open graphs instead of recursion.
class NodesWriter {
 public:
  NodesWriter(const JsonDocument& json, std::string* out) : json_(json), out_(*out) {}

  /// Appends ,"nodes":[...] when `graph` has children.
  /// parent_ids   ids of the graph, "0_1"; for children that carry no name of their own
  Status append(Value graph, TensorNames names, std::string parent_ids) {
    ASSAY_TRY_STATUS(open(graph, std::move(names), std::move(parent_ids)));
    while (!open_.empty()) {
      Graph& innermost = open_.back();
      if (innermost.next_child == JsonDocument::kNone) {
        open_names_ -= innermost.names.size();
        open_.pop_back();
        out_ += open_.empty() ? "]" : "]}";
        continue;
      }
      const Value child = innermost.next_child;
      innermost.next_child = json_.next(child);
      if (out_.back() != '[') out_ += ',';
      ASSAY_TRY_STATUS(append_node(child));
      if (out_.size() > kMaxFileBytes)
        return fail(Errc::TooLarge, "the topology file would be larger than 256 MiB",
                    json_.offset(child));
    }
    return {};
  }

 private:
  struct Graph {
    TensorNames names;
    std::string ids;
    Value next_child;
    size_t child_index = 0;
  };

  /// Begins the list of children; a graph without any gets none.
  Status open(Value graph, TensorNames names, std::string ids) {
    const Value nodes = json_.find(graph, "nodes");
    if (nodes == JsonDocument::kNone || json_.is(nodes, JsonKind::Null)) return {};
    if (!json_.is(nodes, JsonKind::Array))
      return fail(Errc::Invalid, "\"nodes\" is no list", json_.offset(nodes));
    if (json_.first(nodes) == JsonDocument::kNone) return {};
    if (open_.size() >= kMaxNesting)
      return fail(Errc::TooLarge, "graphs are nested deeper than 1000", json_.offset(nodes));
    open_names_ += names.size();
    if (open_names_ > kMaxOpenNames)
      return fail(Errc::TooLarge, "more than 1048576 tensors in graphs inside each other",
                  json_.offset(nodes));
    append_key("nodes", &out_);
    out_ += '[';
    open_.push_back({std::move(names), std::move(ids), json_.first(nodes)});
    return {};
  }

  Status append_node(Value node) {
    Graph& parent = open_.back();
    const std::string position = std::to_string(parent.child_index++);
    if (!json_.is(node, JsonKind::Object))
      return fail(Errc::Invalid, "a node is no object", json_.offset(node));
    ASSAY_TRY(const NodeName name, name_of(node, joined_ids(parent.ids, position)));
    bool truncated = false;
    TensorNames names;
    names.in = chosen_names(node, "inTensorIds", "inTensorNum", name.op_name, &truncated);
    names.out = chosen_names(node, "outTensorIds", "outTensorNum", name.op_name, &truncated);
    ASSAY_TRY(const size_t internal_count, optional_count(json_, node, "internalTensorNum"));
    names.internal = numbered_names(name.op_name, "internal", internal_count);

    out_ += '{';
    append_string("opName", name.op_name, &out_);
    append_string("opType", name.op_type, &out_);
    if (const Value param = json_.find(node, "param"); param != JsonDocument::kNone) {
      append_key("param", &out_);
      json_.append_compact(param, &out_);
    }
    append_list("inTensors", names.in, &out_);
    append_list("outTensors", names.out, &out_);
    if (!names.internal.empty()) append_list("internalTensors", names.internal, &out_);
    if (truncated) {
      append_key("truncated", &out_);
      out_ += "true";
    }
    const size_t open_before = open_.size();
    ASSAY_TRY_STATUS(open(node, std::move(names), ids_of(name.op_name, name.op_type)));
    if (open_.size() == open_before) out_ += '}';
    return {};
  }

  struct NodeName {
    std::string op_name;
    std::string op_type;
  };
  /// ATB knows only the "name" of an operation that a user wrote; its ids follow from its place.
  Result<NodeName> name_of(Value node, const std::string& ids) const {
    const Value op_name = json_.find(node, "opName");
    const Value op_type = json_.find(node, "opType");
    const Value plugin = json_.find(node, "name");
    NodeName name;
    if (json_.is(op_type, JsonKind::String)) {
      name.op_type = json_.string(op_type);
    } else if (json_.is(plugin, JsonKind::String)) {
      name.op_type = json_.string(plugin);
    }
    if (json_.is(op_name, JsonKind::String)) {
      name.op_name = json_.string(op_name);
      if (name.op_type.empty()) name.op_type = type_of(name.op_name);
    } else if (!name.op_type.empty()) {
      name.op_name = name.op_type + (ids.empty() ? "" : "_") + ids;
    } else {
      return fail(Errc::Invalid, "a node has neither \"opName\" nor \"name\"", json_.offset(node));
    }
    return name;
  }

  /// The parent's names at the node's ids. An id that names nothing gives a name of its own, so
  /// that the ids of the node's children still count right.
  std::vector<std::string> chosen_names(Value node, std::string_view ids_key,
                                        std::string_view count_key, const std::string& op_name,
                                        bool* truncated) const {
    std::vector<std::string> chosen;
    const Value ids = json_.find(node, ids_key);
    if (!json_.is(ids, JsonKind::Array)) {
      const std::optional<int64_t> count = json_.integer(json_.find(node, count_key));
      *truncated = *truncated || ids != JsonDocument::kNone || (count && *count > 0);
      return chosen;
    }
    const TensorNames& parent = open_.back().names;
    for (Value id = json_.first(ids); id != JsonDocument::kNone; id = json_.next(id)) {
      const std::optional<int64_t> index = json_.integer(id);
      const std::string* found =
          index && *index >= 0 ? parent.at(static_cast<size_t>(*index)) : nullptr;
      if (!found) *truncated = true;
      chosen.push_back(found ? *found : op_name + "_lost_" + std::string(json_.text(id)));
    }
    return chosen;
  }

  const JsonDocument& json_;
  std::string& out_;
  std::vector<Graph> open_;
  size_t open_names_ = 0;
};

/// What a layer's report says of its outside.
struct LayerHead {
  std::string op_name;
  std::string op_type;
  size_t in_count = 0;
  size_t out_count = 0;
  size_t internal_count = 0;
};

Result<LayerHead> read_head(const JsonDocument& json) {
  if (!json.is(0, JsonKind::Object))
    return fail(Errc::Invalid, "the report is no JSON object", json.offset(0));
  LayerHead head;
  ASSAY_TRY(head.op_name, required_string(json, 0, "opName"));
  ASSAY_TRY(head.op_type, required_string(json, 0, "opType"));
  ASSAY_TRY(head.in_count, required_count(json, 0, "inTensorNum"));
  ASSAY_TRY(head.out_count, required_count(json, 0, "outTensorNum"));
  ASSAY_TRY(head.internal_count, optional_count(json, 0, "internalTensorNum"));
  return head;
}

// ---- model files --------------------------------------------------------------------------------

/// The tensors that a model's node hands to its layer, cut or filled up to the number the layer
/// has.
std::vector<std::string> handed_over(const JsonDocument& json, Value node, std::string_view key,
                                     size_t count, const std::string& op_name, bool* truncated) {
  std::vector<std::string> names;
  const Value list = json.find(node, key);
  if (json.is(list, JsonKind::Array)) {
    for (Value name = json.first(list); name != JsonDocument::kNone; name = json.next(name)) {
      names.push_back(json.is(name, JsonKind::String) ? json.string(name)
                                                      : std::string(json.text(name)));
    }
  }
  if (names.size() != count) *truncated = true;
  for (size_t i = names.size(); i < count; ++i)
    names.push_back(op_name + "_lost_" + std::string(key) + "_" + std::to_string(i));
  names.resize(count);
  return names;
}

/// Hands out the layers of each type in the order of their reports.
class LayerQueue {
 public:
  LayerQueue(std::span<const LayerReport> layers, std::map<std::string, size_t> used)
      : used_(std::move(used)) {
    for (const LayerReport& layer : layers) by_type_[layer.op_type].push_back(&layer);
  }
  const LayerReport* take(const std::string& type) {
    const auto found = by_type_.find(type);
    if (found == by_type_.end()) return nullptr;
    size_t& used = used_[type];
    return used < found->second.size() ? found->second[used++] : nullptr;
  }
  [[nodiscard]] std::map<std::string, size_t> used() && { return std::move(used_); }

 private:
  std::map<std::string, std::vector<const LayerReport*>> by_type_;
  std::map<std::string, size_t> used_;
};

/// Parameters worth copying: a graph's is "" and says nothing.
bool says_something(const JsonDocument& json, Value param) {
  if (param == JsonDocument::kNone || json.is(param, JsonKind::Null)) return false;
  return json.text(param) != "\"\"";
}

/// Appends what the layer's report adds to a model's node: param, internalTensors, nodes.
Status append_layer(const JsonDocument& model, Value node, const std::string& op_name,
                    const LayerReport& layer, std::string* out) {
  ASSAY_TRY(const JsonDocument json, JsonDocument::parse(layer.report, kMaxJsonDepth));
  ASSAY_TRY(const LayerHead head, read_head(json));
  bool truncated = false;
  TensorNames names;
  names.in = handed_over(model, node, "inTensors", head.in_count, op_name, &truncated);
  names.out = handed_over(model, node, "outTensors", head.out_count, op_name, &truncated);
  names.internal = numbered_names(op_name, "internal", head.internal_count);
  const Value param = json.find(0, "param");
  if (says_something(json, param) && model.find(node, "param") == JsonDocument::kNone) {
    append_key("param", out);
    json.append_compact(param, out);
  }
  if (!names.internal.empty() && model.find(node, "internalTensors") == JsonDocument::kNone)
    append_list("internalTensors", names.internal, out);
  if (truncated) {
    append_key("truncated", out);
    *out += "true";
  }
  return NodesWriter(json, out).append(0, std::move(names), ids_of(op_name, head.op_type));
}

/// One element of a model's "nodes": its members as they came, with its true name, then its layer.
Status append_model_node(const JsonDocument& model, Value node, LayerQueue* layers,
                         size_t node_number, std::string* out) {
  if (!model.is(node, JsonKind::Object))
    return fail(Errc::Invalid, "a node of the model is no object", model.offset(node));
  Value name = model.find(node, "opName");
  if (!model.is(name, JsonKind::String)) name = model.find(node, "name");
  if (!model.is(name, JsonKind::String))
    return fail(Errc::Invalid, "a node of the model has no \"opName\"", model.offset(node));
  const std::string type = model.string(name);
  const LayerReport* layer = layers->take(type);
  const std::string op_name = layer ? layer->op_name : type + "_" + std::to_string(node_number);

  *out += '{';
  bool has_name = false;
  bool has_type = false;
  for (Value member = model.first(node); member != JsonDocument::kNone;
       member = model.next(member)) {
    const std::string key = model.key(member);
    if (key == "opName") {
      if (!std::exchange(has_name, true)) append_string(key, op_name, out);
    } else if (key == "opType") {
      if (!std::exchange(has_type, true)) append_string(key, type, out);
    } else {
      append_key(key, out);
      model.append_compact(member, out);
    }
  }
  if (!has_name) append_string("opName", op_name, out);
  if (!has_type) append_string("opType", type, out);
  const bool has_own_nodes = model.find(node, "nodes") != JsonDocument::kNone;
  if (layer && !has_own_nodes) {
    // The report passed layer_file() when it came; one that does not any more leaves the node a
    // leaf.
    const size_t before = out->size();
    if (!append_layer(model, node, op_name, *layer, out)) out->resize(before);
  }
  *out += '}';
  if (out->size() > kMaxFileBytes)
    return fail(Errc::TooLarge, "the topology file would be larger than 256 MiB",
                model.offset(node));
  return {};
}

}  // namespace

Result<std::string> layer_file(std::string_view op_name, std::string_view report) {
  ASSAY_TRY(const JsonDocument json, JsonDocument::parse(report, kMaxJsonDepth));
  ASSAY_TRY(const LayerHead head, read_head(json));
  if (head.op_name != op_name) {
    return fail(Errc::Invalid,
                "the report of " + repair_utf8(op_name) + " calls itself " + head.op_name,
                json.offset(json.find(0, "opName")));
  }
  TensorNames names;
  names.in = numbered_names(head.op_name, "input", head.in_count);
  names.out = numbered_names(head.op_name, "output", head.out_count);
  names.internal = numbered_names(head.op_name, "internal", head.internal_count);
  std::string out = "{";
  append_string("opName", head.op_name, &out);
  append_string("opType", head.op_type, &out);
  if (const Value param = json.find(0, "param"); param != JsonDocument::kNone) {
    append_key("param", &out);
    json.append_compact(param, &out);
  }
  append_list("inTensors", names.in, &out);
  append_list("outTensors", names.out, &out);
  if (!names.internal.empty()) append_list("internalTensors", names.internal, &out);
  ASSAY_TRY_STATUS(
      NodesWriter(json, &out).append(0, std::move(names), ids_of(head.op_name, head.op_type)));
  out += '}';
  return out;
}

Result<std::string> model_file(std::string_view report, std::span<const LayerReport> layers,
                               ModelMerge* merge) {
  ASSAY_TRY(const JsonDocument model, JsonDocument::parse(report, kMaxJsonDepth));
  if (!model.is(0, JsonKind::Object))
    return fail(Errc::Invalid, "the model's report is no JSON object", model.offset(0));
  ASSAY_TRY([[maybe_unused]] const std::string name, required_string(model, 0, "modelName"));
  LayerQueue queue(layers, merge->used_by_type);
  size_t node_count = merge->node_count;
  const Value nodes = model.find(0, "nodes");

  std::string out = "{";
  for (Value member = model.first(0); member != JsonDocument::kNone; member = model.next(member)) {
    append_key(model.key(member), &out);
    if (member != nodes || !model.is(nodes, JsonKind::Array)) {
      model.append_compact(member, &out);
      continue;
    }
    out += '[';
    for (Value node = model.first(nodes); node != JsonDocument::kNone; node = model.next(node)) {
      if (out.back() != '[') out += ',';
      ASSAY_TRY_STATUS(append_model_node(model, node, &queue, node_count++, &out));
    }
    out += ']';
  }
  out += '}';
  merge->used_by_type = std::move(queue).used();
  merge->node_count = node_count;
  return out;
}

}  // namespace assay::topology
