// SPDX-License-Identifier: Apache-2.0
// Messages are written field by field: nodes, the graph's inputs and outputs, operator sets,
// functions. In the hierarchical form a graph is a function, inner ones first; graphs whose bodies
// are equal under canonical names may share one.
#include "topology/onnx_export.hpp"

#include <algorithm>
#include <protozero/pbf_writer.hpp>
#include <set>
#include <utility>

#include "topology/atb_enums.hpp"
#include "topology/shapes.hpp"

namespace assay::topology {
namespace {

using protozero::pbf_writer;

constexpr int64_t kIrVersion = 8;  // the first with functions; older checkers refuse 10

/// The operator sets by the source of the graph.
struct Domains {
  const char* operators;
  const char* functions;
};
Domains domains_of(const Graph& graph) {
  if (graph.kind == GraphKind::Engine) return {"ge", "ge.graph"};
  return {"atb", "atb.graph"};
}

// Field numbers of onnx.proto, by message.
namespace model {
enum : uint32_t {
  IrVersion = 1,
  ProducerName = 2,
  ProducerVersion = 3,
  Graph = 7,
  OpsetImport = 8,
  Functions = 25
};
}
namespace opset {
enum : uint32_t { Domain = 1, Version = 2 };
}
namespace graph_field {
enum : uint32_t { Node = 1, Name = 2, DocString = 10, Input = 11, Output = 12, ValueInfo = 13 };
}
namespace function_field {
enum : uint32_t {
  Name = 1,
  Input = 4,
  Output = 5,
  Node = 7,
  DocString = 8,
  OpsetImport = 9,
  Domain = 10
};
}
namespace node_field {
enum : uint32_t {
  Input = 1,
  Output = 2,
  Name = 3,
  OpType = 4,
  Attribute = 5,
  DocString = 6,
  Domain = 7
};
}
namespace attribute {
enum : uint32_t {
  Name = 1,
  Float = 2,
  Int = 3,
  String = 4,
  Floats = 7,
  Ints = 8,
  Strings = 9,
  Type = 20
};
enum : int32_t {
  FloatType = 1,
  IntType = 2,
  StringType = 3,
  FloatsType = 6,
  IntsType = 7,
  StringsType = 8
};
}  // namespace attribute
namespace value_info {
enum : uint32_t { Name = 1, Type = 2 };
}
namespace type_field {
enum : uint32_t { Tensor = 1 };
}
namespace tensor_field {
enum : uint32_t { ElementType = 1, Shape = 2 };
}
namespace shape_field {
enum : uint32_t { Dim = 1 };
}
namespace dim_field {
enum : uint32_t { Value = 1, Param = 2 };
}

// ---- attributes ---------------------------------------------------------------------------------

struct TypedAttribute {
  pbf_writer& out;

  // A null says nothing that the absence of the attribute would not say.
  void operator()(std::monostate) const {}
  void operator()(bool value) const { (*this)(int64_t{value}); }
  void operator()(int64_t value) const {
    out.add_int64(attribute::Int, value);
    out.add_enum(attribute::Type, attribute::IntType);
  }
  void operator()(double value) const {
    out.add_float(attribute::Float, static_cast<float>(value));
    out.add_enum(attribute::Type, attribute::FloatType);
  }
  void operator()(const std::string& value) const {
    out.add_bytes(attribute::String, value);
    out.add_enum(attribute::Type, attribute::StringType);
  }
  // proto2 lists: onnx.proto declares them unpacked, one field an element.
  void operator()(const std::vector<int64_t>& values) const {
    for (const int64_t value : values) out.add_int64(attribute::Ints, value);
    out.add_enum(attribute::Type, attribute::IntsType);
  }
  void operator()(const std::vector<double>& values) const {
    for (const double value : values) out.add_float(attribute::Floats, static_cast<float>(value));
    out.add_enum(attribute::Type, attribute::FloatsType);
  }
  void operator()(const std::vector<std::string>& values) const {
    for (const std::string& value : values) out.add_bytes(attribute::Strings, value);
    out.add_enum(attribute::Type, attribute::StringsType);
  }
};

/// The original's two types: a text is STRINGS, all else FLOATS, and whatever is zero or nothing
/// has no element.
struct CompatAttribute {
  pbf_writer& out;

  void operator()(std::monostate) const { floats({}); }
  void operator()(bool value) const { floats({value ? 1.0 : 0.0}, true); }
  void operator()(int64_t value) const { floats({static_cast<double>(value)}, true); }
  void operator()(double value) const { floats({value}, true); }
  void operator()(const std::string& value) const { TypedAttribute{out}(std::vector{value}); }
  void operator()(const std::vector<int64_t>& values) const {
    floats({values.begin(), values.end()});
  }
  void operator()(const std::vector<double>& values) const { floats(values); }
  void operator()(const std::vector<std::string>& values) const { TypedAttribute{out}(values); }

 private:
  void floats(std::vector<double> values, bool without_zero = false) const {
    if (without_zero && values.front() == 0.0) values.clear();
    TypedAttribute{out}(values);
  }
};

void add_attributes(const Node& node, bool compat, pbf_writer* out) {
  for (const Parameter& parameter : node.parameters) {
    if (!compat && std::holds_alternative<std::monostate>(parameter.value)) continue;
    pbf_writer written(*out, node_field::Attribute);
    written.add_string(attribute::Name, parameter.name);
    if (compat) {
      std::visit(CompatAttribute{written}, parameter.value);
    } else {
      std::visit(TypedAttribute{written}, parameter.value);
    }
  }
}

// ---- tensors ------------------------------------------------------------------------------------

/// An unknown type is UNDEFINED, an unknown shape has no dimensions: the checker wants both fields
/// to be there.
void add_value_info(uint32_t field, const std::string& name, const TensorType* type,
                    pbf_writer* out) {
  pbf_writer info(*out, field);
  info.add_string(value_info::Name, name);
  pbf_writer type_message(info, value_info::Type);
  pbf_writer tensor(type_message, type_field::Tensor);
  tensor.add_int32(tensor_field::ElementType, type ? onnx_element_type(type->dtype) : 0);
  if (!type || !type->shape || type->shape->empty()) {
    tensor.add_message(tensor_field::Shape, "", 0);  // a nested writer drops an empty message
    return;
  }
  pbf_writer shape(tensor, tensor_field::Shape);
  for (const std::vector<int64_t>& lengths : *type->shape) {
    pbf_writer dim(shape, shape_field::Dim);
    if (lengths.size() == 1) {
      dim.add_int64(dim_field::Value, lengths.front());
      continue;
    }
    std::string text;
    for (const int64_t length : lengths) text += (text.empty() ? "" : "|") + std::to_string(length);
    if (lengths.empty()) text = "?";
    dim.add_string(dim_field::Param, text);
  }
}

class TypeLookup {
 public:
  TypeLookup(const Graph& graph, const Wiring& wiring) : graph_(graph), wiring_(wiring) {}
  const TensorType* operator()(const std::string& name) const {
    const auto version = wiring_.versions.find(name);
    const auto found =
        graph_.tensors.find(version == wiring_.versions.end() ? name : version->second);
    return found == graph_.tensors.end() ? nullptr : &found->second;
  }

 private:
  const Graph& graph_;
  const Wiring& wiring_;
};

void add_outside(const Graph& graph, const Wiring& wiring, pbf_writer* out) {
  const TypeLookup type_of_tensor(graph, wiring);
  std::set<std::string> described;
  for (const std::string& name : wiring.inputs) {
    add_value_info(graph_field::Input, name, type_of_tensor(name), out);
    described.insert(name);
  }
  for (const std::string& name : wiring.outputs) {
    add_value_info(graph_field::Output, name, type_of_tensor(name), out);
    described.insert(name);
  }
  for (const WiredNode& node : wiring.nodes) {
    for (const std::string& name : node.outputs) {
      const TensorType* type = type_of_tensor(name);
      if (type && described.insert(name).second)
        add_value_info(graph_field::ValueInfo, name, type, out);
    }
  }
}

// ---- nodes --------------------------------------------------------------------------------------

std::string document_of(const Node& node) {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (!node.ids.empty()) add("op_id " + node.ids);
  if (node.csv_row > 0) add("row " + std::to_string(node.csv_row) + " of the operation list");
  for (const Parameter& parameter : node.parameters) {
    const std::string known = parameter_text(node, parameter);
    if (known != parameter.text) add(parameter.name + " " + known);
  }
  if (node.truncated) add("truncated: its tensors are not all known");
  return text;
}

struct NodeText {
  std::string name;
  std::string op_type;
  std::string document;
  const char* domain;
};

void add_node(uint32_t field, const Graph& graph, const WiredNode& wired, const NodeText& text,
              bool compat, pbf_writer* out) {
  pbf_writer node(*out, field);
  for (const std::string& name : wired.inputs) node.add_string(node_field::Input, name);
  for (const std::string& name : wired.outputs) node.add_string(node_field::Output, name);
  node.add_string(node_field::Name, text.name);
  node.add_string(node_field::OpType, text.op_type);
  add_attributes(graph.nodes[wired.node], compat, &node);
  if (!text.document.empty()) node.add_string(node_field::DocString, text.document);
  node.add_string(node_field::Domain, text.domain);
}

NodeText leaf_text(const Graph& graph, const Node& node) {
  return {node.name, node.type, document_of(node), domains_of(graph).operators};
}

void add_opset(uint32_t field, const char* domain, pbf_writer* out) {
  pbf_writer import(*out, field);
  import.add_string(opset::Domain, domain);
  import.add_int64(opset::Version, 1);
}

/// The checker refuses a node without any wire, as modules are and operations whose tensors nobody
/// knew: each gets an output that nobody reads.
void give_every_node_a_wire(const Graph& graph, Wiring* wiring) {
  std::set<std::string> used(wiring->inputs.begin(), wiring->inputs.end());
  for (const WiredNode& wired : wiring->nodes) {
    used.insert(wired.inputs.begin(), wired.inputs.end());
    used.insert(wired.outputs.begin(), wired.outputs.end());
  }
  for (WiredNode& wired : wiring->nodes) {
    if (!wired.inputs.empty() || !wired.outputs.empty()) continue;
    const std::string wanted = graph.nodes[wired.node].name + "_output";
    std::string name = wanted;
    for (size_t i = 2; !used.insert(name).second; ++i) name = wanted + "#" + std::to_string(i);
    wired.outputs.push_back(name);
  }
}

// ---- functions ----------------------------------------------------------------------------------

/// A graph node as a function: what it takes and gives, by the names its neighbours know.
struct Function {
  std::string name;
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
};

/// Writes the functions, the innermost first, and remembers how each is called.
class FunctionWriter {
 public:
  FunctionWriter(const Graph& graph, const OnnxOptions& options)
      : graph_(graph), options_(options) {}

  void write_all() {
    for (const uint32_t index : inner_graphs_first()) write(index);
  }
  [[nodiscard]] std::vector<std::string>& messages() { return messages_; }

  /// The nodes right below a graph, wired, functions called.
  [[nodiscard]] Wiring body(uint32_t index) const {
    const Node& node = graph_.nodes[index];
    std::vector<Interface> interfaces;
    if (index == 0 && !is_function(index)) {
      interfaces.push_back({0, node.inputs, node.outputs});
    }
    for (const uint32_t child : node.children) interfaces.push_back(interface_of(child));
    std::vector<std::string> inputs = node.inputs;
    if (index == 0) inputs.insert(inputs.end(), graph_.weights.begin(), graph_.weights.end());
    std::vector<std::string> outputs = node.outputs;
    if (index != 0) {
      for (std::string& name : outputs_in_place(graph_, index)) outputs.push_back(std::move(name));
    }
    Wiring wiring = wire(std::move(interfaces), inputs, outputs);
    give_every_node_a_wire(graph_, &wiring);
    return wiring;
  }

  [[nodiscard]] NodeText text_of(uint32_t index) const {
    const Node& node = graph_.nodes[index];
    NodeText text = leaf_text(graph_, node);
    const auto function = functions_.find(index);
    if (function == functions_.end()) return text;
    text.op_type = function->second.name;
    text.document = node.type + (text.document.empty() ? "" : "; ") + text.document;
    text.domain = domains_of(graph_).functions;
    return text;
  }

 private:
  [[nodiscard]] bool is_function(uint32_t index) const {
    return !graph_.nodes[index].children.empty();
  }

  /// All graphs but the root, every one behind those it contains, otherwise in file order.
  [[nodiscard]] std::vector<uint32_t> inner_graphs_first() const {
    std::vector<uint32_t> order;
    std::vector<std::pair<uint32_t, size_t>> open{{0, 0}};
    while (!open.empty()) {
      auto& [index, next] = open.back();
      const Node& node = graph_.nodes[index];
      if (next < node.children.size()) {
        const uint32_t child = node.children[next++];
        if (is_function(child)) open.emplace_back(child, 0);
        continue;
      }
      if (index != 0) order.push_back(index);
      open.pop_back();
    }
    return order;
  }

  [[nodiscard]] Interface interface_of(uint32_t index) const {
    const auto function = functions_.find(index);
    if (function != functions_.end())
      return {index, function->second.inputs, function->second.outputs};
    const Node& node = graph_.nodes[index];
    Interface interface{index, node.inputs, node.outputs};
    for (std::string& name : outputs_in_place(graph_, index))
      interface.outputs.push_back(std::move(name));
    return interface;
  }

  void write(uint32_t index) {
    Wiring wiring = body(index);
    const Node& node = graph_.nodes[index];
    Function function{{}, wiring.inputs, {}};
    // A function's outputs must be written inside; what only passes through stays the caller's.
    std::vector<std::string> formal_outputs;
    std::set<std::string> written;
    for (const WiredNode& wired : wiring.nodes)
      written.insert(wired.outputs.begin(), wired.outputs.end());
    for (size_t i = 0; i < wiring.outputs.size(); ++i) {
      if (!written.contains(wiring.outputs[i])) continue;
      formal_outputs.push_back(wiring.outputs[i]);
      function.outputs.push_back(wiring.output_names[i]);
    }
    if (function.inputs.empty() && function.outputs.empty()) {
      formal_outputs.push_back(any_output(&wiring, node.name + "_output"));
      function.outputs.push_back(node.name + "_output");
    }
    if (!options_.share_functions) {
      function.name = unused(node.name);
      names_.insert(function.name);
      messages_.push_back(message(function.name, index, wiring, formal_outputs));
    } else {
      Wiring plain = wiring;
      std::vector<std::string> plain_outputs = formal_outputs;
      rename_canonically(&plain, &plain_outputs);
      const std::string content = message("", index, plain, plain_outputs);
      std::string& name = shared_[content];
      if (name.empty()) {
        name = unused(node.type);
        names_.insert(name);
        messages_.push_back(message(name, index, plain, plain_outputs));
      }
      function.name = name;
    }
    functions_.emplace(index, std::move(function));
  }

  [[nodiscard]] std::string unused(const std::string& wanted) const {
    std::string name = wanted;
    for (size_t i = 2; names_.contains(name); ++i) name = wanted + "#" + std::to_string(i);
    return name;
  }

  /// The last tensor that a function makes, for one that hands nothing out: its call would be a
  /// node without a wire.
  static std::string any_output(Wiring* wiring, const std::string& name_if_none) {
    for (auto node = wiring->nodes.rbegin(); node != wiring->nodes.rend(); ++node) {
      for (auto name = node->outputs.rbegin(); name != node->outputs.rend(); ++name) {
        if (!name->empty()) return *name;
      }
    }
    wiring->nodes.back().outputs.push_back(name_if_none);
    return name_if_none;
  }

  /// in_0, out_0, t_0 ...: what is left is the structure.
  static void rename_canonically(Wiring* wiring, std::vector<std::string>* outputs) {
    std::map<std::string, std::string> names;
    size_t count = 0;
    for (const std::string& name : wiring->inputs)
      names.try_emplace(name, "in_" + std::to_string(count++));
    count = 0;
    for (const std::string& name : *outputs)
      names.try_emplace(name, "out_" + std::to_string(count++));
    count = 0;
    const auto rename = [&](std::string& name) {
      if (name.empty()) return;
      const auto [found, is_new] = names.try_emplace(name, "t_" + std::to_string(count));
      count += is_new;
      name = found->second;
    };
    for (std::string& name : wiring->inputs) rename(name);
    for (std::string& name : *outputs) rename(name);
    for (WiredNode& node : wiring->nodes) {
      for (std::string& name : node.inputs) rename(name);
      for (std::string& name : node.outputs) rename(name);
    }
  }

  [[nodiscard]] std::string message(const std::string& name, uint32_t index, const Wiring& wiring,
                                    const std::vector<std::string>& outputs) const {
    std::string bytes;
    pbf_writer out(bytes);
    out.add_string(function_field::Name, name);
    for (const std::string& input : wiring.inputs) out.add_string(function_field::Input, input);
    for (const std::string& output : outputs) out.add_string(function_field::Output, output);
    size_t position = 0;
    for (const WiredNode& wired : wiring.nodes) {
      NodeText text = text_of(wired.node);
      if (options_.share_functions) {
        text.name = graph_.nodes[wired.node].type + "_" + std::to_string(position);
        text.document.clear();
      }
      ++position;
      add_node(function_field::Node, graph_, wired, text, options_.compat_attributes, &out);
    }
    const Node& node = graph_.nodes[index];
    if (!options_.share_functions && !node.ids.empty())
      out.add_string(function_field::DocString, node.type + ", op_id " + node.ids);
    add_opset(function_field::OpsetImport, domains_of(graph_).operators, &out);
    add_opset(function_field::OpsetImport, domains_of(graph_).functions, &out);
    out.add_string(function_field::Domain, domains_of(graph_).functions);
    return bytes;
  }

  const Graph& graph_;
  const OnnxOptions& options_;
  std::map<uint32_t, Function> functions_;
  std::vector<std::string> messages_;
  std::set<std::string> names_;
  std::map<std::string, std::string> shared_;  // body -> name
};

}  // namespace

std::string onnx_model(const Graph& graph, const OnnxOptions& options) {
  FunctionWriter functions(graph, options);
  if (options.hierarchical) functions.write_all();
  Wiring wiring = options.hierarchical ? functions.body(0) : wire_level(graph, options.level);
  if (!options.hierarchical) give_every_node_a_wire(graph, &wiring);

  std::string bytes;
  pbf_writer out(bytes);
  out.add_int64(model::IrVersion, kIrVersion);
  out.add_string(model::ProducerName, "assay");
  out.add_string(model::ProducerVersion, ASSAY_VERSION);
  {
    pbf_writer written(out, model::Graph);
    for (const WiredNode& wired : wiring.nodes) {
      const NodeText text = options.hierarchical ? functions.text_of(wired.node)
                                                 : leaf_text(graph, graph.nodes[wired.node]);
      add_node(graph_field::Node, graph, wired, text, options.compat_attributes, &written);
    }
    written.add_string(graph_field::Name, graph.root().name);
    if (!options.document.empty()) written.add_string(graph_field::DocString, options.document);
    add_outside(graph, wiring, &written);
  }
  add_opset(model::OpsetImport, domains_of(graph).operators, &out);
  if (options.hierarchical) add_opset(model::OpsetImport, domains_of(graph).functions, &out);
  for (const std::string& function : functions.messages())
    out.add_message(model::Functions, function);
  return bytes;
}

}  // namespace assay::topology
