// SPDX-License-Identifier: Apache-2.0
#include "run/sources/atb_tree_nodes.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/mapped_file.hpp"
#include "base/thread_pool.hpp"
#include "run/atb_names.hpp"
#include "run/atb_record.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

constexpr int kMaxNodeDepth = 1000;  // graphs in graphs, as the topology files
constexpr size_t kMaxParameterBytes = size_t{16} << 20;

/// One tensor file of a node, before it becomes a record.
struct NodeFile {
  FolderEntry entry;
  AtbFileName name;  // borrows entry.name
  Moment moment = Moment::After;
};

/// The slot in which an input is before the operation and an output after it has the plain index,
/// so that these meet each other in a comparison; the other two are marked.
std::string slot_of(const NodeFile& file, const std::set<std::string>& inputs_before) {
  std::string slot(file.name.index);
  if (file.name.role == Role::Output && file.moment == Moment::Before) slot += ".before";
  // With -time 1 there is no before/: then what the input is afterwards is all there is.
  if (file.name.role == Role::Input && file.moment == Moment::After &&
      inputs_before.contains(std::string(file.name.index)))
    slot += ".after";
  return slot;
}

/// A link into a dump that was moved since: the part of its target from "tensors/" on, looked up in
/// this dump. Empty when there is no such file.
std::string moved_link_target(const std::string& link, const std::string& boundary) {
  char target[4096];
  const ssize_t length = ::readlink(link.c_str(), target, sizeof(target));
  if (length <= 0 || static_cast<size_t>(length) == sizeof(target)) return {};
  const std::string_view path(target, static_cast<size_t>(length));
  for (const std::string_view part : {"/tensors/", "/data/"}) {
    const size_t at = path.rfind(part);
    if (!path.starts_with('/') || at == std::string_view::npos) continue;
    const std::string here = real_path(boundary + std::string(path.substr(at)));
    if (!here.empty() && is_inside(here, boundary) && is_file(here)) return here;
  }
  return {};
}

AtbNodes read_children(const std::vector<FolderEntry>& folders, const std::string& parent,
                       int depth, const AtbStep& step);

/// One folder of an operation and all below it.
class NodeReader {
 public:
  explicit NodeReader(const AtbStep& step) : step_(step) {}

  AtbNodes read(const FolderEntry& folder, const std::string& parent, int depth) {
    if (!parse_atb_node_folder(folder.name)) {
      nodes_.warnings.push_back(folder.path + ": is no folder of an operation and was left out");
    } else if (folder.is_link) {
      nodes_.warnings.push_back(folder.path + ": linked folders are not followed");
    } else if (depth >= kMaxNodeDepth) {
      nodes_.warnings.push_back(folder.path + ": operations are nested deeper than 1000");
    } else {
      read_node(folder.path, parent.empty() ? folder.name : parent + "/" + folder.name, depth);
    }
    return std::move(nodes_);
  }

 private:
  std::vector<FolderEntry> list(const std::string& path) {
    Result<std::vector<FolderEntry>> entries = list_folder(path, step_.boundary);
    if (entries) return *std::move(entries);
    nodes_.warnings.push_back(entries.error().describe());
    return {};
  }

  /// Inputs get their place when the node is entered, outputs when it is left: what a graph
  /// computed stands behind what its operations computed.
  void read_node(const std::string& path, const std::string& node, int depth) {
    const uint64_t entry_place = nodes_.place_count++;
    std::vector<NodeFile> files;
    std::vector<FolderEntry> children;
    std::string parameters;
    for (FolderEntry& entry : list(path)) {
      if (entry.kind == FolderEntry::Kind::Folder && entry.name == "before") {
        collect_files(entry.path, Moment::Before, &files);
      } else if (entry.kind == FolderEntry::Kind::Folder && entry.name == "after") {
        collect_files(entry.path, Moment::After, &files);
      } else if (entry.kind == FolderEntry::Kind::Folder) {
        children.push_back(std::move(entry));
      } else if (entry.name == "op_param.json" && entry.kind == FolderEntry::Kind::File) {
        parameters = read_parameters(entry.path);
      } else {
        nodes_.leftovers.note(entry);
      }
    }
    nodes_.append(read_children(children, node, depth + 1, step_));
    const AtbNodePlace place{entry_place, nodes_.place_count++};
    nodes_.places[node] = place;
    const std::string ids = atb_ids_of_node(node);
    if (parameters.empty()) {
      const auto listed = step_.parameters.find(ids);
      if (listed != step_.parameters.end()) parameters = listed->second;
    }
    if (!parameters.empty()) {
      nodes_.operations.push_back(
          step_.operation_of(node, step_.record_of(node).op_type, std::move(parameters)));
    }
    add_files(node, ids, place, &files);
  }

  void collect_files(const std::string& path, Moment moment, std::vector<NodeFile>* files) {
    for (FolderEntry& entry : list(path)) {
      if (!parse_atb_file_name(entry.name) || entry.kind == FolderEntry::Kind::Folder) {
        nodes_.leftovers.note(entry);
        continue;
      }
      files->push_back({std::move(entry), {}, moment});
    }
  }

  void add_files(const std::string& node, const std::string& ids, const AtbNodePlace& place,
                 std::vector<NodeFile>* files) {
    std::set<std::string> inputs_before;
    for (NodeFile& file : *files) {
      file.name = *parse_atb_file_name(file.entry.name);
      if (file.name.role == Role::Input && file.moment == Moment::Before)
        inputs_before.insert(std::string(file.name.index));
    }
    std::set<std::pair<Role, std::string>> slots;
    for (const NodeFile& file : *files) {
      TensorRecord record = step_.record_of(node);
      record.role = file.name.role;
      record.moment = file.moment;
      record.slot = slot_of(file, inputs_before);
      // Two versions of the library wrote into one folder: intensor0.bin and intensor0_x.bin.
      if (!slots.insert({record.role, record.slot}).second)
        record.slot = record.slot + "." + std::string(file.name.parameter);
      const bool on_entry = record.role == Role::Input ? !record.slot.ends_with(".after")
                                                       : file.moment == Moment::Before;
      record.order = on_entry ? place.entry : place.exit;
      fill_from_file(file.entry, &record);
      const bool natural = (file.moment == Moment::Before) == (record.role == Role::Input);
      if (natural)
        nodes_.file_by_reference.emplace(ids + "_" + file.entry.name, nodes_.records.size());
      nodes_.records.push_back(std::move(record));
    }
  }

  void fill_from_file(const FolderEntry& entry, TensorRecord* record) {
    std::string path = entry.path;
    if (entry.kind == FolderEntry::Kind::Unusable) {
      path = entry.is_link ? moved_link_target(entry.path, step_.boundary) : std::string();
      if (path.empty()) {
        record->problem = entry.path + ": " + entry.problem;
        return;
      }
    }
    const Result<MappedFile> file = MappedFile::open(path);
    const Result<formats::AtbBin> parsed =
        file ? formats::read_atb_bin(file->bytes()) : Result<formats::AtbBin>(fail(file.error()));
    fill_from_atb_bin(path, parsed, record);
    if (!parsed) return;
    if (!parsed->payload && !parsed->reference.empty())
      nodes_.references[nodes_.records.size()] = parsed->reference;
    if (parsed->record_bytes < file->bytes().size() && parsed->payload) {
      if (nodes_.leftovers.appended_files++ == 0) nodes_.leftovers.first_appended = path;
    }
  }

  std::string read_parameters(const std::string& path) {
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file) {
      nodes_.warnings.push_back(file.error().describe());
      return {};
    }
    std::string_view text = as_text(file->bytes());
    if (text.size() > kMaxParameterBytes) {
      nodes_.warnings.push_back(path + ": parameters of more than 16 MiB were left out");
      return {};
    }
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    return std::string(text);
  }

  const AtbStep& step_;
  AtbNodes nodes_;
};

AtbNodes read_children(const std::vector<FolderEntry>& folders, const std::string& parent,
                       int depth, const AtbStep& step) {
  // The single child of a single child leaves the threads to what is further below.
  std::vector<AtbNodes> parts(folders.size());
  parallel_for(folders.size(), resolve_job_count(0),
               [&](size_t i) { parts[i] = NodeReader(step).read(folders[i], parent, depth); });
  AtbNodes nodes;
  for (AtbNodes& part : parts) nodes.append(std::move(part));
  return nodes;
}

}  // namespace

TensorRecord AtbStep::record_of(const std::string& node) const {
  TensorRecord record;
  record.rank = rank;
  record.step_name = name;
  record.step = parse_atb_run_count(name).value_or(-1);
  record.node = node;
  const std::string last = node.substr(node.rfind('/') + 1);
  if (const auto parsed = parse_atb_node_folder(last)) record.op_type = parsed->type;
  return record;
}

OperationRecord AtbStep::operation_of(const std::string& node, std::string op_type,
                                      std::string json) const {
  OperationRecord operation;
  operation.rank = rank;
  operation.step_name = name;
  operation.step = parse_atb_run_count(name).value_or(-1);
  operation.node = node;
  operation.op_type = std::move(op_type);
  operation.parameters = std::move(json);
  return operation;
}

void AtbLeftovers::note(const FolderEntry& entry) {
  if (entry.name.find(".tmp") != std::string::npos) {
    ++unfinished_files;
  } else if (has_tensor_suffix(entry.name) && entry.name != "kernel_tilingdata.bin") {
    if (unknown_files++ == 0) first_unknown = entry.path;
  }
}

void AtbLeftovers::add(AtbLeftovers&& later) {
  if (appended_files == 0) first_appended = std::move(later.first_appended);
  if (unknown_files == 0) first_unknown = std::move(later.first_unknown);
  unfinished_files += later.unfinished_files;
  appended_files += later.appended_files;
  unknown_files += later.unknown_files;
}

void AtbNodes::append(AtbNodes&& later) {
  const size_t first_record = records.size();
  for (TensorRecord& record : later.records) record.order += place_count;
  for (auto& [node, place] : later.places) {
    place.entry += place_count;
    place.exit += place_count;
  }
  for (auto& [reference, record] : later.file_by_reference) record += first_record;
  for (auto& [record, reference] : later.references)
    references.emplace_hint(references.end(), record + first_record, std::move(reference));
  place_count += later.place_count;
  places.merge(later.places);
  file_by_reference.merge(later.file_by_reference);
  move_to_end(&later.records, &records);
  move_to_end(&later.operations, &operations);
  move_to_end(&later.warnings, &warnings);
  leftovers.add(std::move(later.leftovers));
}

AtbNodes read_atb_nodes(const std::vector<FolderEntry>& folders, const AtbStep& step) {
  return read_children(folders, "", 0, step);
}

}  // namespace assay::run::sources
