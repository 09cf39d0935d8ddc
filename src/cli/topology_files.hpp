// SPDX-License-Identifier: Apache-2.0
// Topology files and texts of graphs on disk: finding them, the lists of operations beside them,
// and writing what they become.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/graph.hpp"
#include "topology/shapes.hpp"

namespace assay::cli {

/// Types and shapes by process: a dump has one set of operation lists for thousands of layer files.
class ShapeCache {
 public:
  /// Adds what the process that wrote this topology file left about its tensors: all rounds of its
  /// operation lists
  /// ("<dump>/layer/<pid>/X.json" -> "<dump>/operation_io_tensors/<pid>/operation*.csv"), and where
  /// these say nothing, as about operations that a user wrote, the headers of the tensors it saved.
  void apply_beside(const std::string& json_path, topology::Graph* graph);

 private:
  struct Process {
    topology::ShapeTable lists;
    std::optional<topology::ShapeTable> headers;  // read when a graph first needs them
  };
  std::map<std::string, Process> processes_;
};

/// Tensors of the nodes of a level that have no type.
[[nodiscard]] size_t untyped_count(const topology::Graph& graph, const topology::Wiring& wiring);

/// The text of a graph as JSON.
/// errors   of reading the file | Usage (a topology file, which is JSON) | those of
///          topology::ge_graph_json()
[[nodiscard]] Result<std::string> graph_text_json(const std::string& path);

/// Whether a file has the name of a graph's text: "dynamo_original_graph_1_....txt",
/// "ge_proto_....txt", "ge_onnx_....pbtxt", or any name that ends in ".pbtxt".
[[nodiscard]] bool is_graph_text_name(const std::string& path);

/// "X.json" -> "X" + suffix, as of ".txt" and ".pbtxt"; a name without such an ending keeps all of
/// it.
[[nodiscard]] std::string beside(const std::string& json_path, const std::string& suffix);

/// "layer file of process 4711", for the document's description; nothing that changes when a dump
/// is moved.
[[nodiscard]] std::string document_of(const std::string& json_path);

/// Writes the file atomically. A file that is there already is replaced only when it is one of its
/// kind: ONNX begins with a field of a ModelProto, JSON with a bracket.
/// errors   Usage (another kind of file stands there) | NoSpace | Permission | Io
[[nodiscard]] Status write_graph_file(const std::string& path, const std::string& content);

/// Converts one topology file of a dump into the ONNX file beside it, shapes from the operation
/// lists of its process.
/// level    as topology::nodes_at_level()
/// returns  the path written
[[nodiscard]] Result<std::string> write_onnx_beside(const std::string& json_path, int level,
                                                    ShapeCache* cache);

}  // namespace assay::cli
