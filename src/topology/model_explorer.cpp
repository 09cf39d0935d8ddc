// SPDX-License-Identifier: Apache-2.0
// Wired nodes are written in the order of execution, so that the producer of a tensor is known when
// it is read. The names of the graphs around a node are its namespace.
//   docs/formats/model-explorer.md
#include "topology/model_explorer.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "topology/atb_enums.hpp"

namespace assay::topology {
namespace {

constexpr std::string_view kInputsId = "GraphInputs";
// Every node repeats its namespace, so a hostile file of deep graphs with long names must not
// multiply it.
constexpr uint32_t kMaxNamespaceDepth = 64;
constexpr size_t kMaxNamespacePart = 128;

/// Writes JSON; a comma stands before whatever follows a value.
class JsonText {
 public:
  void open(char bracket) {
    comma();
    text_ += bracket;
  }
  void close(char bracket) { text_ += bracket; }
  void key(std::string_view name) {
    comma();
    text_ += json_quote(name);
    text_ += ':';
  }
  void string(std::string_view value) {
    comma();
    text_ += json_quote(value);
  }
  void member(std::string_view name, std::string_view value) {
    key(name);
    string(value);
  }
  void line() { text_ += '\n'; }
  [[nodiscard]] std::string take() && { return std::move(text_); }

 private:
  void comma() {
    size_t last = text_.size();
    while (last > 0 && text_[last - 1] == '\n') --last;
    if (last == 0 || text_[last - 1] == '{' || text_[last - 1] == '[' || text_[last - 1] == ':')
      return;
    text_.insert(last, 1, ',');
  }
  std::string text_;
};

void add_attribute(std::string_view key, std::string_view value, JsonText* out) {
  out->open('{');
  out->member("key", key);
  out->member("value", value);
  out->close('}');
}

/// Namespaces are paths, so a slash inside a name would open a level that is none.
std::string namespace_part(const Graph& graph, const Node& node) {
  std::string part = node.name;
  if (graph.kind == GraphKind::ModuleTree) part = part.substr(part.rfind('.') + 1);
  std::replace(part.begin(), part.end(), '/', '_');
  part.resize(std::min(part.size(), kMaxNamespacePart));
  return part.empty() ? node.type : part;
}

class Exporter {
 public:
  Exporter(const Graph& graph, int level)
      : graph_(graph), wiring_(wire_level(graph, level)), namespaces_(graph.nodes.size()) {
    for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
      const Node& node = graph.nodes[i];
      // What the node itself opens; a leaf stands in its parent's.
      if (i > 0 && node.children.empty()) continue;
      if (node.depth > kMaxNamespaceDepth) {
        namespaces_[i] = namespaces_[node.parent];
      } else {
        namespaces_[i] =
            (i > 0 ? namespaces_[node.parent] + "/" : "") + namespace_part(graph, node);
      }
    }
    for (const WiredNode& wired : wiring_.nodes) ids_[wired.node] = unused_id(wired.node);
  }

  std::string run() {
    for (size_t i = 0; i < wiring_.inputs.size(); ++i)
      producers_[wiring_.inputs[i]] = {std::string(kInputsId), i};
    out_.open('{');
    out_.member("label", graph_.root().name);
    out_.key("graphs");
    out_.open('[');
    out_.open('{');
    out_.member("id", graph_.root().name);
    out_.key("nodes");
    out_.open('[');
    if (!wiring_.inputs.empty()) add_inputs_node();
    for (const WiredNode& wired : wiring_.nodes) add_node(wired);
    out_.close(']');
    add_group_attributes();
    out_.close('}');
    out_.close(']');
    out_.close('}');
    out_.line();
    return std::move(out_).take();
  }

 private:
  struct Producer {
    std::string node_id;
    size_t output = 0;
  };

  std::string unused_id(uint32_t index) {
    const Node& node = graph_.nodes[index];
    const std::string wanted = node.ids.empty() ? node.name : node.ids;
    std::string id = wanted;
    for (size_t i = 2; id == kInputsId || !used_ids_.insert(id).second; ++i)
      id = wanted + "#" + std::to_string(i);
    return id;
  }

  [[nodiscard]] const TensorType* type_of(const std::string& name) const {
    const auto version = wiring_.versions.find(name);
    const auto found =
        graph_.tensors.find(version == wiring_.versions.end() ? name : version->second);
    return found == graph_.tensors.end() ? nullptr : &found->second;
  }

  void add_tensors(std::string_view key, const std::vector<std::string>& names) {
    if (names.empty()) return;
    out_.key(key);
    out_.open('[');
    for (size_t i = 0; i < names.size(); ++i) {
      out_.open('{');
      out_.member("id", std::to_string(i));
      out_.key("attrs");
      out_.open('[');
      add_attribute("tensor_name", names[i], &out_);
      if (const TensorType* type = type_of(names[i]))
        add_attribute("tensor_shape", type_text(*type), &out_);
      out_.close(']');
      out_.close('}');
    }
    out_.close(']');
  }

  void add_inputs_node() {
    out_.line();
    out_.open('{');
    out_.member("id", kInputsId);
    out_.member("label", "inputs");
    out_.member("namespace", namespaces_[0]);
    add_tensors("outputsMetadata", wiring_.inputs);
    out_.close('}');
  }

  void add_node(const WiredNode& wired) {
    const Node& node = graph_.nodes[wired.node];
    const std::string& id = ids_.at(wired.node);
    out_.line();
    out_.open('{');
    out_.member("id", id);
    out_.member("label", node.type.empty() ? node.name : node.type);
    // A root that is drawn as one box stands in no group.
    out_.member("namespace", wired.node == 0 ? "" : namespaces_[node.parent]);
    out_.key("attrs");
    out_.open('[');
    add_attribute("opName", node.name, &out_);
    for (const Parameter& parameter : node.parameters)
      add_attribute(parameter.name, parameter_text(node, parameter), &out_);
    if (node.truncated) add_attribute("truncated", "its tensors are not all known", &out_);
    if (node.csv_row > 0) add_attribute("operation list row", std::to_string(node.csv_row), &out_);
    out_.close(']');
    add_edges(wired);
    add_tensors("inputsMetadata", wired.inputs);
    add_tensors("outputsMetadata", wired.outputs);
    out_.close('}');
    for (size_t i = 0; i < wired.outputs.size(); ++i) producers_[wired.outputs[i]] = {id, i};
  }

  void add_edges(const WiredNode& wired) {
    if (wired.inputs.empty()) return;
    out_.key("incomingEdges");
    out_.open('[');
    for (size_t i = 0; i < wired.inputs.size(); ++i) {
      const auto producer = producers_.find(wired.inputs[i]);
      if (producer == producers_.end()) continue;
      out_.open('{');
      out_.member("sourceNodeId", producer->second.node_id);
      out_.member("sourceNodeOutputId", std::to_string(producer->second.output));
      out_.member("targetNodeInputId", std::to_string(i));
      out_.close('}');
    }
    out_.close(']');
  }

  /// What is known of the graphs themselves, shown when a group is selected.
  void add_group_attributes() {
    out_.key("groupNodeAttributes");
    out_.open('{');
    if (!graph_.properties.empty()) {
      out_.key("");
      out_.open('{');
      for (const Parameter& property : graph_.properties) out_.member(property.name, property.text);
      out_.close('}');
    }
    std::set<std::string> described;
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i) {
      const Node& node = graph_.nodes[i];
      if (node.children.empty() || ids_.contains(i) || !described.insert(namespaces_[i]).second)
        continue;
      out_.key(namespaces_[i]);
      out_.open('{');
      out_.member("opType", node.type);
      if (!node.ids.empty()) out_.member("op_id", node.ids);
      for (const Parameter& parameter : node.parameters)
        out_.member(parameter.name, parameter.text);
      out_.close('}');
    }
    out_.close('}');
  }

  const Graph& graph_;
  const Wiring wiring_;
  std::vector<std::string> namespaces_;
  std::map<uint32_t, std::string> ids_;
  std::set<std::string> used_ids_;
  std::map<std::string, Producer> producers_;
  JsonText out_;
};

}  // namespace

std::string model_explorer_json(const Graph& graph, int level) {
  return Exporter(graph, level).run();
}

}  // namespace assay::topology
