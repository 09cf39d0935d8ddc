// SPDX-License-Identifier: Apache-2.0
// The tree of the torch hook dump, all versions: docs/formats/torch-tree.md
//
//   {dump_path}/msit_dump_20250220_083154/torch_tensors/npu5_7624/0/root.model.norm/input_0.pth
//               (or ait_dump..., or missing)  (or missing)  rank   step  node        role and slot
//
// The reader starts at any of these levels.
#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "formats/csv.hpp"
#include "run/folder.hpp"
#include "run/manifest.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/sources.hpp"
#include "run/torch_names.hpp"

namespace assay::run::sources {
namespace {

// ---- where is the tree? -------------------------------------------------------------------------

struct StepFolder {
  std::string name;  // "0", "weights"
  std::string path;
  std::string module;  // only this module folder; empty: all
  std::string module_path;
};

struct RankFolder {
  std::string path;
  bool all_steps = true;
  StepFolder only;  // when not all_steps
};

struct Location {
  std::string boundary;  // real path that links may not leave
  std::vector<RankFolder> ranks;
  std::vector<std::string> manifest_folders;  // where a manifest of the whole dump may be
};

/// One sentence for every folder of the way down that cannot be listed.
class Finder {
 public:
  /// Nothing: no torch tree.
  std::optional<Result<Location>> find(const std::string& path) {
    const std::string real = real_path(path);
    if (looks_like_rank_folder(path)) return at_rank_folders(path, {path});
    if (is_folder(join_path(path, "torch_tensors")))
      return in_torch_tensors(join_path(path, "torch_tensors"));
    if (auto found = in_dump_path(path)) return found;
    if (auto found = at_module_folder(path, real)) return found;
    if (auto found = at_step_folder(path, real)) return found;
    if (auto found = in_torch_tensors(path)) return found;
    return std::nullopt;
  }

 private:
  static std::vector<FolderEntry> folders_in(const std::string& path) {
    const Result<FolderEntries> entries = list_folder(path, real_path(path));
    return entries ? entries->folders() : std::vector<FolderEntry>();
  }

  static bool has_module_folders(const std::string& path) {
    const std::vector<FolderEntry> folders = folders_in(path);
    return std::any_of(folders.begin(), folders.end(),
                       [](const FolderEntry& folder) { return is_module_name(folder.name); });
  }

  static bool has_tensor_files(const std::string& path) {
    const Result<FolderEntries> entries = list_folder(path, real_path(path));
    return entries && std::any_of(entries->begin(), entries->end(), [](const FolderEntry& entry) {
             return entry.name == "statistics.csv" || parse_torch_file_name(entry.name).has_value();
           });
  }

  static bool has_weight_files(const std::string& path) {
    const Result<FolderEntries> entries = list_folder(path, real_path(path));
    return entries && std::any_of(entries->begin(), entries->end(), [](const FolderEntry& entry) {
             return entry.name.starts_with("root.") && entry.name.ends_with(".pth");
           });
  }

  static bool looks_like_rank_folder(const std::string& path) {
    if (is_file(join_path(path, "model_tree.json"))) return true;
    const std::vector<FolderEntry> folders = folders_in(path);
    return std::any_of(folders.begin(), folders.end(), [](const FolderEntry& folder) {
      return folder.name == "weights" ? has_weight_files(folder.path)
                                      : has_module_folders(folder.path);
    });
  }

  /// The widest folder around a rank folder that is still the same dump, so that links between
  /// ranks hold.
  static Location around(const std::string& rank_folder) {
    Location location;
    location.boundary = real_path(rank_folder);
    const std::string parent = real_path(join_path(rank_folder, ".."));
    if (base_name(parent) == "torch_tensors") {
      location.boundary = real_path(join_path(rank_folder, "../.."));
      location.manifest_folders.push_back(location.boundary);
      location.manifest_folders.push_back(parent);
    }
    return location;
  }

  static Result<Location> at_rank_folders(const std::string& inside,
                                          std::vector<std::string> folders) {
    Location location = around(folders.empty() ? join_path(inside, "x") : folders[0]);
    if (location.boundary.empty() || folders.size() > 1) location.boundary = real_path(inside);
    for (std::string& folder : folders) location.ranks.push_back({std::move(folder), true, {}});
    return location;
  }

  static std::optional<Result<Location>> in_torch_tensors(const std::string& path) {
    std::vector<std::pair<DeviceFolderName, std::string>> named;
    std::vector<std::string> others;
    for (const FolderEntry& folder : folders_in(path)) {
      if (!looks_like_rank_folder(folder.path)) continue;
      if (std::optional<DeviceFolderName> name = parse_device_folder(folder.name)) {
        named.emplace_back(*std::move(name), folder.path);
      } else {
        others.push_back(folder.path);
      }
    }
    if (named.empty() && others.empty()) return std::nullopt;
    if (named.empty() && others.size() > 1) return ambiguous(path, others);
    if (named.empty()) return at_rank_folders(path, {others[0]});
    std::sort(named.begin(), named.end(), [](const auto& a, const auto& b) {
      if (a.first.device != b.first.device) return natural_less(a.first.device, b.first.device);
      return natural_less(a.first.process, b.first.process);
    });
    std::vector<std::string> folders;
    for (auto& [name, folder] : named) folders.push_back(std::move(folder));
    return at_rank_folders(path, std::move(folders));
  }

  std::optional<Result<Location>> in_dump_path(const std::string& path) {
    std::vector<std::string> torch_roots;
    for (const FolderEntry& folder : folders_in(path)) {
      if (!is_dump_root_name(folder.name)) continue;
      if (is_folder(join_path(folder.path, "torch_tensors")) || in_torch_tensors(folder.path))
        torch_roots.push_back(folder.path);
    }
    if (torch_roots.size() > 1) return ambiguous(path, torch_roots);
    if (torch_roots.size() == 1) return find(torch_roots[0]);
    return std::nullopt;
  }

  static Result<Location> ambiguous(const std::string& path,
                                    const std::vector<std::string>& folders) {
    std::string names;
    for (const std::string& folder : folders)
      names += (names.empty() ? "" : ", ") + base_name(folder);
    return fail(
        Error{Errc::Usage, path, std::nullopt,
              "holds " + std::to_string(folders.size()) + " runs, name one of them: " + names});
  }

  static std::optional<Result<Location>> at_step(const std::string& rank_folder, StepFolder step) {
    Location location = around(rank_folder);
    location.ranks.push_back({rank_folder, false, std::move(step)});
    return Result<Location>(std::move(location));
  }

  static std::optional<Result<Location>> at_module_folder(const std::string& path,
                                                          const std::string& real) {
    if (!is_module_name(base_name(real)) || !has_tensor_files(path)) return std::nullopt;
    const std::string step = join_path(path, "..");
    return at_step(join_path(step, ".."),
                   {base_name(real_path(step)), step, base_name(real), path});
  }

  static std::optional<Result<Location>> at_step_folder(const std::string& path,
                                                        const std::string& real) {
    const std::string rank = join_path(path, "..");
    if (!has_module_folders(path) && !is_file(join_path(rank, "model_tree.json")))
      return std::nullopt;
    return at_step(rank, {base_name(real), path, "", ""});
  }
};

// ---- in which order did it run? -----------------------------------------------------------------

/// Numbers that put the tensors of one step into the order in which they came to be, as far as the
/// tree knows it: a module's inputs when it is entered, its outputs when it returns, so that what a
/// module computed stands behind what its children computed.
class ExecutionOrder {
 public:
  explicit ExecutionOrder(const std::optional<TopologyNode>& tree)
      : is_recorded_(tree.has_value()) {
    if (tree) visit(*tree);
  }

  /// Whether the writer numbered the modules as they ran. Otherwise siblings stand as they were
  /// registered.
  [[nodiscard]] bool is_recorded() const { return is_recorded_; }

  [[nodiscard]] bool knows(const std::string& node) const { return places_.contains(node); }

  /// Empty for an API folder and without a tree.
  [[nodiscard]] std::string type_of(const std::string& node) const {
    const auto found = places_.find(node);
    return found == places_.end() ? std::string() : *found->second.type;
  }

  /// Tensors with equal numbers are ordered by the name of their node. The calls of an API folder
  /// "{module}.{function}[.n]" stand right before the outputs of their module.
  [[nodiscard]] uint64_t number_of(const std::string& node, Role role) const {
    std::string ancestor = node;
    for (;;) {
      if (const auto found = places_.find(ancestor); found != places_.end()) {
        const Place& place = found->second;
        if (ancestor.size() != node.size()) return place.exit - 1;
        return role == Role::Output ? place.exit : place.entry;
      }
      const size_t dot = ancestor.rfind('.');
      if (dot == std::string::npos) return next_;
      ancestor.resize(dot);
    }
  }

 private:
  struct Place {
    uint64_t entry = 0;
    uint64_t exit = 0;
    const std::string* type = nullptr;
  };

  void visit(const TopologyNode& node) {
    // Of a name that occurs twice the first place counts.
    const bool is_new = places_.try_emplace(node.name, Place{next_, next_ + 1, &node.type}).second;
    next_ += 1;
    if (node.children.size() > 1 &&
        !std::ranges::all_of(
            node.children, [](const TopologyNode& child) { return child.exec_order.has_value(); }))
      is_recorded_ = false;
    for (const TopologyNode* child : in_execution_order(node.children)) visit(*child);
    if (is_new) places_[node.name].exit = next_ + 1;
    next_ += 2;
  }

  /// By recorded numbers, whether they were taken at entry or at return. A child that never ran
  /// keeps its place behind the one before it.
  static std::vector<const TopologyNode*> in_execution_order(
      const std::vector<TopologyNode>& children) {
    std::vector<std::pair<int64_t, const TopologyNode*>> keyed;
    int64_t last = -1;
    for (const TopologyNode& child : children) {
      if (child.exec_order.value_or(-1) >= 0) last = *child.exec_order;
      keyed.emplace_back(last, &child);
    }
    std::stable_sort(keyed.begin(), keyed.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<const TopologyNode*> ordered;
    for (const auto& [key, child] : keyed) ordered.push_back(child);
    return ordered;
  }

  std::unordered_map<std::string, Place> places_;
  uint64_t next_ = 0;
  bool is_recorded_ = false;
};

// ---- statistics.csv -----------------------------------------------------------------------------

struct StatisticsRow {
  std::string node_type;
  Role role = Role::Output;
  std::string index;  // last index of the file name: "0" for "output", "output_0" and "output_1_0"
  std::optional<DType> dtype;
  std::optional<Dims> shape;
  stats::TensorStats stats;
};

double number_or_nan(const std::string& text) { return parse_number<double>(text).value_or(NAN); }

/// Rows of a statistics.csv. Rows that do not have the ten columns are counted in a warning.
std::vector<StatisticsRow> read_statistics(const std::string& path, Run* run) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) {
    run->warnings.push_back(file.error().describe());
    return {};
  }
  const formats::CsvTable table = formats::read_csv(as_text(file->bytes()));
  std::vector<StatisticsRow> rows;
  size_t damaged = 0;
  for (const std::vector<std::string>& cells : table.rows) {
    if (!cells.empty() && cells[0] == "NodeName") continue;
    if (cells.size() != 10) {
      ++damaged;
      continue;
    }
    StatisticsRow row;
    row.node_type = cells[1];
    row.role = cells[2] == "Input" ? Role::Input : Role::Output;
    row.index = cells[3];
    std::replace(row.index.begin(), row.index.end(), '_', '.');
    row.dtype = dtype_from_name(cells[4]);
    row.shape = parse_shape_text(cells[5]);
    if (row.shape) row.stats.count = element_count(*row.shape).value_or(0);
    row.stats.max = number_or_nan(cells[6]);
    row.stats.min = number_or_nan(cells[7]);
    row.stats.mean = number_or_nan(cells[8]);
    row.stats.l2_norm = number_or_nan(cells[9]);
    rows.push_back(std::move(row));
  }
  if (damaged > 0 || table.unterminated_quote) {
    run->warnings.push_back(
        path + ": " + std::to_string(damaged) + " rows do not have 10 columns and were left out" +
        (table.unterminated_quote ? "; the file was cut off inside quotes" : ""));
  }
  return rows;
}

/// The Index that a statistics row of this slot has.
std::string_view csv_index(const std::string& slot) {
  if (slot.empty()) return "0";
  return std::string_view(slot).substr(slot.rfind('.') + 1);
}

void apply_statistics(const StatisticsRow& row, TensorRecord* record) {
  record->stats = row.stats;
  record->dtype = row.dtype;
  record->shape = row.shape;
}

/// Gives the rows to the records of their folder. A folder that was written several times in one
/// step has a group of rows for each call, but only the files of the last one; rows without a file
/// become records of their own.
void join_statistics(const std::string& path, const std::vector<StatisticsRow>& rows,
                     const TensorRecord& example, const ExecutionOrder& order, size_t first,
                     Run* run) {
  std::map<std::pair<Role, std::string>, std::vector<const StatisticsRow*>> groups;
  for (const StatisticsRow& row : rows) groups[{row.role, row.index}].push_back(&row);
  // By slot, and by what the table may have in place of it; a slot with a dot is none of the
  // latter.
  std::map<std::pair<Role, std::string>, std::vector<size_t>> files_of;
  for (size_t i = first; i < run->records.size(); ++i) {
    const TensorRecord& record = run->records[i];
    if (record.stats || !record.bytes) continue;
    const std::string index(csv_index(record.slot));
    files_of[{record.role, index}].push_back(i);
    if (record.slot.find('.') != std::string::npos && record.slot != index)
      files_of[{record.role, record.slot}].push_back(i);
  }
  for (const auto& [key, members] : groups) {
    const auto& [role, index] = key;
    std::vector<size_t> files = files_of[key];
    std::erase_if(files, [&](size_t i) { return run->records[i].stats.has_value(); });
    // Several slots end in the same index; the rows come in the order of the files.
    const size_t per_call = std::max<size_t>(1, files.size());
    const bool fits = members.size() % per_call == 0;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto call = static_cast<uint32_t>(fits ? i / per_call : i);
      const bool last_call = fits && !files.empty() && i + files.size() >= members.size();
      if (last_call) {
        TensorRecord& record = run->records[files[i % per_call]];
        apply_statistics(*members[i], &record);
        record.call = call;
        continue;
      }
      TensorRecord record = example;
      record.role = role;
      record.order = order.number_of(record.node, role);
      record.slot = fits && !files.empty() ? run->records[files[i % per_call]].slot.str() : index;
      record.call = call;
      apply_statistics(*members[i], &record);
      record.stats_file = path;
      run->records.push_back(std::move(record));
    }
  }
}

// ---- reading ------------------------------------------------------------------------------------

class Reader {
 public:
  Reader(Location location, Run* run) : location_(std::move(location)), run_(run) {}

  void read() {
    bool found = false;
    for (const std::string& folder : location_.manifest_folders) {
      if (!found) found = take_manifest(folder);
    }
    for (size_t rank = 0; rank < location_.ranks.size(); ++rank) {
      if (!found) (void)take_manifest(location_.ranks[rank].path);
      read_rank(location_.ranks[rank], static_cast<int>(rank));
    }
    if (!unknown_files_.empty()) {
      run_->warnings.push_back(
          std::to_string(unknown_file_count_) +
          " files have names that this layout does not know and were left out: " + unknown_files_);
    }
    if (unfinished_files_ > 0) {
      run_->coverage.complete = false;
      run_->warnings.push_back("the dump is still being written, or its writer was killed: " +
                               std::to_string(unfinished_files_) + " unfinished files");
    }
    std::set<std::string_view> nodes;
    for (const TensorRecord& record : run_->records) nodes.insert(record.node);
    run_->coverage.captured = std::max<uint64_t>(run_->coverage.captured, nodes.size());
  }

 private:
  /// returns  whether the folder has one
  bool take_manifest(const std::string& folder) {
    const Manifest manifest = add_manifest_file(join_path(folder, "manifest.json"), run_);
    if (manifest.is_unfinished()) run_->coverage.complete = false;
    return manifest.found;
  }

  FolderEntries list(const std::string& path) {
    Result<FolderEntries> entries = list_folder(path, location_.boundary);
    if (entries) return *std::move(entries);
    run_->warnings.push_back(entries.error().describe());
    return {};
  }

  void read_rank(const RankFolder& folder, int rank) {
    rank_ = rank;
    const std::optional<TopologyNode> tree = read_tree(join_path(folder.path, "model_tree.json"));
    const ExecutionOrder order(tree);
    order_ = &order;
    run_->order_known = run_->order_known && order.is_recorded();
    if (tree && !run_->topology) run_->topology = tree;
    if (!folder.all_steps) {
      read_step(folder.only);
    } else {
      for (const FolderEntry& entry : list(folder.path)) {
        if (entry.kind == FolderEntry::Kind::Folder) {
          read_step({entry.name, entry.path, "", ""});
        } else if (entry.kind == FolderEntry::Kind::Unusable) {
          run_->warnings.push_back(entry.path + ": " + entry.problem);
        } else {
          note_unfinished(entry.name);
        }
      }
    }
    order_ = nullptr;
  }

  std::optional<TopologyNode> read_tree(const std::string& path) {
    const Result<MappedFile> file = MappedFile::open(path);
    if (!file) {
      if (file.error().code != Errc::NotFound) run_->warnings.push_back(file.error().describe());
      return std::nullopt;
    }
    Result<TopologyNode> tree = in_file(path, topology::read_model_tree(as_text(file->bytes())));
    if (tree) return *std::move(tree);
    run_->warnings.push_back(tree.error().describe());
    return std::nullopt;
  }

  TensorRecord record_of(const StepFolder& step, const std::string& node) const {
    TensorRecord record;
    record.rank = rank_;
    record.step_name = step.name;
    record.step = std::max(parse_number<int64_t>(step.name).value_or(-1), int64_t{-1});
    record.node = node;
    record.op_type = order_->type_of(node);
    record.order = order_->number_of(node, Role::Input);
    return record;
  }

  void set_role(Role role, TensorRecord* record) const {
    record->role = role;
    record->order = order_->number_of(record->node, role);
  }

  static void set_file(const FolderEntry& entry, TensorRecord* record) {
    if (entry.kind == FolderEntry::Kind::File) {
      ByteLocation location;
      location.file = entry.path;
      record->bytes = std::move(location);
    } else {
      record->problem =
          entry.path + ": " +
          (entry.problem.empty() ? "is a folder, a file was expected" : entry.problem);
    }
  }

  void read_step(const StepFolder& step) {
    if (step.name == "weights") {
      read_weights(step);
      return;
    }
    if (!step.module.empty()) {
      read_module(step, {step.module, step.module_path, FolderEntry::Kind::Folder, false, ""});
      return;
    }
    for (const FolderEntry& entry : list(step.path)) {
      if (entry.kind == FolderEntry::Kind::Folder) {
        read_module(step, entry);
      } else if (entry.kind == FolderEntry::Kind::Unusable) {
        run_->warnings.push_back(entry.path + ": " + entry.problem);
      } else {
        note_other(entry);
      }
    }
  }

  void read_weights(const StepFolder& step) {
    for (const FolderEntry& entry : list(step.path)) {
      if (!entry.name.starts_with("root.") || !entry.name.ends_with(".pth")) {
        note_other(entry);
        continue;
      }
      // root.<module path>.<parameter>.pth
      const std::string name = entry.name.substr(0, entry.name.size() - 4);
      const size_t dot = name.rfind('.');
      TensorRecord record = record_of(step, name.substr(0, dot));
      record.role = Role::Weight;
      record.slot = name.substr(dot + 1);
      set_file(entry, &record);
      run_->records.push_back(std::move(record));
    }
  }

  void read_module(const StepFolder& step, const FolderEntry& folder) {
    // The first API dumps had {rank folder}/{function}/{call number} and no step folder.
    const bool old_api = !is_module_name(folder.name) && !order_->knows(folder.name) &&
                         folder.name.find_first_not_of("0123456789") == std::string::npos &&
                         step.name.find_first_not_of("0123456789") != std::string::npos;
    TensorRecord example = record_of(step, old_api ? step.name : folder.name);
    if (old_api) {
      example.call = parse_number<uint32_t>(folder.name).value_or(0);
    }
    const size_t first = run_->records.size();
    std::string statistics;
    std::set<uint64_t> executions;
    std::vector<std::pair<size_t, uint64_t>> numbered;  // record, execution
    for (const FolderEntry& entry : list(folder.path)) {
      if (entry.name == "statistics.csv" && entry.kind == FolderEntry::Kind::File) {
        statistics = entry.path;
        continue;
      }
      const std::optional<TorchFileName> name = parse_torch_file_name(entry.name);
      if (!name) {
        note_other(entry);
        continue;
      }
      TensorRecord record = example;
      set_role(name->role, &record);
      record.slot = name->slot;
      set_file(entry, &record);
      if (name->execution) {
        executions.insert(*name->execution);
        numbered.emplace_back(run_->records.size(), *name->execution);
      }
      run_->records.push_back(std::move(record));
    }
    // The counter of the oldest version runs through all steps; within this one the calls count
    // from 0.
    for (const auto& [index, execution] : numbered) {
      run_->records[index].call =
          static_cast<uint32_t>(std::distance(executions.begin(), executions.find(execution)));
    }
    if (statistics.empty()) return;
    const std::vector<StatisticsRow> rows = read_statistics(statistics, run_);
    // The type column of an API row is the class of the whole model, which says nothing about the
    // function.
    if (example.op_type.empty() && !rows.empty() && !run_->topology) {
      example.op_type = rows[0].node_type;
      for (size_t i = first; i < run_->records.size(); ++i)
        run_->records[i].op_type = example.op_type;
    }
    join_statistics(statistics, rows, example, *order_, first, run_);
  }

  void note_unfinished(const std::string& name) {
    if (name.find(".tmp") != std::string::npos) ++unfinished_files_;
  }

  void note_other(const FolderEntry& entry) {
    // Extra files of ours and of users are fine as long as they do not look like tensors.
    if (entry.name.find(".tmp") != std::string::npos) {
      ++unfinished_files_;
    } else if (has_tensor_suffix(entry.name)) {
      ++unknown_file_count_;
      if (unknown_files_.empty()) unknown_files_ = entry.path;
    }
  }

  Location location_;
  Run* run_;
  int rank_ = 0;
  const ExecutionOrder* order_ = nullptr;
  std::string unknown_files_;
  size_t unknown_file_count_ = 0;
  size_t unfinished_files_ = 0;
};

}  // namespace

Attempt read_torch_tree(const std::string& path) {
  std::optional<Result<Location>> location = Finder().find(path);
  if (!location) return std::nullopt;
  if (!*location) return Result<Run>(fail(location->error()));
  Run run;
  run.layout = Layout::TorchTree;
  Reader(**std::move(location), &run).read();
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
