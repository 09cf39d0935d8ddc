// SPDX-License-Identifier: Apache-2.0
// A section for each kind: statistic.csv, lists of operations, topology files made one tree with
// the names of the dump's folders, and what manifest, summaries and status pages tell of the
// capture.
#include "run/sources/atb_tree_lists.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/atb_types.hpp"
#include "formats/csv.hpp"
#include "formats/json_fields.hpp"
#include "formats/native/manifest.hpp"
#include "formats/op_csv.hpp"
#include "formats/probe_status.hpp"
#include "run/atb_names.hpp"
#include "run/folder.hpp"
#include "run/natural_sort.hpp"
#include "run/topology_file.hpp"
#include "topology/atb_names.hpp"
#include "topology/graph.hpp"

namespace assay::run::sources {
namespace {

constexpr size_t kStatisticColumns = 15;

FolderEntries entries_in(const std::string& path) {
  Result<FolderEntries> entries = list_folder(path, real_path(path));
  return entries ? *std::move(entries) : FolderEntries();
}

/// The whole file; a warning when it exists and cannot be read.
std::optional<MappedFile> open_file(const std::string& path, Run* run) {
  Result<MappedFile> file = MappedFile::open(path);
  if (file) return *std::move(file);
  run->warnings.push_back(file.error().describe());
  return std::nullopt;
}

/// "36x128" or "1,4096"; an empty text is rank 0.
std::optional<Dims> parse_shape(std::string_view text, char separator) {
  Dims shape;
  if (text.empty()) return shape;
  for (const std::string_view part : split(text, separator)) {
    const std::optional<int64_t> size = parse_number<int64_t>(part);
    if (!size || *size < 0 || shape.size() == 64) return std::nullopt;
    shape.push_back(*size);
  }
  return shape;
}

std::optional<DType> dtype_of_word(std::string_view word) {
  const std::optional<int64_t> number = formats::atb_dtype_from_text(word);
  return number ? formats::dtype_from_atb(*number) : std::nullopt;
}

// ---- statistic.csv ------------------------------------------------------------------------------

/// "WordEmbedding/GatherOperation" and "0_0" as one path; nothing when they do not fit.
std::optional<std::string> node_of(std::string_view names, std::string_view ids) {
  const std::vector<std::string_view> name_parts = split(names, '/');
  const std::vector<std::string_view> id_parts = split(ids, '_');
  if (name_parts.size() != id_parts.size()) return std::nullopt;
  std::string node;
  for (size_t i = 0; i < name_parts.size(); ++i) {
    node += (i == 0 ? "" : "/") + std::string(id_parts[i]) + "_" + std::string(name_parts[i]);
  }
  return node;
}

std::optional<stats::TensorStats> statistics_of(const std::vector<std::string>& cells,
                                                const std::optional<Dims>& shape) {
  const auto number = [&cells](size_t column) { return parse_number<double>(cells[column]); };
  if (!number(10) && !number(11) && !number(12) && !number(13)) return std::nullopt;
  stats::TensorStats stats;
  if (shape) stats.count = element_count(*shape).value_or(0);
  stats.max = number(10).value_or(NAN);
  stats.min = number(11).value_or(NAN);
  stats.mean = number(12).value_or(NAN);
  stats.l2_norm = number(13).value_or(NAN);
  return stats;
}

std::optional<AtbStatisticRow> statistic_row(const std::vector<std::string>& cells) {
  if (cells.size() != kStatisticColumns) return std::nullopt;
  std::optional<std::string> node = node_of(cells[2], cells[4]);
  if (!node || (cells[5] != "input" && cells[5] != "output")) return std::nullopt;
  AtbStatisticRow row;
  row.node = *std::move(node);
  row.op_type = cells[3];
  row.role = cells[5] == "input" ? Role::Input : Role::Output;
  const size_t underscore = cells[6].find('_');
  row.index = cells[6].substr(0, underscore);
  if (underscore != std::string::npos) row.parameter = cells[6].substr(underscore + 1);
  row.dtype = dtype_of_word(cells[7]);
  row.shape = parse_shape(cells[9], 'x');
  row.stats = statistics_of(cells, row.shape);
  return row;
}

// ---- operation lists ----------------------------------------------------------------------------

constexpr std::string_view kOperationLists = "operation_io_tensors";

TensorRecord listed_tensor(const formats::OpCsvTensor& tensor, Role role, size_t index) {
  TensorRecord record;
  record.role = role;
  record.slot = std::to_string(index);
  record.dtype = dtype_of_word(tensor.dtype_text);
  record.shape = parse_shape(tensor.shape, ',');
  if (tensor.format != "nd" && tensor.format != "undefined") record.memory_format = tensor.format;
  return record;
}

AtbListedCall listed_call(const formats::OpCsvRow& row, const std::string& step_name) {
  AtbListedCall call;
  call.step_name = step_name;
  call.ids = topology::ids_of(row.op_name);
  call.op_name = row.op_name;
  if (row.op_param != "{}") call.parameters = row.op_param;
  for (size_t i = 0; i < row.inputs.size(); ++i)
    call.tensors.push_back(listed_tensor(row.inputs[i], Role::Input, i));
  for (size_t i = 0; i < row.outputs.size(); ++i)
    call.tensors.push_back(listed_tensor(row.outputs[i], Role::Output, i));
  return call;
}

// ---- topology -----------------------------------------------------------------------------------

/// Turns a topology into the tree of a run, whose nodes are named like the folders of the dump.
class TreeMaker {
 public:
  TreeMaker(const topology::Graph& graph,
            const std::unordered_map<std::string, std::string>& node_by_ids)
      : graph_(graph), node_by_ids_(node_by_ids) {}

  /// `place` among its siblings is the id where the name does not tell one.
  TopologyNode make(uint32_t index, const std::string& parent, size_t place) const {
    const topology::Node& node = graph_.nodes[index];
    std::string id = node.ids.substr(node.ids.rfind('_') + 1);
    if (id.empty()) id = std::to_string(place);
    TopologyNode result;
    result.name = (parent.empty() ? "" : parent + "/") + id + "_" + node.type;
    result.type = node.type;
    if (const auto known = node_by_ids_.find(atb_ids_of_node(result.name));
        known != node_by_ids_.end())
      result.name = known->second;
    result.exec_order = parse_number<int64_t>(id);
    for (const topology::Parameter& parameter : node.parameters)
      result.parameters.emplace(parameter.name, parameter.text);
    result.inputs = node.inputs;
    result.outputs = node.outputs;
    for (std::string& written : topology::outputs_in_place(graph_, index))
      result.outputs.push_back(std::move(written));
    for (size_t i = 0; i < node.children.size(); ++i)
      result.children.push_back(make(node.children[i], result.name, i));
    return result;
  }

 private:
  const topology::Graph& graph_;
  const std::unordered_map<std::string, std::string>& node_by_ids_;
};

/// The files of one kind and process: {folder}/{kind}/{pid} and msprobe's {kind}/{device}_{pid}.
std::vector<FolderEntry> topology_files(const AtbLocation& location, const AtbProcess& process,
                                        std::string_view kind) {
  const std::string pid = std::to_string(process.process);
  std::vector<FolderEntry> files;
  for (const std::string& lists : location.list_folders) {
    for (const std::string& name : {pid, std::to_string(process.device) + "_" + pid}) {
      for (const FolderEntry& entry : entries_in(join_path(join_path(lists, kind), name))) {
        if (entry.kind == FolderEntry::Kind::File && entry.name.ends_with(".json"))
          files.push_back(entry);
      }
    }
  }
  return files;
}

std::optional<topology::Graph> read_topology(const std::string& path, Run* run) {
  Result<topology::Graph> graph = read_topology_file(path);
  if (graph) return *std::move(graph);
  run->warnings.push_back(graph.error().describe());
  return std::nullopt;
}

// ---- coverage -----------------------------------------------------------------------------------

using formats::count_of;
using formats::member;
using formats::text_of;
using nlohmann::json;

constexpr size_t kMaxManifestBytes = size_t{64} << 20;

void add_missed(const std::string& who, std::string_view why, uint64_t count, Run* run) {
  if (count > 0) run->coverage.missed.push_back({who, std::string(why), count});
}

void add_process(const formats::ProbeSummary& process, Run* run) {
  const std::string who = "process " + std::to_string(process.pid);
  const formats::ProbeCounters& counters = process.counters;
  if (!process.complete) {
    run->coverage.complete = false;
    run->warnings.push_back(who + " did not come to its end, or is still running: " +
                            std::to_string(counters.tensors_written + counters.tensors_linked) +
                            " of " + std::to_string(counters.tensors_accepted) +
                            " tensors are on disk");
  }
  run->coverage.planned += counters.tensors_accepted + counters.tensors_dropped;
  run->coverage.captured += counters.tensors_written + counters.tensors_linked;
  add_missed(who, "the queue was full", counters.tensors_dropped, run);
  add_missed(who, "could not be written", counters.tensors_failed, run);
  add_missed(who, "lost when the process ended", formats::tensors_lost(counters), run);
  add_missed(who, "the disk would have been full", counters.skipped_disk, run);
  add_missed(who, "no data, or a size that cannot be",
             counters.skipped_null + counters.skipped_size, run);
  add_missed(who, "a header that is too long", counters.skipped_header, run);
  add_missed(who, "a name that leads out of the dump", counters.skipped_name, run);
  if (!process.first_error.empty())
    run->warnings.push_back(who + ": the first error was: " + process.first_error);
  for (const std::string& note : process.notes) run->warnings.push_back(who + ": " + note);
}

/// A process of a manifest, whose losses the manifest itself sums up.
void add_listed_process(const json& process, Run* run) {
  const std::string who = "process " + std::to_string(count_of(process, "pid"));
  if (const json* complete = member(process, "complete");
      complete != nullptr && *complete == false) {
    run->coverage.complete = false;
    run->warnings.push_back(who + " did not come to its end");
  }
  // Where tensors are missing because of it, the list of what was missed says so.
  const std::string error = text_of(process, "first_error");
  const bool is_said = std::ranges::any_of(run->coverage.missed, [&](const auto& missed) {
    return missed.node == who && missed.reason == error;
  });
  if (!error.empty() && !is_said) run->warnings.push_back(who + ": the first error was: " + error);
  for (const std::string& note : formats::texts_of(process, "notes"))
    run->warnings.push_back(who + ": " + note);
}

/// True when the file is a manifest of an ATB dump; it then says all that the summaries say.
Result<bool> add_manifest(const std::string& path, Run* run) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  const std::string_view text = as_text(file.bytes());
  if (text.size() > kMaxManifestBytes)
    return fail(Error{Errc::TooLarge, path, std::nullopt, "a manifest of more than 64 MiB"});
  const json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object())
    return fail(Error{Errc::Invalid, path, 0, "is no JSON object, or was cut off"});
  if (text_of(manifest, "format") != "assay-atb-dump") return false;
  for (const char* name : {"tool", "command", "options", "started", "ended", "exit_status"}) {
    if (const json* found = member(manifest, name))
      formats::flatten(*found, name, &run->properties);
  }
  run->coverage.planned = count_of(manifest, "planned");
  run->coverage.captured = count_of(manifest, "captured");
  for (const native::MissedNode& missed : native::read_missed(manifest))
    add_missed(missed.node, missed.reason, missed.count, run);
  for (const json* process : formats::objects_of(manifest, "processes")) {
    add_listed_process(*process, run);
    std::string& pids = run->properties[kManifestProcesses];
    pids += (pids.empty() ? "" : " ") + std::to_string(count_of(*process, "pid"));
  }
  return true;
}

formats::ProbeSummary summary_of(const formats::ProbeStatus& status) {
  formats::ProbeSummary summary;
  summary.pid = status.pid;
  summary.complete = status.concluded == 1;
  summary.counters = status.counters;
  const auto text = [](const char* field, size_t size) {
    return std::string(field, std::find(field, field + size, '\0'));
  };
  summary.tool = text(status.tool, sizeof(status.tool));
  summary.program = text(status.program, sizeof(status.program));
  summary.first_error = text(status.first_error, sizeof(status.first_error));
  for (const auto& note : status.notes) {
    if (note[0] != '\0') summary.notes.push_back(text(note, sizeof(note)));
  }
  return summary;
}

}  // namespace

std::vector<AtbStatisticRow> read_atb_statistic_csv(const std::string& path, Run* run) {
  const std::optional<MappedFile> file = open_file(path, run);
  if (!file) return {};
  const formats::CsvTable table = formats::read_csv(as_text(file->bytes()));
  std::vector<AtbStatisticRow> rows;
  size_t damaged = 0;
  for (const std::vector<std::string>& cells : table.rows) {
    if (!cells.empty() && cells[0] == "Device and PID") continue;
    if (std::optional<AtbStatisticRow> row = statistic_row(cells)) {
      rows.push_back(*std::move(row));
    } else {
      ++damaged;
    }
  }
  if (damaged > 0) {
    run->warnings.push_back(path + ": " + std::to_string(damaged) +
                            " rows are no rows of a statistic.csv and were left out");
  }
  return rows;
}

std::vector<AtbListedCall> read_atb_operation_lists(const std::vector<std::string>& list_folders,
                                                    int64_t process, Run* run) {
  constexpr std::string_view kPrefix = "operation_tensors_";
  constexpr std::string_view kSuffix = ".csv";
  std::vector<AtbListedCall> calls;
  for (const std::string& lists : list_folders) {
    const std::string folder =
        join_path(join_path(lists, kOperationLists), std::to_string(process));
    for (const FolderEntry& entry : entries_in(folder)) {
      std::string_view step = entry.name;
      if (entry.kind != FolderEntry::Kind::File || !step.starts_with(kPrefix) ||
          !step.ends_with(kSuffix))
        continue;
      step.remove_prefix(kPrefix.size());
      step.remove_suffix(kSuffix.size());
      const std::optional<MappedFile> file = open_file(entry.path, run);
      if (!file) continue;
      const formats::OpCsv table = formats::read_op_csv(as_text(file->bytes()));
      for (const formats::OpCsvRow& row : table.rows)
        calls.push_back(listed_call(row, std::string(step)));
      if (table.damaged_lines > 0) {
        run->warnings.push_back(entry.path + ": " + std::to_string(table.damaged_lines) +
                                " lines do not have 21 cells and were left out");
      }
    }
  }
  return calls;
}

std::vector<int64_t> atb_listed_processes(const std::vector<std::string>& list_folders) {
  std::set<int64_t> processes;
  for (const std::string& lists : list_folders) {
    for (const std::string_view kind :
         {kOperationLists, std::string_view("layer"), std::string_view("model")}) {
      for (const FolderEntry& entry : entries_in(join_path(lists, kind))) {
        if (entry.kind != FolderEntry::Kind::Folder) continue;
        if (const auto process = parse_atb_run_count(entry.name)) processes.insert(*process);
      }
    }
  }
  return {processes.begin(), processes.end()};
}

std::optional<TopologyNode> read_atb_topology(const AtbLocation& location,
                                              const AtbProcess& process,
                                              const std::vector<std::string>& nodes, Run* run) {
  std::unordered_map<std::string, std::string> node_by_ids;
  for (const std::string& node : nodes) node_by_ids.emplace(atb_ids_of_node(node), node);
  TopologyNode root;
  std::set<std::string> present;  // ids of the root's children
  const auto add = [&](TopologyNode child) {
    if (present.insert(atb_ids_of_node(child.name)).second)
      root.children.push_back(std::move(child));
  };
  for (const FolderEntry& file : topology_files(location, process, "model")) {
    const std::optional<topology::Graph> graph = read_topology(file.path, run);
    if (!graph) continue;
    root.type += (root.type.empty() ? "" : ", ") + graph->root().name;
    const TreeMaker maker(*graph, node_by_ids);
    Run::Model model{graph->root().name, {}, graph->weights};
    for (size_t i = 0; i < graph->root().children.size(); ++i) {
      TopologyNode child = maker.make(graph->root().children[i], "", i);
      const auto name = parse_atb_node_folder(child.name);
      if (name) model.ids.push_back(name->id);
      add(std::move(child));
    }
    std::sort(model.ids.begin(), model.ids.end());
    if (!model.ids.empty()) run->models.push_back(std::move(model));
  }
  std::sort(run->models.begin(), run->models.end(),
            [](const Run::Model& a, const Run::Model& b) { return a.ids < b.ids; });
  for (const FolderEntry& file : topology_files(location, process, "layer")) {
    // A layer that is part of a model is there already, with all its nodes.
    const std::string name = file.name.substr(0, file.name.size() - 5);
    if (present.contains(topology::ids_of(name))) continue;
    const std::optional<topology::Graph> graph = read_topology(file.path, run);
    if (graph) add(TreeMaker(*graph, node_by_ids).make(0, "", root.children.size()));
  }
  if (root.children.empty()) return std::nullopt;
  std::stable_sort(root.children.begin(), root.children.end(),
                   [](const TopologyNode& a, const TopologyNode& b) {
                     return natural_less(atb_ids_of_node(a.name), atb_ids_of_node(b.name));
                   });
  return root;
}

void read_atb_coverage(const std::string& root, Run* run) {
  const std::string manifest_path = join_path(root, "manifest.json");
  if (is_file(manifest_path)) {
    const Result<bool> added = add_manifest(manifest_path, run);
    if (!added) {
      run->coverage.complete = false;
      run->warnings.push_back(added.error().describe());
    } else if (*added) {
      return;
    }
  }
  std::set<int64_t> told;  // processes with a summary
  const FolderEntries entries = entries_in(root);
  for (const FolderEntry& entry : entries) {
    if (entry.kind != FolderEntry::Kind::File || !entry.name.starts_with("probe_summary_") ||
        !entry.name.ends_with(".json"))
      continue;
    const std::optional<MappedFile> file = open_file(entry.path, run);
    if (!file) continue;
    const auto summary = in_file(entry.path, formats::read_probe_summary(as_text(file->bytes())));
    if (summary) {
      told.insert(summary->pid);
      add_process(*summary, run);
    } else {
      run->coverage.complete = false;
      run->warnings.push_back(summary.error().describe());
    }
  }
  for (const FolderEntry& entry : entries) {
    if (entry.kind != FolderEntry::Kind::File || !entry.name.starts_with("probe_status_")) continue;
    const std::optional<MappedFile> file = open_file(entry.path, run);
    if (!file) continue;
    const auto status = in_file(entry.path, formats::read_probe_status(file->bytes()));
    if (!status) {
      run->coverage.complete = false;
      run->warnings.push_back(status.error().describe());
    } else if (!told.contains(status->pid)) {
      add_process(summary_of(*status), run);
    }
  }
}

}  // namespace assay::run::sources
