// SPDX-License-Identifier: Apache-2.0
#include "cli/topology_files.hpp"

#include <algorithm>
#include <cctype>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "run/folder.hpp"
#include "topology/onnx_export.hpp"

namespace assay::cli {
namespace {

constexpr unsigned kFileMode = 0640;  // as all files of a dump

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

bool is_process_folder(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](unsigned char c) { return std::isdigit(c) || c == '_'; });
}

bool is_of_its_kind(const std::string& path, ByteSpan there) {
  if (there.empty()) return true;
  const auto first = static_cast<unsigned char>(there.front());
  // ONNX: ir_version (0x08) in ours, graph (0x3a) first in the original's.
  if (path.ends_with(".onnx")) return first == 0x08 || first == 0x3A;
  return first == '{' || first == '[';
}

}  // namespace

const topology::ShapeTable& ShapeCache::of_folder(const std::string& folder) {
  std::unique_ptr<topology::ShapeTable>& table = tables_[folder];
  if (table) return *table;
  table = std::make_unique<topology::ShapeTable>();
  const auto entries = run::list_folder(folder, run::real_path(folder));
  if (!entries) return *table;  // A run without the type "op" has no such folder.
  for (const run::FolderEntry& entry : *entries) {
    if (entry.kind != run::FolderEntry::Kind::File || !entry.name.starts_with("operation") ||
        !entry.name.ends_with(".csv"))
      continue;
    if (const auto file = MappedFile::open(entry.path)) table->add_op_csv(as_text(file->bytes()));
  }
  return *table;
}

std::string op_csv_folder_of(const std::string& json_path) {
  const std::string process = parent_of(json_path);
  std::string name = run::base_name(process);
  std::string dump = parent_of(parent_of(process));
  if (process == "." || process.find('/') == std::string::npos) {
    // Called inside the folder: its name is known to the system only.
    const std::string resolved = run::real_path(process);
    name = run::base_name(resolved);
    dump = parent_of(parent_of(resolved));
  }
  return run::join_path(run::join_path(dump, "operation_io_tensors"), name);
}

Result<topology::Graph> read_graph_file(const std::string& path,
                                        const topology::ShapeTable* shapes) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  ASSAY_TRY(topology::Graph graph, in_file(path, topology::read_graph(as_text(file.bytes()))));
  if (shapes) shapes->apply(&graph);
  return graph;
}

std::string beside(const std::string& json_path, const std::string& suffix) {
  constexpr std::string_view kEnding = ".json";
  const bool has_ending = json_path.ends_with(kEnding);
  return json_path.substr(0, json_path.size() - (has_ending ? kEnding.size() : 0)) + suffix;
}

std::string document_of(const std::string& json_path) {
  const std::string process = run::base_name(parent_of(json_path));
  std::string text = "Topology file " + run::base_name(json_path);
  if (is_process_folder(process)) text += " of process " + process;
  return text;
}

Status write_graph_file(const std::string& path, const std::string& content) {
  if (run::is_folder(path))
    return fail(Error{Errc::Usage, path, std::nullopt, "is a folder, not a file to write"});
  if (run::is_file(path)) {
    ASSAY_TRY(const MappedFile there, MappedFile::open(path));
    if (!is_of_its_kind(path, there.bytes()))
      return fail(Error{Errc::Usage, path, std::nullopt,
                        "is there already and is another kind of file; it was left alone"});
  }
  return write_file_atomically(path, as_bytes(content), kFileMode);
}

Result<std::string> write_onnx_beside(const std::string& json_path, int level, ShapeCache* cache) {
  ASSAY_TRY(const topology::Graph graph,
            read_graph_file(json_path, &cache->of_folder(op_csv_folder_of(json_path))));
  std::string path = beside(json_path, ".onnx");
  topology::OnnxOptions options;
  options.level = level;
  options.document = document_of(json_path);
  ASSAY_TRY_STATUS(write_graph_file(path, topology::onnx_model(graph, options)));
  return path;
}

}  // namespace assay::cli
