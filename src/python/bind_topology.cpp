// SPDX-License-Identifier: Apache-2.0
// Topology files and what they become. assay/topology.py opens and writes the files around them.

#include "pair/graph_diff.hpp"
#include "python/binding/class.hpp"
#include "python/module.hpp"
#include "topology/graph.hpp"
#include "topology/model_explorer.hpp"
#include "topology/onnx_export.hpp"
#include "topology/shapes.hpp"

namespace py = assay::binding;
using namespace py::literals;

namespace assay::python {
namespace {

using topology::Graph;

std::string_view view_of(const py::Bytes& bytes) { return {bytes.view()}; }

py::Bytes bytes_of(const std::string& text) { return py::Bytes(text); }

py::List names_list(const std::vector<std::string>& names) {
  py::List list;
  for (const std::string& name : names) list.append(to_str(name));
  return list;
}

py::Dict node_dict(const Graph& graph, uint32_t index) {
  const topology::Node& node = graph.nodes[index];
  py::Dict parameters;
  for (const topology::Parameter& parameter : node.parameters) {
    parameters[to_str(parameter.name)] = std::visit(
        [](const auto& value) -> py::Object {
          using T = std::decay_t<decltype(value)>;
          if constexpr (std::is_same_v<T, std::monostate>) {
            return py::none();
          } else if constexpr (std::is_same_v<T, std::string>) {
            return to_str(value);
          } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
            return names_list(value);
          } else {
            return py::cast(value);
          }
        },
        parameter.value);
  }
  py::Dict dict;
  dict["name"] = to_str(node.name);
  dict["type"] = to_str(node.type);
  dict["ids"] = to_str(node.ids);
  dict["depth"] = node.depth;
  dict["parent"] = index == 0 ? py::Object(py::none()) : py::Object(py::cast(node.parent));
  dict["is_graph"] = node.is_graph;
  dict["truncated"] = node.truncated;
  dict["inputs"] = names_list(node.inputs);
  dict["outputs"] = names_list(node.outputs);
  dict["parameters"] = parameters;
  return dict;
}

py::Dict difference_dict(const pair::Difference& difference) {
  py::Dict parameters;
  for (const pair::ParameterChange& change : difference.parameters) {
    parameters[to_str(change.name)] =
        py::tuple_of(change.in_golden ? py::Object(to_str(change.golden)) : py::Object(py::none()),
                     change.in_mine ? py::Object(to_str(change.mine)) : py::Object(py::none()));
  }
  py::Dict dict;
  dict["kind"] = to_str(pair::difference_name(difference.kind));
  dict["golden"] = to_str(difference.golden);
  dict["mine"] = to_str(difference.mine);
  dict["type"] = to_str(difference.type);
  dict["inside"] = to_str(difference.inside);
  dict["parameters"] = parameters;
  dict["detail"] = to_str(difference.detail);
  return dict;
}

void bind_graph(py::Module& m) {
  py::Class<topology::ShapeTable>(m, "ShapeTable", "Types and shapes from operation lists.")
      .def(py::Init<>())
      .def(
          "add_op_csv",
          [](topology::ShapeTable& self, const py::Bytes& text) { self.add_op_csv(view_of(text)); },
          "text"_a, "Adds the content of one operation_tensors_<n>.csv.")
      .def("__len__", &topology::ShapeTable::operation_count);

  py::Class<Graph>(m, "Graph", "The structure of a model or of one layer.")
      .property("name", [](const Graph& self) { return to_str(self.root().name); })
      .property("node_count", [](const Graph& self) { return self.nodes.size(); })
      .property(
          "weights", [](const Graph& self) { return names_list(self.weights); },
          py::Returns{"list[str]"})
      .property(
          "notes",
          [](const Graph& self) {
            py::List notes;
            for (const std::string& note : self.notes) notes.append(to_message(note));
            return notes;
          },
          py::Returns{"list[str]"})
      .def(
          "node",
          [](const Graph& self, size_t index) {
            if (index >= self.nodes.size()) throw std::out_of_range("node index out of range");
            return node_dict(self, static_cast<uint32_t>(index));
          },
          "index"_a)
      .def(
          "nodes_at_level",
          [](const Graph& self, int level) { return topology::nodes_at_level(self, level); },
          "level"_a)
      .def(
          "add_shapes",
          [](Graph& self, const topology::ShapeTable& shapes) { shapes.apply(&self); }, "shapes"_a)
      .def(
          "untyped_count",
          [](const Graph& self, int level) {
            size_t count = 0;
            const topology::Wiring wiring = topology::wire_level(self, level);
            const auto is_untyped = [&](const std::string& name) {
              return !self.tensors.contains(name);
            };
            for (const std::string& name : wiring.inputs) count += is_untyped(name);
            for (const topology::WiredNode& node : wiring.nodes) {
              for (const std::string& name : node.outputs) {
                if (!wiring.versions.contains(name)) count += is_untyped(name);
              }
            }
            return count;
          },
          "level"_a, "Tensors of a level without type and shape.")
      .def(
          "onnx",
          [](const Graph& self, int level, bool hierarchical, bool share_functions,
             bool compat_attributes, const std::string& document) {
            std::string bytes;
            {
              const py::GilReleased released;
              bytes = topology::onnx_model(self, {.level = level,
                                                  .hierarchical = hierarchical,
                                                  .share_functions = share_functions,
                                                  .compat_attributes = compat_attributes,
                                                  .document = document});
            }
            return bytes_of(bytes);
          },
          py::KeywordOnly{}, "level"_a = -1, "hierarchical"_a = false, "share_functions"_a = false,
          "compat_attributes"_a = false, "document"_a = "", "The bytes of a ModelProto.")
      .def(
          "model_explorer",
          [](const Graph& self, int level) {
            return to_str(topology::model_explorer_json(self, level));
          },
          "level"_a = -1, py::Returns{"str"}, "JSON of Model Explorer.");
}

}  // namespace

void bind_topology(py::Module& m) {
  bind_graph(m);
  m.def(
      "read_graph",
      [](const py::Bytes& text) {
        Result<Graph> graph = fail(Errc::Internal, "not read");
        {
          const py::GilReleased released;
          graph = topology::read_graph(view_of(text));
        }
        return value_or_raise(std::move(graph));
      },
      "text"_a, "Reads a topology file's content.");
  m.def(
      "graph_diff",
      [](const Graph& golden, const Graph& mine) {
        pair::GraphDiff diff;
        {
          const py::GilReleased released;
          diff = pair::graph_diff(golden, mine);
        }
        py::List differences;
        for (const pair::Difference& difference : diff.differences)
          differences.append(difference_dict(difference));
        py::List same;
        for (const auto& [a, b] : diff.same_nodes)
          same.append(py::tuple_of(to_str(golden.nodes[a].name), to_str(mine.nodes[b].name)));
        return py::tuple_of(differences, same);
      },
      "golden"_a, "mine"_a, py::Returns{"tuple[list[dict], list[tuple[str, str]]]"},
      "Differences, and the names of the nodes that stand for each other.");
}

}  // namespace assay::python
