// SPDX-License-Identifier: Apache-2.0
// A model's file may only name its layers. They are looked up in layer/{pid} of the same dump, in
// files that bear the names of the operations.
#include "run/topology_file.hpp"

#include <optional>

#include "base/mapped_file.hpp"
#include "run/folder.hpp"

namespace assay::run {
Result<topology::Graph> read_topology_file(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(topology::Graph graph, in_file(path, topology::read_graph(as_text(file.bytes()))));
  if (graph.kind != topology::GraphKind::Model) return graph;
  // "<dump>/model/<pid>/M.json" -> "<dump>/layer/<pid>/<opName>.json"
  const std::string folder = real_path(parent_folder(path));
  const std::string layers =
      join_path(parent_folder(parent_folder(folder)), "layer") + "/" + base_name(folder);
  return topology::with_layers(
      std::move(graph), [&](const std::string& op_name) -> std::optional<topology::Graph> {
        if (op_name.find('/') != std::string::npos) return std::nullopt;
        const Result<MappedFile> layer = MappedFile::open(layers + "/" + op_name + ".json");
        if (!layer) return std::nullopt;
        Result<topology::Graph> inside = topology::read_graph(as_text(layer->bytes()));
        if (!inside || inside->root().name != op_name) return std::nullopt;
        return *std::move(inside);
      });
}

}  // namespace assay::run
