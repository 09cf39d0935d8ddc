// SPDX-License-Identifier: Apache-2.0
// Types of a topology's tensors come from the lists of operations beside it and, only where these
// leave some unknown, from the headers of saved tensors. A file of another kind is never
// overwritten.
#include "cli/topology_files.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <set>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "run/atb_names.hpp"
#include "run/folder.hpp"
#include "run/load.hpp"
#include "run/open.hpp"
#include "run/run.hpp"
#include "run/topology_file.hpp"
#include "topology/ge_graph.hpp"
#include "topology/onnx_export.hpp"

namespace assay::cli {
namespace {

constexpr unsigned kFileMode = 0640;  // as all files of a dump

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

void add_operation_lists(const std::string& folder, topology::ShapeTable* table) {
  const auto entries = run::list_folder(folder, run::real_path(folder));
  if (!entries) return;  // A run without the type "op" has no such folder.
  for (const run::FolderEntry& entry : *entries) {
    if (entry.kind != run::FolderEntry::Kind::File || !entry.name.starts_with("operation") ||
        !entry.name.ends_with(".csv"))
      continue;
    if (const auto file = MappedFile::open(entry.path)) table->add_op_csv(as_text(file->bytes()));
  }
}

/// A slot without ".before" or ".after" is the tensor's number.
std::optional<size_t> plain_index(const std::string& slot) {
  size_t index = 0;
  const auto [end, code] = std::from_chars(slot.data(), slot.data() + slot.size(), index);
  if (code != std::errc() || end != slot.data() + slot.size()) return std::nullopt;
  return index;
}

/// Types from the tensors that processes of this name saved below `folder`: "4711" is "0_4711"
/// there.
void add_tensor_headers(const std::string& folder, const std::string& process,
                        topology::ShapeTable* table) {
  const auto entries = run::list_folder(folder, run::real_path(folder));
  if (!entries) return;
  for (const run::FolderEntry& entry : *entries) {
    if (entry.name != process && !entry.name.ends_with("_" + process)) continue;
    Result<run::Run> saved = run::open_run(entry.path);
    if (!saved) continue;
    for (run::TensorRecord& record : saved->records) {
      const std::optional<size_t> index = plain_index(record.slot);
      const std::string ids = run::atb_ids_of_node(record.node);
      if (!index || ids.empty() || !record.problem.empty()) continue;
      // A description has types without bytes; other records tell theirs when their file is opened.
      const bool is_known = record.dtype && record.shape;
      if (!is_known && !run::load_header(record)) continue;
      table->add(record.op_type + "_" + ids, record.role == Role::Input, *index,
                 name(*record.dtype),
                 std::vector<int64_t>(record.shape->begin(), record.shape->end()));
    }
  }
}

}  // namespace

void ShapeCache::apply_beside(const std::string& json_path, topology::Graph* graph) {
  // Resolved, because a path may begin in the middle of a dump: "X.json", "4711/X.json".
  const std::string folder = run::real_path(run::parent_folder(json_path));
  const std::string name = run::base_name(folder);
  const std::string dump = run::parent_folder(run::parent_folder(folder));
  const auto [found, is_new] = processes_.try_emplace(folder);
  Process& process = found->second;
  if (is_new)
    add_operation_lists(run::join_path(dump, "operation_io_tensors") + "/" + name, &process.lists);
  process.lists.apply(graph);
  // Looking into every saved tensor takes long in a large dump.
  if (untyped_count(*graph, topology::wire_level(*graph, -1)) == 0) return;
  if (!process.headers) {
    process.headers.emplace();
    add_tensor_headers(run::join_path(dump, "tensors"), name, &*process.headers);
    // msprobe: <dump>/info/layer/<device>_<pid> beside <dump>/data/<device>_<pid>
    add_tensor_headers(run::join_path(run::parent_folder(dump), "data"), name, &*process.headers);
  }
  process.headers->apply(graph);
}

size_t untyped_count(const topology::Graph& graph, const topology::Wiring& wiring) {
  std::set<std::string> names(wiring.inputs.begin(), wiring.inputs.end());
  for (const topology::WiredNode& node : wiring.nodes)
    names.insert(node.outputs.begin(), node.outputs.end());
  size_t count = 0;
  for (const std::string& name : names) {
    const auto version = wiring.versions.find(name);
    count += !graph.tensors.contains(version == wiring.versions.end() ? name : version->second);
  }
  return count;
}

std::string beside(const std::string& json_path, const std::string& suffix) {
  for (const std::string_view ending : {".json", ".pbtxt", ".txt"}) {
    if (json_path.ends_with(ending))
      return json_path.substr(0, json_path.size() - ending.size()) + suffix;
  }
  return json_path + suffix;
}

Result<std::string> graph_text_json(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  const std::string_view text = as_text(file.bytes());
  if (!topology::is_graph_text(text))
    return fail(
        Error{Errc::Usage, path, std::nullopt, "is no text of a graph; its form stays as it is"});
  return in_file(path, topology::ge_graph_json(text));
}

bool is_graph_text_name(const std::string& path) {
  const std::string name = run::base_name(path);
  if (name.ends_with(".pbtxt")) return true;
  return name.ends_with(".txt") &&
         (name.starts_with("dynamo_original_graph_") ||
          name.starts_with("dynamo_optimized_graph_") || name.starts_with("ge_proto_"));
}

std::string document_of(const std::string& json_path) {
  const std::string process = run::base_name(run::parent_folder(json_path));
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
  ASSAY_TRY(topology::Graph graph, run::read_topology_file(json_path));
  cache->apply_beside(json_path, &graph);
  std::string path = beside(json_path, ".onnx");
  topology::OnnxOptions options;
  options.level = level;
  options.document = document_of(json_path);
  ASSAY_TRY_STATUS(write_graph_file(path, topology::onnx_model(graph, options)));
  return path;
}

}  // namespace assay::cli
