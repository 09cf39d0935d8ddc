// SPDX-License-Identifier: Apache-2.0
// Dumps of the ATB acceleration library, all versions: docs/formats/atb-tree.md
//
//   {output}/msit_dump_20260105_020000/tensors/0_39943/0/1_Decoder_layer/0_LinearOperation/
//            (or ait_dump..., or missing)      process run node         before/intensor0.bin
//                                                                       after/outtensor0.bin
//
// The reader starts at any of these levels down to the run.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/mapped_file.hpp"
#include "run/atb_names.hpp"
#include "run/atb_record.hpp"
#include "run/folder.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/atb_tree_find.hpp"
#include "run/sources/atb_tree_lists.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

constexpr int kMaxNodeDepth = 1000;    // graphs in graphs, as the topology files
constexpr int kMaxReferenceSteps = 8;  // of msprobe's data= from file to file
constexpr size_t kMaxParameterBytes = size_t{16} << 20;

enum class Moment : uint8_t { Before, After };

/// One tensor file of a node, before it becomes a record.
struct NodeFile {
  FolderEntry entry;
  AtbFileName name;  // borrows entry.name
  Moment moment = Moment::After;
};

/// Where the records of a node stand in execution order.
struct NodePlace {
  uint64_t entry = 0;
  uint64_t exit = 0;
};

/// The slot in which an input is before the operation and an output after it has the plain index, so
/// that these meet each other in a comparison; the other two are marked.
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

class Reader {
 public:
  Reader(AtbLocation location, Run* run) : location_(std::move(location)), run_(run) {}

  void read() {
    read_atb_coverage(location_.root, run_);
    for (const AtbProcess& process : location_.processes) read_process(process);
    if (!location_.named_below_root) read_listed_processes();
    add_topology();
    warn_of_leftovers();
    if (run_->coverage.planned == 0 && run_->coverage.captured == 0)
      run_->coverage.captured = run_->records.size();
    if (run_->records.empty() && run_->operations.empty())
      run_->warnings.push_back("the dump holds no tensors");
  }

 private:
  std::vector<FolderEntry> list(const std::string& path) {
    Result<std::vector<FolderEntry>> entries = list_folder(path, location_.boundary);
    if (entries) return *std::move(entries);
    run_->warnings.push_back(entries.error().describe());
    return {};
  }

  void warn_of_leftovers() {
    if (unfinished_files_ > 0) {
      run_->coverage.complete = false;
      run_->warnings.push_back("the dump is still being written, or its writer was killed: " +
                               std::to_string(unfinished_files_) + " unfinished files (.tmp)");
    }
    if (appended_files_ > 0) {
      run_->warnings.push_back(
          std::to_string(appended_files_) +
          " files hold more than one record, of which the first was read: " + first_appended_);
    }
    if (unknown_file_count_ > 0) {
      run_->warnings.push_back(
          std::to_string(unknown_file_count_) +
          " files have names that this layout does not know and were left out: " + unknown_file_);
    }
  }

  // ---- processes and runs ------------------------------------------------------------------------

  void start_rank(const AtbProcess& process) {
    rank_ = next_rank_++;
    ranks_.push_back(process);
    const std::string name = "rank" + std::to_string(rank_);
    if (process.device >= -1 && !process.path.empty())
      run_->properties[name + ".device"] = std::to_string(process.device);
    run_->properties[name + ".pid"] = std::to_string(process.process);
  }

  void read_process(const AtbProcess& process) {
    start_rank(process);
    read_calls(process.process);
    for (const FolderEntry& entry : list(process.path)) {
      if (entry.kind == FolderEntry::Kind::Unusable) {
        run_->warnings.push_back(entry.path + ": " + entry.problem);
      } else if (entry.kind == FolderEntry::Kind::File) {
        note_other(entry);
      } else if (process.only_step.empty() || entry.name == process.only_step) {
        read_step(entry.name, entry.path);
      }
    }
  }

  /// Processes of which there are lists but no tensors: their calls, without data.
  void read_listed_processes() {
    std::set<int64_t> known;
    for (const AtbProcess& process : location_.processes) known.insert(process.process);
    for (const int64_t process : atb_listed_processes(location_.list_folders)) {
      if (known.contains(process)) continue;
      start_rank({-1, process, "", ""});
      read_calls(process);
      add_listed_calls();
    }
  }

  void read_calls(int64_t process) {
    calls_ = read_atb_operation_lists(location_.list_folders, process, run_);
    parameters_.clear();
    for (const AtbListedCall& call : calls_) {
      if (!call.ids.empty() && !call.parameters.empty())
        parameters_.emplace(std::pair(call.step_name, call.ids), &call.parameters);
    }
  }

  void add_listed_calls() {
    std::map<std::pair<std::string, std::string>, uint32_t> count;
    uint64_t order = 0;
    for (const AtbListedCall& call : calls_) {
      step_name_ = call.step_name;
      const uint32_t number = count[{call.step_name, call.op_name}]++;
      TensorRecord example = record_of(call.op_name);
      if (!call.ids.empty())
        example.op_type = call.op_name.substr(0, call.op_name.size() - call.ids.size() - 1);
      example.call = number;
      for (const TensorRecord& tensor : call.tensors) {
        TensorRecord record = example;
        record.role = tensor.role;
        record.slot = tensor.slot;
        record.dtype = tensor.dtype;
        record.shape = tensor.shape;
        record.memory_format = tensor.memory_format;
        record.order = order++;
        run_->records.push_back(std::move(record));
      }
      add_operation(call.op_name, example.op_type, call.parameters);
    }
  }

  void read_step(const std::string& name, const std::string& path) {
    step_name_ = name;
    first_record_ = run_->records.size();
    places_.clear();
    file_by_reference_.clear();
    references_.clear();
    next_place_ = 0;
    std::string statistics;
    for (const FolderEntry& entry : list(path)) {
      if (entry.kind == FolderEntry::Kind::Folder) {
        read_child(entry, "", 0);
      } else if (entry.name == "statistic.csv" && entry.kind == FolderEntry::Kind::File) {
        statistics = entry.path;
      } else if (entry.kind == FolderEntry::Kind::Unusable) {
        run_->warnings.push_back(entry.path + ": " + entry.problem);
      } else {
        note_other(entry);
      }
    }
    resolve_references();
    if (!statistics.empty()) join_statistics(read_atb_statistic_csv(statistics, run_));
  }

  // ---- nodes -------------------------------------------------------------------------------------

  void read_child(const FolderEntry& folder, const std::string& parent, int depth) {
    if (!parse_atb_node_folder(folder.name)) {
      run_->warnings.push_back(folder.path + ": is no folder of an operation and was left out");
    } else if (folder.is_link) {
      run_->warnings.push_back(folder.path + ": linked folders are not followed");
    } else if (depth >= kMaxNodeDepth) {
      run_->warnings.push_back(folder.path + ": operations are nested deeper than 1000");
    } else {
      read_node(folder.path, parent.empty() ? folder.name : parent + "/" + folder.name, depth);
    }
  }

  /// Inputs get their place when the node is entered, outputs when it is left: what a graph computed
  /// stands behind what its operations computed.
  void read_node(const std::string& path, const std::string& node, int depth) {
    const uint64_t entry_place = next_place_++;
    std::vector<NodeFile> files;
    std::string parameters;
    for (const FolderEntry& entry : list(path)) {
      if (entry.kind == FolderEntry::Kind::Folder && entry.name == "before") {
        collect_files(entry.path, Moment::Before, &files);
      } else if (entry.kind == FolderEntry::Kind::Folder && entry.name == "after") {
        collect_files(entry.path, Moment::After, &files);
      } else if (entry.kind == FolderEntry::Kind::Folder) {
        read_child(entry, node, depth + 1);
      } else if (entry.name == "op_param.json" && entry.kind == FolderEntry::Kind::File) {
        parameters = read_parameters(entry.path);
      } else {
        note_other(entry);
      }
    }
    const NodePlace place{entry_place, next_place_++};
    places_[node] = place;
    const std::string ids = atb_ids_of_node(node);
    if (parameters.empty()) {
      const auto listed = parameters_.find({step_name_, ids});
      if (listed != parameters_.end()) parameters = *listed->second;
    }
    if (!parameters.empty()) add_operation(node, record_of(node).op_type, parameters);
    add_files(node, ids, place, &files);
  }

  void collect_files(const std::string& path, Moment moment, std::vector<NodeFile>* files) {
    for (FolderEntry& entry : list(path)) {
      if (!parse_atb_file_name(entry.name) || entry.kind == FolderEntry::Kind::Folder) {
        note_other(entry);
        continue;
      }
      files->push_back({std::move(entry), {}, moment});
    }
  }

  void add_files(const std::string& node, const std::string& ids, const NodePlace& place,
                 std::vector<NodeFile>* files) {
    std::set<std::string> inputs_before;
    for (NodeFile& file : *files) {
      file.name = *parse_atb_file_name(file.entry.name);
      if (file.name.role == Role::Input && file.moment == Moment::Before)
        inputs_before.insert(std::string(file.name.index));
    }
    std::set<std::pair<Role, std::string>> slots;
    for (const NodeFile& file : *files) {
      TensorRecord record = record_of(node);
      record.role = file.name.role;
      record.slot = slot_of(file, inputs_before);
      // Two versions of the library wrote into one folder: intensor0.bin and intensor0_x.bin.
      if (!slots.insert({record.role, record.slot}).second)
        record.slot += "." + std::string(file.name.parameter);
      const bool on_entry = record.role == Role::Input ? !record.slot.ends_with(".after")
                                                       : file.moment == Moment::Before;
      record.order = on_entry ? place.entry : place.exit;
      fill_from_file(file.entry, &record);
      const bool natural = (file.moment == Moment::Before) == (record.role == Role::Input);
      if (natural) file_by_reference_.emplace(ids + "_" + file.entry.name, run_->records.size());
      run_->records.push_back(std::move(record));
    }
  }

  void fill_from_file(const FolderEntry& entry, TensorRecord* record) {
    std::string path = entry.path;
    if (entry.kind == FolderEntry::Kind::Unusable) {
      path = entry.is_link ? moved_link_target(entry.path, location_.boundary) : std::string();
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
      references_[run_->records.size()] = parsed->reference;
    if (parsed->record_bytes < file->bytes().size() && parsed->payload) {
      if (appended_files_++ == 0) first_appended_ = path;
    }
  }

  /// msprobe's data=<ids>_<file>: the same tensor, stored where it first occurred in this run.
  void resolve_references() {
    for (const auto& [index, reference] : references_) {
      TensorRecord& record = run_->records[index];
      std::string name = reference;
      size_t target = index;
      for (int step = 0; step < kMaxReferenceSteps && !run_->records[target].bytes; ++step) {
        const auto found = file_by_reference_.find(name);
        if (found == file_by_reference_.end() || found->second == index) break;
        target = found->second;
        const auto next = references_.find(target);
        if (next != references_.end()) name = next->second;
      }
      const TensorRecord& stored = run_->records[target];
      if (!stored.bytes || !stored.problem.empty()) {
        record.problem = "its data was stored as " + reference + ", which this dump does not hold";
      } else if (stored.dtype != record.dtype || stored.shape != record.shape) {
        record.problem =
            "its data was stored as " + reference + ", which has another type or shape";
      } else {
        record.bytes = stored.bytes;
        record.strides = stored.strides;
      }
    }
  }

  /// Rows of msprobe's table give their numbers to the records of their tensors, or become records.
  /// The table is in execution order.
  void join_statistics(const std::vector<AtbStatisticRow>& rows) {
    std::map<std::tuple<std::string, Role, std::string>, size_t> by_slot;
    for (size_t i = first_record_; i < run_->records.size(); ++i) {
      const TensorRecord& record = run_->records[i];
      by_slot.emplace(std::tuple(record.node, record.role, record.slot), i);
    }
    uint64_t order = next_place_;
    for (const AtbStatisticRow& row : rows) {
      const auto found = by_slot.find(std::tuple(row.node, row.role, row.index));
      if (found != by_slot.end()) {
        TensorRecord& record = run_->records[found->second];
        if (row.stats && !record.stats) record.stats = row.stats;
        if (!record.dtype) record.dtype = row.dtype;
        if (!record.shape) record.shape = row.shape;
        continue;
      }
      TensorRecord record = record_of(row.node);
      record.op_type = row.op_type;
      record.role = row.role;
      record.slot = row.index;
      record.dtype = row.dtype;
      record.shape = row.shape;
      record.stats = row.stats;
      const auto place = places_.find(row.node);
      record.order = place == places_.end()    ? order++
                     : row.role == Role::Input ? place->second.entry
                                               : place->second.exit;
      run_->records.push_back(std::move(record));
    }
  }

  // ---- details -----------------------------------------------------------------------------------

  TensorRecord record_of(const std::string& node) const {
    TensorRecord record;
    record.rank = rank_;
    record.step_name = step_name_;
    record.step = parse_atb_run_count(step_name_).value_or(-1);
    record.node = node;
    const std::string last = node.substr(node.rfind('/') + 1);
    if (const auto name = parse_atb_node_folder(last)) record.op_type = name->type;
    return record;
  }

  std::string read_parameters(const std::string& path) {
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file) {
      run_->warnings.push_back(file.error().describe());
      return {};
    }
    std::string_view text = as_text(file->bytes());
    if (text.size() > kMaxParameterBytes) {
      run_->warnings.push_back(path + ": parameters of more than 16 MiB were left out");
      return {};
    }
    while (text.ends_with('\n') || text.ends_with('\r')) text.remove_suffix(1);
    return std::string(text);
  }

  void add_operation(const std::string& node, const std::string& op_type,
                     const std::string& parameters) {
    OperationRecord operation;
    operation.rank = rank_;
    operation.step_name = step_name_;
    operation.step = parse_atb_run_count(step_name_).value_or(-1);
    operation.node = node;
    operation.op_type = op_type;
    operation.parameters = parameters;
    run_->operations.push_back(std::move(operation));
  }

  /// The topology of the first process that left one.
  void add_topology() {
    for (size_t rank = 0; rank < ranks_.size() && !run_->topology; ++rank) {
      std::set<std::string, NaturalLess> nodes;
      for (const TensorRecord& record : run_->records) {
        if (record.rank != static_cast<int>(rank)) continue;
        // A graph whose own tensors were not saved is a folder on the way, too.
        for (size_t slash = record.node.find('/'); slash != std::string::npos;
             slash = record.node.find('/', slash + 1))
          nodes.insert(record.node.substr(0, slash));
        nodes.insert(record.node);
      }
      run_->topology =
          read_atb_topology(location_, ranks_[rank], {nodes.begin(), nodes.end()}, run_);
    }
  }

  void note_other(const FolderEntry& entry) {
    if (entry.name.find(".tmp") != std::string::npos) {
      ++unfinished_files_;
    } else if (has_tensor_suffix(entry.name) && entry.name != "kernel_tilingdata.bin") {
      if (unknown_file_count_++ == 0) unknown_file_ = entry.path;
    }
  }

  AtbLocation location_;
  Run* run_;
  std::vector<AtbProcess> ranks_;
  int next_rank_ = 0;

  // Of the process that is being read:
  int rank_ = 0;
  std::vector<AtbListedCall> calls_;
  std::map<std::pair<std::string, std::string>, const std::string*> parameters_;  // (run, ids)

  // Of the run count that is being read:
  std::string step_name_;
  size_t first_record_ = 0;
  uint64_t next_place_ = 0;
  std::unordered_map<std::string, NodePlace> places_;
  std::unordered_map<std::string, size_t> file_by_reference_;  // "0_0_intensor0.bin" -> record
  std::map<size_t, std::string> references_;                   // record -> data=

  size_t unfinished_files_ = 0;
  size_t appended_files_ = 0;
  std::string first_appended_;
  size_t unknown_file_count_ = 0;
  std::string unknown_file_;
};

/// (rank, run, node), as the records.
void sort_operations(std::vector<OperationRecord>* operations) {
  std::stable_sort(operations->begin(), operations->end(),
                   [](const OperationRecord& a, const OperationRecord& b) {
                     if (a.rank != b.rank) return a.rank < b.rank;
                     if (a.step_name != b.step_name) return natural_less(a.step_name, b.step_name);
                     return natural_less(a.node, b.node);
                   });
}

}  // namespace

Attempt read_atb_tree(const std::string& path) {
  std::optional<Result<AtbLocation>> location = find_atb_tree(path);
  if (!location) return std::nullopt;
  if (!*location) return Result<Run>(fail(location->error()));
  Run run;
  run.layout = "atb-tree";
  Reader(**std::move(location), &run).read();
  sort_operations(&run.operations);
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
