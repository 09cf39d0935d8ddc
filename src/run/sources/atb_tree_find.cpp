// SPDX-License-Identifier: Apache-2.0
// A path is tried as each part of a dump (process, run count, tensors, model/{pid}), then as a
// whole dump, then as a folder of dumps. Where its name is no dump's own, a folder also has to hold
// what such a folder holds.
#include "run/sources/atb_tree_find.hpp"

#include <algorithm>
#include <array>

#include "base/mapped_file.hpp"
#include "formats/native/schema.hpp"
#include "run/atb_names.hpp"
#include "run/folder.hpp"
#include "run/torch_names.hpp"

namespace assay::run::sources {
namespace {

using Found = std::optional<Result<AtbLocation>>;

FolderEntries entries_of(const std::string& path) {
  Result<FolderEntries> entries = list_folder(path, real_path(path));
  return entries ? *std::move(entries) : FolderEntries();
}

std::vector<FolderEntry> folders_in(const std::string& path) { return entries_of(path).folders(); }

/// {id}_{operation}: holds tensors, parameters or operations inside it.
bool looks_like_node(const FolderEntry& folder) {
  if (folder.kind != FolderEntry::Kind::Folder || !parse_atb_node_folder(folder.name)) return false;
  const FolderEntries entries = entries_of(folder.path);
  return std::any_of(entries.begin(), entries.end(), [](const FolderEntry& entry) {
    return entry.name == "before" || entry.name == "after" || entry.name == "op_param.json" ||
           parse_atb_node_folder(entry.name);
  });
}

/// {run count}: holds operations, or msprobe's table of them.
bool looks_like_step(const std::string& path) {
  const FolderEntries entries = entries_of(path);
  return std::any_of(entries.begin(), entries.end(), [](const FolderEntry& entry) {
    return entry.name == "statistic.csv" || looks_like_node(entry);
  });
}

bool looks_like_process(const std::string& path) {
  if (is_file(join_path(path, native::kRecordsFile))) return true;
  const std::vector<FolderEntry> folders = folders_in(path);
  return std::any_of(folders.begin(), folders.end(), [](const FolderEntry& folder) {
    return parse_atb_run_count(folder.name) && looks_like_step(folder.path);
  });
}

/// The folders {device}_{pid} in a folder.
/// sure   the folder's own name says what they are, so that an empty one counts, too
std::vector<AtbProcess> processes_in(const std::string& path, bool sure) {
  std::vector<AtbProcess> processes;
  for (const FolderEntry& folder : folders_in(path)) {
    const std::optional<AtbProcessName> name = parse_atb_process_folder(folder.name);
    if (!name || !(sure || looks_like_process(folder.path))) continue;
    processes.push_back({name->device, name->process, folder.path, ""});
  }
  std::sort(processes.begin(), processes.end(), [](const AtbProcess& a, const AtbProcess& b) {
    return std::pair(a.device, a.process) < std::pair(b.device, b.process);
  });
  return processes;
}

/// A file or folder that only the probe or the dump command leaves.
bool has_mark(const std::string& path) {
  for (const FolderEntry& entry : entries_of(path)) {
    if (entry.name.starts_with("probe_summary_") || entry.name.starts_with("probe_status_"))
      return true;
    if (entry.name == "operation_io_tensors" || entry.name == "kernel_io_tensors") return true;
  }
  const Result<MappedFile> manifest = MappedFile::open(join_path(path, "manifest.json"));
  return manifest && as_text(manifest->bytes()).substr(0, 256).find("\"assay-atb-dump\"") !=
                         std::string_view::npos;
}

bool has_lists(const std::string& path) {
  constexpr std::array<std::string_view, 5> kFolders = {"layer", "model", "cpu_profiling", "tiling",
                                                        "info"};
  return std::any_of(kFolders.begin(), kFolders.end(),
                     [&path](std::string_view name) { return is_folder(join_path(path, name)); });
}

AtbLocation location_of(const std::string& root, std::vector<AtbProcess> processes) {
  AtbLocation location;
  location.root = root;
  location.boundary = real_path(root);
  location.processes = std::move(processes);
  // The oldest probes wrote the tensors beside the folder of the lists; msprobe has info/.
  for (const char* folder : {"", "info", "ait_dump", "msit_dump"}) {
    const std::string path = *folder == '\0' ? root : join_path(root, folder);
    if (is_folder(path)) location.list_folders.push_back(path);
  }
  return location;
}

/// A folder that is one dump.
Found at_root(const std::string& path) {
  if (is_folder(join_path(path, "torch_tensors"))) return std::nullopt;
  const std::string name = base_name(real_path(path));
  const bool named = is_dump_root_name(name);
  const bool msprobe = name == "atb_dump_data";
  for (const auto& [folder, sure] : {std::pair("tensors", named), std::pair("data", msprobe),
                                     std::pair("atb_temp/tensors", true), std::pair("", false)}) {
    const std::string tensors = *folder == '\0' ? path : join_path(path, folder);
    if (std::vector<AtbProcess> processes = processes_in(tensors, sure); !processes.empty())
      return Result<AtbLocation>(location_of(path, std::move(processes)));
  }
  const bool empty_dump = (named || msprobe) && (has_lists(path) || is_folder(path + "/tensors"));
  if (empty_dump || has_mark(path)) return Result<AtbLocation>(location_of(path, {}));
  return std::nullopt;
}

/// The dump around a folder {device}_{pid}.
AtbLocation around(const std::string& process_folder, AtbProcess process) {
  const std::string parent = join_path(process_folder, "..");
  const std::string parent_name = base_name(real_path(parent));
  const bool below_root = parent_name == "tensors" || parent_name == "data";
  AtbLocation location =
      location_of(below_root ? join_path(parent, "..") : parent, {std::move(process)});
  location.named_below_root = true;
  return location;
}

Found at_process_folder(const std::string& path, const std::string& real) {
  const std::optional<AtbProcessName> name = parse_atb_process_folder(base_name(real));
  if (!name || !looks_like_process(path)) return std::nullopt;
  return Result<AtbLocation>(around(path, {name->device, name->process, path, ""}));
}

Found at_step_folder(const std::string& path, const std::string& real) {
  const std::string step = base_name(real);
  const std::string process_folder = join_path(path, "..");
  const auto name = parse_atb_process_folder(base_name(real_path(process_folder)));
  if (!name || !parse_atb_run_count(step) || !looks_like_step(path)) return std::nullopt;
  return Result<AtbLocation>(
      around(process_folder, {name->device, name->process, process_folder, step}));
}

/// The folder "tensors" or "data" of a dump.
Found at_tensors_folder(const std::string& path, const std::string& real) {
  const std::string name = base_name(real);
  if (name != "tensors" && name != "data") return std::nullopt;
  std::vector<AtbProcess> processes = processes_in(path, false);
  if (processes.empty()) return std::nullopt;
  AtbLocation location = location_of(join_path(path, ".."), std::move(processes));
  location.named_below_root = true;
  return Result<AtbLocation>(std::move(location));
}

/// model/{pid} of a dump: the tensors of that process.
Found at_model_folder(const std::string& path, const std::string& real) {
  if (base_name(real_path(join_path(path, ".."))) != "model") return std::nullopt;
  const std::string root = join_path(path, "../..");
  std::vector<AtbProcess> processes = processes_in(join_path(root, "tensors"), false);
  std::erase_if(processes, [&](const AtbProcess& process) {
    return std::to_string(process.process) != base_name(real);
  });
  if (processes.empty()) return std::nullopt;
  AtbLocation location = location_of(root, std::move(processes));
  location.named_below_root = true;
  return Result<AtbLocation>(std::move(location));
}

/// A folder that holds dumps.
Found in_parent(const std::string& path) {
  std::vector<std::string> names;  // of all dumps, torch's included
  std::vector<Found> dumps;
  for (const FolderEntry& folder : folders_in(path)) {
    const bool is_torch = is_folder(join_path(folder.path, "torch_tensors"));
    const bool named = is_dump_root_name(folder.name) || folder.name == "atb_dump_data";
    Found dump = named || has_mark(folder.path) ? at_root(folder.path) : std::nullopt;
    if (dump || (is_torch && is_dump_root_name(folder.name))) names.push_back(folder.name);
    if (dump) dumps.push_back(std::move(dump));
  }
  if (dumps.empty()) return std::nullopt;
  if (names.size() == 1) return std::move(dumps[0]);
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return Result<AtbLocation>(
      fail(Error{Errc::Usage, path, std::nullopt,
                 "holds " + std::to_string(names.size()) + " runs, name one of them: " + list}));
}

}  // namespace

std::optional<Result<AtbLocation>> find_atb_tree(const std::string& path) {
  const std::string real = real_path(path);
  if (Found found = at_process_folder(path, real)) return found;
  if (Found found = at_step_folder(path, real)) return found;
  if (Found found = at_tensors_folder(path, real)) return found;
  if (Found found = at_model_folder(path, real)) return found;
  if (Found found = at_root(path)) return found;
  return in_parent(path);
}

}  // namespace assay::run::sources
