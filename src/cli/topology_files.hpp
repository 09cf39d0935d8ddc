// SPDX-License-Identifier: Apache-2.0
// Topology files on disk: finding them, the lists of operations beside them, and writing what they become.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "topology/graph.hpp"
#include "topology/shapes.hpp"

namespace assay::cli {

/// The operation lists of the processes seen so far, by folder: a dump has one list for thousands of layer files.
class ShapeCache {
 public:
  /// The table of all lists in `folder` (operation*.csv, every round). Empty when the folder does not exist.
  const topology::ShapeTable& of_folder(const std::string& folder);

 private:
  std::map<std::string, std::unique_ptr<topology::ShapeTable>> tables_;
};

/// Where a dump keeps the operation lists of the process that wrote this file:
/// "<dump>/layer/<pid>/X.json" -> "<dump>/operation_io_tensors/<pid>".
[[nodiscard]] std::string op_csv_folder_of(const std::string& json_path);

/// Opens and reads a topology file of any kind.
/// shapes   where types come from; null for none
[[nodiscard]] Result<topology::Graph> read_graph_file(const std::string& path,
                                                      const topology::ShapeTable* shapes);

/// "X.json" -> "X" + suffix; a name without that ending keeps all of it.
[[nodiscard]] std::string beside(const std::string& json_path, const std::string& suffix);

/// "layer file of process 4711", for the document's description; nothing that changes when a dump is moved.
[[nodiscard]] std::string document_of(const std::string& json_path);

/// Writes the file atomically. A file that is there already is replaced only when it is one of its kind: ONNX begins
/// with a field of a ModelProto, JSON with a bracket.
/// errors   Usage (another kind of file stands there) | NoSpace | Permission | Io
[[nodiscard]] Status write_graph_file(const std::string& path, const std::string& content);

/// Converts one topology file of a dump into the ONNX file beside it, shapes from the operation lists of its process.
/// level    as topology::nodes_at_level()
/// returns  the path written
[[nodiscard]] Result<std::string> write_onnx_beside(const std::string& json_path, int level,
                                                    ShapeCache* cache);

}  // namespace assay::cli
