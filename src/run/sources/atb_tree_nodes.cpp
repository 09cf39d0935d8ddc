// SPDX-License-Identifier: Apache-2.0
// The folders below a run count are read by several threads, each node with all that is below it.
// When all are here finish() names the slots and orders the records: inputs where a node is
// entered, outputs where it is left.
#include "run/sources/atb_tree_nodes.hpp"

#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/mapped_file.hpp"
#include "base/text.hpp"
#include "base/thread_pool.hpp"
#include "run/atb_names.hpp"
#include "run/atb_record.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

constexpr size_t kMaxParameterBytes = size_t{16} << 20;

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
    } else if (depth >= kMaxAtbDepth) {
      nodes_.warnings.push_back(folder.path + ": operations are nested deeper than 1000");
    } else {
      read_node(folder.path, parent.empty() ? folder.name : parent + "/" + folder.name, depth);
    }
    return std::move(nodes_);
  }

 private:
  FolderEntries list(const std::string& path) {
    Result<FolderEntries> entries = list_folder(path, step_.boundary);
    if (entries) return *std::move(entries);
    nodes_.warnings.push_back(entries.error().describe());
    return {};
  }

  void read_node(const std::string& path, const std::string& node, int depth) {
    nodes_.names.push_back(node);
    const std::string ids = atb_ids_of_node(node);
    std::vector<FolderEntry> children;
    std::string parameters;
    for (const FolderEntry& entry : list(path)) {
      if (entry.kind == FolderEntry::Kind::Folder && entry.name == "before") {
        read_files(entry.path, Moment::Before, node, ids);
      } else if (entry.kind == FolderEntry::Kind::Folder && entry.name == "after") {
        read_files(entry.path, Moment::After, node, ids);
      } else if (entry.kind == FolderEntry::Kind::Folder) {
        children.push_back(entry);
      } else if (entry.name == "op_param.json" && entry.kind == FolderEntry::Kind::File) {
        parameters = read_parameters(entry.path);
      } else {
        nodes_.leftovers.note(entry);
      }
    }
    nodes_.append(read_children(children, node, depth + 1, step_));
    if (!parameters.empty()) {
      nodes_.operations.push_back(
          step_.operation_of(node, step_.record_of(node).op_type, std::move(parameters)));
    }
  }

  void read_files(const std::string& path, Moment moment, const std::string& node,
                  const std::string& ids) {
    for (const FolderEntry& entry : list(path)) {
      const auto name = parse_atb_file_name(entry.name);
      if (!name || entry.kind == FolderEntry::Kind::Folder) {
        nodes_.leftovers.note(entry);
        continue;
      }
      TensorRecord record = step_.record_of(node);
      record.role = name->role;
      record.moment = moment;
      record.slot = atb_raw_slot(*name);
      fill_from_file(entry, &record);
      const bool natural = (moment == Moment::Before) == (name->role == Role::Input);
      if (natural) nodes_.file_by_reference.emplace(ids + "_" + entry.name, nodes_.records.size());
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
  // For a single folder no threads are started: they are left to the folders below it.
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
  for (auto& [reference, record] : later.file_by_reference) record += first_record;
  for (auto& [record, reference] : later.references)
    references.emplace_hint(references.end(), record + first_record, std::move(reference));
  file_by_reference.merge(later.file_by_reference);
  move_to_end(&later.names, &names);
  move_to_end(&later.records, &records);
  move_to_end(&later.operations, &operations);
  move_to_end(&later.warnings, &warnings);
  leftovers.add(std::move(later.leftovers));
}

std::string atb_raw_slot(const AtbFileName& name) {
  std::string slot(name.index);
  if (!name.parameter.empty()) slot += "_" + std::string(name.parameter);
  return slot;
}

void AtbNodes::finish(const AtbStep& step) {
  add_listed_parameters(step);
  name_slots();
  number_places();
  for (TensorRecord& record : records) {
    const AtbNodePlace& place = places.at(record.node);
    const bool on_entry = record.role == Role::Input ? !record.slot.ends_with(".after")
                                                     : record.moment == Moment::Before;
    record.order = on_entry ? place.entry : place.exit;
  }
}

// Parameters of operations that did not save them with their tensors.
void AtbNodes::add_listed_parameters(const AtbStep& step) {
  if (step.parameters.empty()) return;
  std::set<std::string> known;
  for (const OperationRecord& operation : operations) known.insert(operation.node);
  for (const std::string& node : names) {
    const auto listed = step.parameters.find(atb_ids_of_node(node));
    if (listed == step.parameters.end() || !known.insert(node).second) continue;
    operations.push_back(step.operation_of(node, step.record_of(node).op_type, listed->second));
  }
}

// The slot in which an input is before the operation and an output after it has the plain index, so
// that these meet each other in a comparison; the other two are marked.
void AtbNodes::name_slots() {
  struct Node {
    std::set<std::string> inputs_before;
    std::set<std::pair<Role, std::string>> slots;
  };
  const auto parts_of = [](const InternedText& raw) {
    const std::string_view text = raw;
    const size_t end = std::min(text.find('_'), text.size());
    return std::pair(text.substr(0, end), text.substr(std::min(end + 1, text.size())));
  };
  std::unordered_map<uint32_t, Node> nodes;
  for (const TensorRecord& record : records) {
    if (record.role == Role::Input && record.moment == Moment::Before)
      nodes[record.node.handle()].inputs_before.emplace(parts_of(record.slot).first);
  }
  for (TensorRecord& record : records) {
    Node& node = nodes[record.node.handle()];
    const auto [index, parameter] = parts_of(record.slot);
    std::string slot(index);
    if (record.role == Role::Output && record.moment == Moment::Before) slot += ".before";
    // With -time 1 there is no before/: then what the input is afterwards is all there is.
    if (record.role == Role::Input && record.moment == Moment::After &&
        node.inputs_before.contains(slot))
      slot += ".after";
    // Two versions of the library wrote into one folder: intensor0.bin and intensor0_x.bin.
    if (!node.slots.insert({record.role, slot}).second) slot += "." + std::string(parameter);
    record.slot = std::move(slot);
  }
}

// Inputs get their place when the node is entered, outputs when it is left: what a graph computed
// stands behind what its operations computed.
void AtbNodes::number_places() {
  struct Branch {
    std::map<std::string, Branch, NaturalLess> children;
  };
  Branch root;
  for (const std::string& node : names) {
    Branch* branch = &root;
    for (const std::string_view part : split(node, '/'))
      branch = &branch->children[std::string(part)];
  }
  // A stack of our own: nodes may be nested too deeply for calls.
  struct Visit {
    const Branch* branch;
    std::map<std::string, Branch, NaturalLess>::const_iterator next;
    std::string path;
  };
  std::vector<Visit> visits;
  visits.push_back({&root, root.children.begin(), {}});
  while (!visits.empty()) {
    Visit& visit = visits.back();
    if (visit.next == visit.branch->children.end()) {
      if (!visit.path.empty()) places[visit.path].exit = place_count++;
      visits.pop_back();
      continue;
    }
    const auto& [name, branch] = *visit.next++;
    std::string path = visit.path.empty() ? name : visit.path + "/" + name;
    places[path].entry = place_count++;
    visits.push_back({&branch, branch.children.begin(), std::move(path)});
  }
}

AtbNodes read_atb_nodes(const std::vector<FolderEntry>& folders, const AtbStep& step) {
  return read_children(folders, "", 0, step);
}

}  // namespace assay::run::sources
