// SPDX-License-Identifier: Apache-2.0
// Operators of any of the three forms (GraphDef, NodeDef, ONNX) become nodes, and edges such as
// "Add_1:0" the names of tensors. Then fusion: a graph around the members of each fused operator.
//   docs/formats/graph-text.md
#include "topology/ge_graph.hpp"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/text.hpp"
#include "formats/graph_text.hpp"
#include "formats/protobuf_text.hpp"

namespace assay::topology {
namespace {

using formats::TextDocument;
using Field = TextDocument::Field;

constexpr const char* kMembers = "_datadump_original_op_names";
constexpr int64_t kUnknownRank = -2;
constexpr size_t kMaxNotes = 20;

/// Calls take(field) for each field of a message.
template <typename Take>
void each(const TextDocument& document, Field message, Take take) {
  if (message == TextDocument::kNone) return;
  for (Field field = document.first(message); field != TextDocument::kNone;
       field = document.next(field))
    take(field);
}

std::string string_of(const TextDocument& document, Field message, std::string_view name) {
  const Field field = document.find(message, name);
  return field == TextDocument::kNone ? "" : repair_utf8(document.string(field));
}

// ---- values of attributes -----------------------------------------------------------------------

/// "float32" for DT_FLOAT; empty for DT_UNDEFINED.
std::string dtype_word(std::string_view name) {
  if (name.starts_with("DT_")) name.remove_prefix(3);
  if (name.empty() || name == "UNDEFINED") return "";
  if (name == "FLOAT") return "float32";
  if (name == "DOUBLE") return "float64";
  if (name == "BF16") return "bfloat16";
  std::string word(name);
  std::transform(word.begin(), word.end(), word.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return word;
}

std::optional<std::vector<int64_t>> dims_of(const TextDocument& document, Field descriptor) {
  const Field shape = document.find(descriptor, "shape");
  if (shape == TextDocument::kNone) return std::nullopt;
  std::vector<int64_t> dims;
  each(document, shape, [&](Field dim) {
    if (document.name(dim) == "dim") dims.push_back(document.integer(dim).value_or(-1));
  });
  if (dims.size() == 1 && dims[0] == kUnknownRank) return std::nullopt;
  return dims;
}

TensorType type_of(const TextDocument& document, Field descriptor) {
  TensorType type;
  const Field dtype = document.find(descriptor, "dtype");
  if (dtype != TextDocument::kNone) type.dtype = dtype_word(repair_utf8(document.string(dtype)));
  if (const auto dims = dims_of(document, descriptor)) {
    type.shape.emplace();
    // A dynamic dimension has no lengths that anybody saw.
    for (const int64_t dim : *dims)
      type.shape->push_back(dim < 0 ? std::vector<int64_t>{} : std::vector<int64_t>{dim});
  }
  return type;
}

/// "int16[3,2], 12 bytes" of a TensorDef.
std::string tensor_text(const TextDocument& document, Field tensor) {
  const Field data = document.find(tensor, "data");
  const size_t size = data == TextDocument::kNone ? 0 : document.string(data).size();
  return type_text(type_of(document, document.find(tensor, "desc"))) + ", " + std::to_string(size) +
         " bytes";
}

std::string graph_summary(const TextDocument& document, Field graph) {
  size_t count = 0;
  each(document, graph, [&](Field field) { count += document.name(field) == "op"; });
  return "graph " + string_of(document, graph, "name") + " of " + std::to_string(count) +
         (count == 1 ? " operator" : " operators");
}

/// A message whose content is numbers only: [[1,2],[3]].
std::string nested_numbers(const TextDocument& document, Field message) {
  std::string text = "[";
  each(document, message, [&](Field field) {
    if (text.size() > 1) text += ',';
    text += document.kind(field) == TextDocument::Kind::Message ? nested_numbers(document, field)
                                                                : repair_utf8(document.text(field));
  });
  return text + "]";
}

Parameter::Value number_of(const TextDocument& document, Field field) {
  if (const auto integer = document.integer(field)) return *integer;
  return repair_utf8(document.string(field));
}

Parameter::Value real_of(const TextDocument& document, Field field) {
  if (const auto real = document.real(field)) return *real;
  return repair_utf8(document.string(field));
}

bool truth_of(std::string_view word) {
  return word == "true" || word == "True" || word == "t" || word == "1";
}

/// One value of AttrDef or ListValue, by the name of its field.
Parameter::Value value_of(const TextDocument& document, Field field) {
  const std::string_view kind = document.name(field);
  if (document.kind(field) == TextDocument::Kind::Message) {
    if (kind == "t") return tensor_text(document, field);
    if (kind == "td") return type_text(type_of(document, field));
    if (kind == "g") return graph_summary(document, field);
    if (kind == "func" || kind == "na") return "function " + string_of(document, field, "name");
    return nested_numbers(document, field);
  }
  if (kind == "i" || kind == "dt") return number_of(document, field);
  if (kind == "f") return real_of(document, field);
  if (kind == "b") return truth_of(document.text(field));
  return repair_utf8(document.string(field));
}

/// A list whose elements all have one type, or texts.
Parameter::Value list_of(const TextDocument& document, Field list) {
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::vector<std::string> texts;
  size_t count = 0;
  each(document, list, [&](Field field) {
    if (document.name(field) == "val_type") return;
    ++count;
    Parameter::Value value = value_of(document, field);
    if (const auto* integer = std::get_if<int64_t>(&value)) integers.push_back(*integer);
    if (const auto* truth = std::get_if<bool>(&value)) integers.push_back(*truth ? 1 : 0);
    if (const auto* real = std::get_if<double>(&value)) reals.push_back(*real);
    if (auto* text = std::get_if<std::string>(&value)) texts.push_back(std::move(*text));
  });
  if (integers.size() == count && count > 0) return integers;
  if (reals.size() == count && count > 0) return reals;
  return texts;
}

struct ValueText {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(bool value) const { return value ? "true" : "false"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return python_repr(value); }
  std::string operator()(const std::string& value) const { return value; }
  template <typename T>
  std::string operator()(const std::vector<T>& values) const {
    std::string text = "[";
    for (const T& value : values) text += (text.size() > 1 ? "," : "") + (*this)(value);
    return text + "]";
  }
};

void add_parameter(std::string name, Parameter::Value value, std::vector<Parameter>* out) {
  std::string text = std::visit(ValueText{}, value);
  out->push_back({std::move(name), std::move(value), std::move(text)});
}

/// The value of an AttrDef.
Parameter::Value attribute_value(const TextDocument& document, Field definition) {
  Parameter::Value value;
  each(document, definition, [&](Field field) {
    value = document.name(field) == "list" ? list_of(document, field) : value_of(document, field);
  });
  return value;
}

/// attr { key: "k" value { ... } }, of protobuf's map.
void add_map_entry(const TextDocument& document, Field entry, const std::string& prefix,
                   std::vector<Parameter>* out) {
  Parameter::Value value = attribute_value(document, document.find(entry, "value"));
  add_parameter(prefix + string_of(document, entry, "key"), std::move(value), out);
}

/// attribute { name: "k" type: INT i: 5 }, of ONNX.
void add_onnx_attribute(const TextDocument& document, Field entry, std::vector<Parameter>* out) {
  std::vector<int64_t> integers;
  std::vector<std::string> texts;
  Parameter::Value value;
  each(document, entry, [&](Field field) {
    const std::string_view kind = document.name(field);
    if (kind == "i" || kind == "f" || kind == "s" || kind == "g") {
      value = value_of(document, field);
    } else if (kind == "ints") {
      if (const auto integer = document.integer(field)) integers.push_back(*integer);
    } else if (kind == "strings" || kind == "floats") {
      texts.push_back(repair_utf8(document.string(field)));
    } else if (kind == "t") {
      value = "tensor " + string_of(document, field, "name");
    }
  });
  if (!integers.empty()) value = integers;
  if (!texts.empty()) value = texts;
  add_parameter(string_of(document, entry, "name"), std::move(value), out);
}

/// The type of a ValueInfoProto. A tensor without known type or shape is written as one of type 0
/// without dimensions, so that this says nothing about its rank.
TensorType onnx_type_of(const TextDocument& document, Field value_info) {
  constexpr std::string_view kWords[] = {"",           "float32", "uint8",  "int8",   "uint16",
                                         "int16",      "int32",   "int64",  "string", "bool",
                                         "float16",    "float64", "uint32", "uint64", "complex64",
                                         "complex128", "bfloat16"};
  TensorType type;
  const Field tensor = document.find(document.find(value_info, "type"), "tensor_type");
  const Field number = document.find(tensor, "elem_type");
  if (number == TextDocument::kNone) return type;
  const int64_t element = document.integer(number).value_or(0);
  if (element > 0 && element < static_cast<int64_t>(std::size(kWords)))
    type.dtype = kWords[static_cast<size_t>(element)];
  const Field shape = document.find(tensor, "shape");
  if (type.dtype.empty() || shape == TextDocument::kNone) return type;
  type.shape.emplace();
  each(document, shape, [&](Field dim) {
    const Field value = document.find(dim, "dim_value");
    const std::optional<int64_t> length =
        value == TextDocument::kNone ? std::nullopt : document.integer(value);
    type.shape->push_back(length && *length >= 0 ? std::vector<int64_t>{*length}
                                                 : std::vector<int64_t>{});
  });
  return type;
}

// ---- operators ----------------------------------------------------------------------------------

/// "Add:0" for "Add", "Add:-1" for "^Add": an edge of any of the forms as the engine writes it.
std::string full_edge(std::string edge) {
  if (edge.starts_with('^')) return edge.substr(1) + ":-1";
  if (edge.empty() || edge.find(':') != std::string::npos) return edge;
  return edge + ":0";
}

/// What a text of one graph says, before edges become tensors.
struct GeOperator {
  std::string name;
  std::string type;
  std::vector<std::string> edges;
  std::vector<std::string> named_outputs;  // ONNX names its tensors
  std::vector<TensorType> outputs;         // of output_desc
  std::vector<Parameter> parameters;
};

class GraphReader {
 public:
  explicit GraphReader(const TextDocument& document) : document_(document) {}

  Result<Graph> run() {
    std::vector<Field> graphs;
    each(document_, 0, [&](Field field) {
      if (document_.name(field) == "graph" && document_.kind(field) == TextDocument::Kind::Message)
        graphs.push_back(field);
    });
    graph_.kind = GraphKind::Engine;
    graph_.nodes.emplace_back();
    graph_.nodes[0].is_graph = true;
    if (graphs.size() > 1) {
      graph_.nodes[0].name = string_of(document_, 0, "name");
      graph_.nodes[0].type = "Model";
      for (const Field graph : graphs) ASSAY_TRY_STATUS(add_graph(graph, 0));
      graph_.nodes[0].outputs = graph_.nodes[graph_.nodes[0].children.front()].outputs;
    } else {
      ASSAY_TRY_STATUS(read_graph(graphs.empty() ? 0 : graphs[0], 0, ""));
      if (graph_.nodes[0].children.empty())
        return fail(Errc::Invalid, "the text holds no operator, so it is no graph", 0);
    }
    if (graph_.nodes[0].name.empty()) graph_.nodes[0].name = "graph";
    if (!graphs.empty()) add_model_properties();
    return std::move(graph_);
  }

 private:
  Status add_graph(Field field, uint32_t parent) {
    const auto index = static_cast<uint32_t>(graph_.nodes.size());
    Node& node = graph_.nodes.emplace_back();
    node.parent = parent;
    node.depth = graph_.nodes[parent].depth + 1;
    node.is_graph = true;
    graph_.nodes[parent].children.push_back(index);
    std::string prefix = string_of(document_, field, "name");
    if (prefix.empty()) prefix = "graph_" + std::to_string(index);
    graph_.nodes[index].name = prefix;
    return read_graph(field, index, prefix + "/");
  }

  /// prefix   stands in front of the names of the graph's tensors
  Status read_graph(Field field, uint32_t index, const std::string& prefix) {
    std::vector<GeOperator> operators;
    each(document_, field, [&](Field member) {
      if (document_.kind(member) != TextDocument::Kind::Message) return;
      const std::string_view name = document_.name(member);
      if (name == "op" || name == "node") operators.push_back(read_operator(member));
      if (name == "attr")
        add_map_entry(document_, member, "",
                      index == 0 ? &graph_.properties : &graph_.nodes[index].parameters);
    });
    if (graph_.nodes.size() + operators.size() > kMaxGraphNodes)
      return fail(Errc::TooLarge, "more than 1048576 operators", document_.offset(field));
    if (graph_.nodes[index].name.empty())
      graph_.nodes[index].name = string_of(document_, field, "name");
    graph_.nodes[index].type = "Graph";
    add_outside(field, prefix, &graph_.nodes[index]);
    wire_operators(std::move(operators), index, prefix);
    return {};
  }

  /// Tensors that ONNX declares: those of the graph as a whole, and types of the others.
  void add_outside(Field field, const std::string& prefix, Node* graph) {
    each(document_, field, [&](Field member) {
      if (document_.kind(member) != TextDocument::Kind::Message) return;
      const std::string_view role = document_.name(member);
      if (role != "input" && role != "output" && role != "value_info") return;
      const std::string name = prefix + string_of(document_, member, "name");
      if (role == "input") graph->inputs.push_back(name);
      if (role == "output") graph->outputs.push_back(name);
      const TensorType type = onnx_type_of(document_, member);
      if (!type.dtype.empty() || type.shape) graph_.tensors.try_emplace(name, type);
    });
  }

  [[nodiscard]] GeOperator read_operator(Field field) const {
    GeOperator out;
    const bool is_node_def = document_.find(field, "op") != TextDocument::kNone;
    each(document_, field, [&](Field member) {
      const std::string_view name = document_.name(member);
      const auto text = [&] { return repair_utf8(document_.string(member)); };
      if (name == "name") out.name = text();
      if (name == "type" || name == "op" || name == "op_type") out.type = text();
      if (name == "input") out.edges.push_back(text());
      if (name == "output") out.named_outputs.push_back(text());
      if (document_.kind(member) != TextDocument::Kind::Message) {
        if (name == "stream_id")
          add_parameter("stream_id", number_of(document_, member), &out.parameters);
        return;
      }
      if (name == "attr" && is_node_def) add_node_def_attribute(member, &out);
      if (name == "attr" && !is_node_def) add_map_entry(document_, member, "", &out.parameters);
      if (name == "attribute") add_onnx_attribute(document_, member, &out.parameters);
      if (name == "input_desc") add_operand(document_, member, "input", &out.parameters);
      if (name == "output_desc") {
        out.outputs.push_back(type_of(document_, member));
        add_operand(document_, member, "output", &out.parameters);
      }
    });
    return out;
  }

  /// In a NodeDef the values are texts: of an AttrDef, and in "[o]y" of an operand's descriptor.
  void add_node_def_attribute(Field entry, GeOperator* out) const {
    const std::string key = string_of(document_, entry, "key");
    const std::string text = string_of(document_, document_.find(entry, "value"), "s");
    const Result<TextDocument> inner = TextDocument::parse(text);
    if (!inner || inner->first(0) == TextDocument::kNone)
      return add_map_entry(document_, entry, "", &out->parameters);
    const std::string role = key.starts_with("[o]") ? "output" : "input";
    if (key.starts_with("[i]") || key.starts_with("[o]")) {
      if (role == "output") out->outputs.push_back(type_of(*inner, 0));
      return add_operand(*inner, 0, role, &out->parameters);
    }
    add_parameter(key, attribute_value(*inner, 0), &out->parameters);
  }

  /// The attributes of an operand, and its layout where it is not the usual one.
  static void add_operand(const TextDocument& document, Field descriptor, const std::string& role,
                          std::vector<Parameter>* out) {
    const std::string prefix = role + "." + string_of(document, descriptor, "name") + ".";
    const std::string layout = string_of(document, descriptor, "layout");
    if (!layout.empty() && layout != "ND") add_parameter(prefix + "layout", layout, out);
    each(document, descriptor, [&](Field member) {
      if (document.name(member) == "attr") add_map_entry(document, member, prefix, out);
    });
  }

  /// Gives every operator the tensors that others read of it.
  void wire_operators(std::vector<GeOperator> operators, uint32_t parent,
                      const std::string& prefix) {
    const bool names_tensors =
        std::any_of(operators.begin(), operators.end(),
                    [](const GeOperator& op) { return !op.named_outputs.empty(); });
    // Indices of outputs that edges read, by producer; -1 is a control edge.
    std::unordered_map<std::string, std::set<int64_t>> read_of;
    if (!names_tensors) {
      for (GeOperator& op : operators) {
        for (std::string& edge : op.edges) {
          edge = full_edge(std::move(edge));
          const auto [producer, output] = formats::split_graph_edge(edge);
          if (!edge.empty()) read_of[std::string(producer)].insert(output);
        }
      }
    }
    std::set<std::string> used;
    for (GeOperator& op : operators) {
      if (!used.insert(op.name).second && !op.name.empty())
        note("two operators are called " + op.name);
      const auto index = static_cast<uint32_t>(graph_.nodes.size());
      graph_.nodes[parent].children.push_back(index);
      Node node;
      node.parent = parent;
      node.depth = graph_.nodes[parent].depth + 1;
      for (const std::string& edge : op.edges)
        node.inputs.push_back(edge.empty() ? "" : prefix + edge);
      for (const std::string& name : op.named_outputs)
        node.outputs.push_back(name.empty() ? "" : prefix + name);
      if (!names_tensors) add_outputs(op, read_of, prefix, &node);
      if (op.type == "NetOutput") {
        std::vector<std::string>& outputs = graph_.nodes[parent].outputs;
        outputs.insert(outputs.end(), node.inputs.begin(), node.inputs.end());
      }
      node.name = std::move(op.name);
      node.type = std::move(op.type);
      node.parameters = std::move(op.parameters);
      graph_.nodes.push_back(std::move(node));
    }
  }

  void add_outputs(const GeOperator& op,
                   const std::unordered_map<std::string, std::set<int64_t>>& read_of,
                   const std::string& prefix, Node* node) {
    const auto described = static_cast<int64_t>(op.outputs.size());
    for (int64_t i = 0; i < described; ++i) {
      const std::string name = prefix + op.name + ":" + std::to_string(i);
      node->outputs.push_back(name);
      const TensorType& type = op.outputs[static_cast<size_t>(i)];
      if (!type.dtype.empty() || type.shape) graph_.tensors.try_emplace(name, type);
    }
    const auto read = read_of.find(op.name);
    if (read == read_of.end()) return;
    for (const int64_t output : read->second) {
      if (output >= 0 && output < described) continue;
      node->outputs.push_back(prefix + op.name + ":" + std::to_string(output));
    }
  }

  void add_model_properties() {
    each(document_, 0, [&](Field field) {
      if (document_.kind(field) == TextDocument::Kind::Message) {
        if (document_.name(field) == "attr")
          add_map_entry(document_, field, "", &graph_.properties);
        return;
      }
      const std::string name(document_.name(field));
      if (name == "name") {
        add_parameter("model", repair_utf8(document_.string(field)), &graph_.properties);
      } else {
        add_parameter(name, number_of(document_, field), &graph_.properties);
      }
    });
  }

  void note(std::string text) {
    if (graph_.notes.size() < kMaxNotes) graph_.notes.push_back(std::move(text));
  }

  const TextDocument& document_;
  Graph graph_;
};

// ---- fusion -------------------------------------------------------------------------------------

const std::vector<std::string>* members_of(const Node& node) {
  for (const Parameter& parameter : node.parameters) {
    if (parameter.name == kMembers) return std::get_if<std::vector<std::string>>(&parameter.value);
  }
  return nullptr;
}

/// Rebuilds a graph with groups; descendants follow their ancestor without a gap, as Graph wants
/// it.
class Grouping {
 public:
  Grouping(const Graph& original, const Graph& fused) : original_(original), fused_(fused) {
    for (const Node& node : original.nodes) {
      if (node.is_graph) continue;
      for (const std::string& name : node.inputs) ++readers_[name];
    }
    for (const std::string& name : original.root().outputs) ++readers_[name];
    out_ = original;
    out_.nodes.clear();
  }

  Graph run() && {
    out_.nodes.push_back(original_.root());
    out_.nodes[0].children.clear();
    add_children(0, 0);
    return std::move(out_);
  }

 private:
  struct Group {
    const Node* fused = nullptr;
    std::vector<uint32_t> members;  // in the order of execution
    bool is_written = false;
  };

  void add_children(uint32_t from, uint32_t to) {
    std::vector<uint32_t> group_of(original_.nodes.size(), 0);  // place in `groups` + 1; 0 is none
    std::vector<Group> groups = groups_in(from, &group_of);
    for (const uint32_t child : original_.nodes[from].children) {
      const Node& node = original_.nodes[child];
      if (group_of[child] == 0) {
        const uint32_t index = append(node, to);
        if (node.is_graph) add_children(child, index);
        continue;
      }
      // A group stands where its first member stood.
      Group& group = groups[group_of[child] - 1];
      if (std::exchange(group.is_written, true)) continue;
      const uint32_t index = append(around(group), to);
      for (const uint32_t member : group.members) append(original_.nodes[member], index);
    }
  }

  std::vector<Group> groups_in(uint32_t graph, std::vector<uint32_t>* group_of) {
    std::unordered_map<std::string, uint32_t> by_name;
    for (const uint32_t child : original_.nodes[graph].children) {
      if (!original_.nodes[child].is_graph) by_name.emplace(original_.nodes[child].name, child);
    }
    std::vector<Group> groups;
    if (by_name.empty()) return groups;
    for (const Node& node : fused_.nodes) {
      const std::vector<std::string>* names = members_of(node);
      if (names == nullptr || names->size() < 2 || !stands_for(fused_.nodes[node.parent], graph))
        continue;
      Group group{&node, {}};
      for (const std::string& name : *names) {
        const auto member = by_name.find(name);
        const bool is_known = member != by_name.end();
        if (is_known && (*group_of)[member->second] == 0) {
          (*group_of)[member->second] = static_cast<uint32_t>(groups.size() + 1);
          group.members.push_back(member->second);
        } else if (out_.notes.size() < kMaxNotes) {
          out_.notes.push_back(node.name + ": its member " + name +
                               (is_known ? " is in two groups" : " is not in the graph"));
        }
      }
      if (group.members.size() < 2) {
        for (const uint32_t member : group.members) (*group_of)[member] = 0;
        continue;
      }
      std::sort(group.members.begin(), group.members.end());
      groups.push_back(std::move(group));
    }
    return groups;
  }

  /// Names are per graph; a text with one graph needs no name to be found.
  [[nodiscard]] bool stands_for(const Node& fused_graph, uint32_t graph) const {
    return &fused_graph == &fused_.root() || graph == 0 ||
           fused_graph.name == original_.nodes[graph].name;
  }

  /// The group as a graph, with what its members take from outside and give to it.
  [[nodiscard]] Node around(const Group& group) const {
    Node node;
    node.name = group.fused->name;
    node.type = group.fused->type;
    node.parameters = group.fused->parameters;
    node.is_graph = true;
    std::map<std::string, size_t> inside;
    std::set<std::string> written;
    for (const uint32_t member : group.members) {
      const Node& inner = original_.nodes[member];
      written.insert(inner.outputs.begin(), inner.outputs.end());
      for (const std::string& name : inner.inputs) ++inside[name];
    }
    std::set<std::string> taken;
    for (const uint32_t member : group.members) {
      for (const std::string& name : original_.nodes[member].inputs) {
        if (!name.empty() && !written.contains(name) && taken.insert(name).second)
          node.inputs.push_back(name);
      }
      for (const std::string& name : original_.nodes[member].outputs) {
        const auto all = readers_.find(name);
        if (all != readers_.end() && all->second > inside[name]) node.outputs.push_back(name);
      }
    }
    return node;
  }

  uint32_t append(Node node, uint32_t parent) {
    const auto index = static_cast<uint32_t>(out_.nodes.size());
    node.parent = parent;
    node.depth = out_.nodes[parent].depth + 1;
    node.children.clear();
    out_.nodes[parent].children.push_back(index);
    out_.nodes.push_back(std::move(node));
    return index;
  }

  const Graph& original_;
  const Graph& fused_;
  std::map<std::string, size_t> readers_;  // of each tensor, outputs of the whole among them
  Graph out_;
};

}  // namespace

bool is_graph_text(std::string_view text) {
  size_t at = 0;
  const auto skip_blanks = [&] {
    while (at < text.size() &&
           (std::isspace(static_cast<unsigned char>(text[at])) != 0 || text[at] == '#')) {
      if (text[at] == '#') at = std::min(text.find('\n', at), text.size());
      if (at < text.size()) ++at;
    }
  };
  skip_blanks();
  const size_t start = at;
  while (at < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_'))
    ++at;
  if (at == start) return false;
  skip_blanks();
  return at < text.size() && (text[at] == ':' || text[at] == '{' || text[at] == '<');
}

Result<Graph> read_ge_graph(std::string_view text) {
  ASSAY_TRY(const TextDocument document, TextDocument::parse(text));
  return GraphReader(document).run();
}

Graph group_by_fusion(const Graph& original, const Graph& fused) {
  return Grouping(original, fused).run();
}

}  // namespace assay::topology
