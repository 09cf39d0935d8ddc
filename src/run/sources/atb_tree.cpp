// SPDX-License-Identifier: Apache-2.0
// Dumps of the ATB acceleration library, all versions: docs/formats/atb-tree.md
//
//   {output}/msit_dump_20260105_020000/tensors/0_39943/0/1_Decoder_layer/0_LinearOperation/
//            (or ait_dump..., or missing)      process run node         before/intensor0.bin
//                                                                       after/outtensor0.bin
//
// The reader starts at any of these levels down to the run. The folder of a process may hold lines
// and growing files instead, or as well: docs/formats/native.md, "ATB".
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/file_source.hpp"
#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/probe_status.hpp"
#include "run/atb_names.hpp"
#include "run/folder.hpp"
#include "run/manifest.hpp"
#include "run/native_damage.hpp"
#include "run/native_records.hpp"
#include "run/natural_sort.hpp"
#include "run/sources/atb_lines.hpp"
#include "run/sources/atb_tree_find.hpp"
#include "run/sources/atb_tree_lists.hpp"
#include "run/sources/atb_tree_nodes.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

constexpr int kMaxReferenceSteps = 8;  // of msprobe's data= from file to file

class Reader {
 public:
  Reader(AtbLocation location, Run* run) : location_(std::move(location)), run_(run) {}

  void read() {
    read_atb_coverage(location_.root, run_);
    for (const AtbProcess& process : location_.processes) read_process(process);
    if (!location_.named_below_root) read_listed_processes();
    add_topology();
    say_which_devices_are_shared();
    warn_of_leftovers();
    if (run_->coverage.planned == 0 && run_->coverage.captured == 0)
      run_->coverage.captured = run_->records.size();
    if (run_->records.empty() && run_->operations.empty())
      run_->warnings.push_back("the dump holds no tensors");
  }

 private:
  FolderEntries list(const std::string& path) {
    Result<FolderEntries> entries = list_folder(path, location_.boundary);
    if (entries) return *std::move(entries);
    run_->warnings.push_back(entries.error().describe());
    return {};
  }

  void warn_of_leftovers() {
    if (leftovers_.unfinished_files > 0) {
      run_->coverage.complete = false;
      run_->warnings.push_back("the dump is still being written, or its writer was killed: " +
                               std::to_string(leftovers_.unfinished_files) +
                               " unfinished files (.tmp)");
    }
    if (leftovers_.appended_files > 0) {
      run_->warnings.push_back(std::to_string(leftovers_.appended_files) +
                               " files hold more than one record, of which the first was read: " +
                               leftovers_.first_appended);
    }
    if (leftovers_.unknown_files > 0) {
      run_->warnings.push_back(
          std::to_string(leftovers_.unknown_files) +
          " files have names that this layout does not know and were left out: " +
          leftovers_.first_unknown);
    }
  }

  // ---- processes and runs -----------------------------------------------------------------------

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
    const bool is_native = is_file(join_path(process.path, native::kRecordsFile));
    std::map<std::string, AtbNodes, NaturalLess> steps;
    if (is_native) steps = read_lines(process);
    for (const FolderEntry& entry : list(process.path)) {
      if (is_native && entry.name.ends_with(native::kStepFileSuffix)) continue;
      if (entry.kind == FolderEntry::Kind::Unusable) {
        run_->warnings.push_back(entry.path + ": " + entry.problem);
      } else if (entry.kind == FolderEntry::Kind::File) {
        leftovers_.note(entry);
      } else if (process.only_step.empty() || entry.name == process.only_step) {
        read_step(entry.name, entry.path, take_step(entry.name, &steps));
      }
    }
    for (auto& [name, nodes] : steps) {
      run_->step_folders[{rank_, name}] = folder_of_step(join_path(process.path, name));
      finish_step(step_of(name), std::move(nodes), {});
    }
  }

  /// A dump that was named by its run count is read through "0/../0".
  static std::string folder_of_step(const std::string& path) {
    return is_elsewhere(path) ? normal_path(path)
                              : std::filesystem::path(path).lexically_normal().string();
  }

  static AtbNodes take_step(const std::string& name,
                            std::map<std::string, AtbNodes, NaturalLess>* steps) {
    const auto found = steps->find(name);
    return found == steps->end() ? AtbNodes() : std::move(steps->extract(found).mapped());
  }

  /// What the process recorded in the native layout, by run count.
  std::map<std::string, AtbNodes, NaturalLess> read_lines(const AtbProcess& process) {
    // Its properties and its coverage are told by the dump as a whole.
    Run told;
    const Manifest manifest =
        add_manifest_file(join_path(process.path, native::kManifestFile), &told);
    if (!told.coverage.complete || manifest.is_unfinished()) run_->coverage.complete = false;
    move_to_end(&told.warnings, &run_->warnings);
    for (Damage& one : told.damage) run_->add_damage(one.file, std::move(one.what));
    const size_t first_record = run_->records.size();
    const size_t first_operation = run_->operations.size();
    const RecordsFacts facts = read_records(process.path, rank_, location_.boundary, run_);
    find_native_damage(process.path, location_.boundary, manifest, facts, run_);
    if (!manifest.found && !facts.run_id.empty()) run_->coverage.complete = false;
    AtbLines lines(process.only_step);
    for (size_t i = first_record; i < run_->records.size(); ++i)
      lines.add(std::move(run_->records[i]));
    for (size_t i = first_operation; i < run_->operations.size(); ++i)
      lines.add(std::move(run_->operations[i]));
    run_->records.resize(first_record);
    run_->operations.resize(first_operation);
    return lines.take_steps();
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
  }

  AtbStep step_of(const std::string& name) const {
    AtbStep step{location_.boundary, rank_, name, {}};
    for (const AtbListedCall& call : calls_) {
      if (call.step_name == name && !call.ids.empty() && !call.parameters.empty())
        step.parameters.emplace(call.ids, call.parameters);
    }
    return step;
  }

  void add_listed_calls() {
    std::map<std::pair<std::string, std::string>, uint32_t> count;
    uint64_t order = 0;
    for (const AtbListedCall& call : calls_) {
      const AtbStep step{location_.boundary, rank_, call.step_name, {}};
      const uint32_t number = count[{call.step_name, call.op_name}]++;
      TensorRecord example = step.record_of(call.op_name);
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
      run_->operations.push_back(step.operation_of(call.op_name, example.op_type, call.parameters));
    }
  }

  /// recorded   what of this run count is in the native layout
  void read_step(const std::string& name, const std::string& path, AtbNodes recorded) {
    std::string statistics;
    std::vector<FolderEntry> folders;
    for (const FolderEntry& entry : list(path)) {
      if (entry.kind == FolderEntry::Kind::Folder) {
        folders.push_back(entry);
      } else if (entry.name == "statistic.csv" && entry.kind == FolderEntry::Kind::File) {
        statistics = entry.path;
      } else if (entry.kind == FolderEntry::Kind::Unusable) {
        run_->warnings.push_back(entry.path + ": " + entry.problem);
      } else {
        leftovers_.note(entry);
      }
    }
    run_->step_folders[{rank_, name}] = folder_of_step(path);
    const AtbStep step = step_of(name);
    recorded.append(read_atb_nodes(folders, step));
    finish_step(step, std::move(recorded), statistics);
  }

  void finish_step(const AtbStep& step, AtbNodes nodes, const std::string& statistics) {
    nodes.finish(step);
    resolve_references(&nodes);
    if (!statistics.empty())
      join_statistics(statistics, read_atb_statistic_csv(statistics, run_), step, &nodes);
    move_to_end(&nodes.records, &run_->records);
    move_to_end(&nodes.operations, &run_->operations);
    move_to_end(&nodes.warnings, &run_->warnings);
    leftovers_.add(std::move(nodes.leftovers));
  }

  /// msprobe's data=<ids>_<file>: the same tensor, stored where it first occurred in this run.
  static void resolve_references(AtbNodes* nodes) {
    for (const auto& [index, reference] : nodes->references) {
      TensorRecord& record = nodes->records[index];
      std::string name = reference;
      size_t target = index;
      for (int step = 0; step < kMaxReferenceSteps && !nodes->records[target].bytes; ++step) {
        const auto found = nodes->file_by_reference.find(name);
        if (found == nodes->file_by_reference.end() || found->second == index) break;
        target = found->second;
        const auto next = nodes->references.find(target);
        if (next != nodes->references.end()) name = next->second;
      }
      const TensorRecord& stored = nodes->records[target];
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
  static void join_statistics(const std::string& path, const std::vector<AtbStatisticRow>& rows,
                              const AtbStep& step, AtbNodes* nodes) {
    std::map<std::tuple<std::string, Role, std::string>, size_t> by_slot;
    for (size_t i = 0; i < nodes->records.size(); ++i) {
      const TensorRecord& record = nodes->records[i];
      by_slot.emplace(std::tuple(record.node, record.role, record.slot), i);
    }
    uint64_t order = nodes->place_count;
    for (const AtbStatisticRow& row : rows) {
      const auto found = by_slot.find(std::tuple(row.node, row.role, row.index));
      if (found != by_slot.end()) {
        TensorRecord& record = nodes->records[found->second];
        if (row.stats && !record.stats) record.stats = row.stats;
        if (!record.dtype) record.dtype = row.dtype;
        if (!record.shape) record.shape = row.shape;
        continue;
      }
      TensorRecord record = step.record_of(row.node);
      record.op_type = row.op_type;
      record.role = row.role;
      record.slot = row.index;
      record.dtype = row.dtype;
      record.shape = row.shape;
      record.stats = row.stats;
      if (row.stats) record.stats_file = path;
      const auto place = nodes->places.find(row.node);
      record.order = place == nodes->places.end() ? order++
                     : row.role == Role::Input    ? place->second.entry
                                                  : place->second.exit;
      nodes->records.push_back(std::move(record));
    }
  }

  /// `ait_dump` is used by one run after the other. The manifest of the last one, and when
  /// processes ran, tell them from the ranks of one.
  void say_which_devices_are_shared() {
    std::map<int64_t, std::vector<Lifetime>> devices;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const AtbProcess& process = ranks_[rank];
      if (process.device >= 0 && !process.path.empty())
        devices[process.device].push_back(lifetime_of(rank));
    }
    for (auto& [device, lives] : devices) {
      if (lives.size() < 2) continue;
      std::ranges::stable_sort(lives, {}, &Lifetime::started);
      std::string text = "device " + std::to_string(device) + " has tensors of several processes";
      for (const Lifetime& life : lives)
        text += (&life == lives.data() ? ": " : ", ") + text_of(life);
      run_->warnings.push_back(text + "; " + what_they_are(lives) +
                               "; each is shown as a rank of its own");
    }
  }

  /// When the process of a rank ran, as its summary says; empty texts: not known.
  struct Lifetime {
    size_t rank = 0;
    int64_t process = 0;
    std::string started;  // "2026-01-01T00:00:00Z": text order is the order of time
    std::string ended;
  };

  [[nodiscard]] Lifetime lifetime_of(size_t rank) const {
    Lifetime life{rank, ranks_[rank].process, {}, {}};
    const std::string name = "probe_summary_" + std::to_string(life.process) + ".json";
    const Result<MappedFile> file = MappedFile::open(join_path(location_.root, name));
    if (!file) return life;
    const auto summary = formats::read_probe_summary(as_text(file->bytes()));
    if (!summary) return life;
    life.started = summary->started;
    life.ended = summary->ended.value_or("");
    return life;
  }

  static std::string text_of(const Lifetime& life) {
    std::string text =
        "rank " + std::to_string(life.rank) + " is process " + std::to_string(life.process);
    if (!life.started.empty()) text += ", from " + life.started;
    if (!life.ended.empty()) text += " to " + life.ended;
    return text;
  }

  enum class Relation : uint8_t { OneRun, Later, Unknown };

  /// last_run  processes of the run that wrote the manifest; it replaced those of the runs before
  static Relation relation_of(const Lifetime& a, const Lifetime& b,
                              const std::set<int64_t>& last_run) {
    const bool a_is_last = last_run.contains(a.process);
    const bool b_is_last = last_run.contains(b.process);
    if (a_is_last != b_is_last) return Relation::Later;
    if (a_is_last) return Relation::OneRun;
    // Within the same second nothing can be told.
    if (a.ended.empty() || b.started.empty() || a.ended == b.started) return Relation::Unknown;
    return a.ended < b.started ? Relation::Later : Relation::OneRun;
  }

  /// lives  by their starts
  [[nodiscard]] std::string what_they_are(const std::vector<Lifetime>& lives) {
    const std::set<int64_t> last_run = processes_of_last_run();
    size_t later = 0;
    for (size_t i = 0; i + 1 < lives.size(); ++i) {
      const Relation relation = relation_of(lives[i], lives[i + 1], last_run);
      if (relation == Relation::Unknown)
        return "whether they are ranks of one run or of one run after the other cannot be told";
      later += relation == Relation::Later;
    }
    if (later == 0) return "they ran together, as ranks of one run do";
    runs_ = std::max(runs_, later + 1);
    run_->properties["runs"] = std::to_string(runs_);
    return later + 1 == lives.size() ? "each is of another run, one after the other"
                                     : "they are of several runs";
  }

  /// Those that the manifest lists; none without a manifest.
  [[nodiscard]] std::set<int64_t> processes_of_last_run() const {
    std::set<int64_t> processes;
    const auto listed = run_->properties.find(kManifestProcesses);
    if (listed == run_->properties.end()) return processes;
    for (const std::string_view word : split(listed->second, ' ')) {
      if (const auto process = parse_number<int64_t>(word)) processes.insert(*process);
    }
    return processes;
  }

  /// The topology of the first process that left one.
  void add_topology() {
    for (size_t rank = 0; rank < ranks_.size() && !run_->topology; ++rank) {
      std::set<std::string, NaturalLess> nodes;
      std::optional<InternedText> last;  // the records of a node stand together
      for (const TensorRecord& record : run_->records) {
        if (record.rank != static_cast<int>(rank) || last == record.node) continue;
        last = record.node;
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

  AtbLocation location_;
  Run* run_;
  std::vector<AtbProcess> ranks_;
  int next_rank_ = 0;
  size_t runs_ = 1;  // that left their processes here, one after the other

  // Of the process that is being read:
  int rank_ = 0;
  std::vector<AtbListedCall> calls_;

  AtbLeftovers leftovers_;
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
  run.layout = Layout::AtbTree;
  Reader(**std::move(location), &run).read();
  sort_operations(&run.operations);
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
