// SPDX-License-Identifier: Apache-2.0
// Runs of msprobe's PyTorch and MindSpore debuggers: docs/formats/msprobe.md
//
//   {dump_path}/step0/rank0/dump.json                  what each call took and gave, statistics
//                           construct.json             which call happened inside which
//                           dump_tensor_data/Module.head.Linear.forward.0.output.0.pt
//
// The reader starts at any of these folders, or at the dump.json itself.
#include <algorithm>
#include <set>

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "run/folder.hpp"
#include "run/sources/module_tree.hpp"
#include "run/sources/msprobe_list.hpp"
#include "run/sources/sources.hpp"
#include "topology/json_document.hpp"

namespace assay::run::sources {
namespace {

using topology::JsonDocument;
using topology::JsonKind;
using Value = JsonDocument::Value;

constexpr const char* kListNames[] = {"dump.json", "debug.json"};

// ---- where are the lists? -----------------------------------------------------------------------

/// One dump.json and what its folders say.
struct ListFile {
  std::string path;
  std::string folder;
  MsprobePlace place;
};

/// The number behind "step", "rank", "proc" or "pid"; nothing for other names.
std::optional<int64_t> number_behind(std::string_view word, std::string_view name) {
  if (!name.starts_with(word)) return std::nullopt;
  return parse_number<int64_t>(name.substr(word.size()));
}

std::string list_in(const std::string& folder) {
  for (const char* name : kListNames) {
    if (is_file(join_path(folder, name))) return join_path(folder, name);
  }
  return {};
}

constexpr int64_t kMaxRank = 1 << 20;

std::optional<int> rank_of(std::string_view name) {
  const std::optional<int64_t> rank = number_behind("rank", name);
  if (!rank || *rank < 0 || *rank > kMaxRank) return std::nullopt;
  return static_cast<int>(*rank);
}

bool is_process_folder(std::string_view name) {
  return number_behind("proc", name) || number_behind("pid", name);
}

/// Sets the step when the name is that of a step folder.
bool take_step(const std::string& name, MsprobePlace* place) {
  const std::optional<int64_t> step = number_behind("step", name);
  if (!step) return false;
  place->step_name = name;
  place->step = std::max(*step, int64_t{-1});
  return true;
}

/// Folders of ranks, those known by their rank first; a process whose rank was not known gets the
/// next free number, in the order of the process ids.
std::vector<std::pair<int, std::string>> rank_folders(const std::string& path) {
  std::vector<std::pair<int, std::string>> ranks;
  std::vector<std::string> processes;
  const Result<FolderEntries> entries = list_folder(path, real_path(path));
  if (!entries) return {};
  for (const FolderEntry& entry : *entries) {
    const std::optional<int> rank = rank_of(entry.name);
    if (!rank && !is_process_folder(entry.name)) continue;
    if (entry.kind != FolderEntry::Kind::Folder || list_in(entry.path).empty()) continue;
    if (rank) {
      ranks.emplace_back(*rank, entry.path);
    } else {
      processes.push_back(entry.path);
    }
  }
  int next = 0;
  for (const auto& [rank, folder] : ranks) next = std::max(next, rank + 1);
  for (const std::string& folder : processes) ranks.emplace_back(next++, folder);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

/// The list of a folder, or those of its ranks.
void find_in_step(const std::string& path, MsprobePlace place, std::vector<ListFile>* files) {
  if (const std::string list = list_in(path); !list.empty()) {
    files->push_back({list, path, place});
    return;
  }
  for (const auto& [rank, folder] : rank_folders(path)) {
    place.rank = rank;
    files->push_back({list_in(folder), folder, place});
  }
}

/// What the names of the folders say when the user named one of the inner folders.
MsprobePlace place_of(const std::string& folder) {
  MsprobePlace place;
  const std::string real = real_path(folder);
  const std::string name = base_name(real);
  if (take_step(name, &place)) return place;
  const std::optional<int> rank = rank_of(name);
  if (!rank && !is_process_folder(name)) return place;
  place.rank = rank.value_or(0);
  take_step(base_name(real_path(join_path(folder, ".."))), &place);
  return place;
}

std::vector<ListFile> find_lists(const std::string& path) {
  std::vector<ListFile> files;
  if (is_file(path)) {
    const std::string name = base_name(path);
    if (std::find(std::begin(kListNames), std::end(kListNames), name) == std::end(kListNames))
      return files;
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    files.push_back({path, folder, place_of(folder)});
    return files;
  }
  find_in_step(path, place_of(path), &files);
  if (!files.empty()) return files;
  const Result<FolderEntries> entries = list_folder(path, real_path(path));
  if (!entries) return files;
  for (const FolderEntry& entry : *entries) {
    MsprobePlace place;
    if (entry.kind == FolderEntry::Kind::Folder && take_step(entry.name, &place))
      find_in_step(entry.path, place, &files);
  }
  return files;
}

// ---- the modules --------------------------------------------------------------------------------

void add_modules(const std::string& path, ModuleTree* modules, Run* run) {
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file) {
    if (file.error().code != Errc::NotFound) run->warnings.push_back(file.error().describe());
    return;
  }
  const Result<JsonDocument> document =
      in_file(path, JsonDocument::parse(as_text(file->bytes()), kMaxMsprobeJsonDepth));
  if (!document) {
    run->warnings.push_back(document.error().describe());
    return;
  }
  if (!document->is(0, JsonKind::Object)) return;
  for (Value call = document->first(0); call != JsonDocument::kNone; call = document->next(call)) {
    const MsprobeCall named = parse_msprobe_call(document->key(call));
    if (named.is_module) modules->add(named.node, named.op_type);
  }
}

/// The folder of the tensors; graph mode calls it tensor_data.
std::string data_folder_of(const std::string& folder) {
  const std::string usual = join_path(folder, "dump_tensor_data");
  const std::string other = join_path(folder, "tensor_data");
  return !is_folder(usual) && is_folder(other) ? other : usual;
}

Status read_list(const ListFile& list, ModuleTree* modules, Run* run) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(list.path));
  MsprobePlace place = list.place;
  place.list_path = list.path;
  place.data_folder = data_folder_of(list.folder);
  ASSAY_TRY_STATUS(in_file(list.path, read_msprobe_list(as_text(file.bytes()), place, run)));
  add_modules(join_path(list.folder, "construct.json"), modules, run);
  return {};
}

}  // namespace

Attempt read_msprobe(const std::string& path) {
  const std::vector<ListFile> files = find_lists(path);
  if (files.empty()) return std::nullopt;
  Run run;
  run.layout = Layout::Msprobe;
  ModuleTree modules;
  std::optional<Error> first_failure;
  size_t failures = 0;
  for (const ListFile& file : files) {
    if (const Status status = read_list(file, &modules, &run); !status) {
      ++failures;
      run.warnings.push_back(status.error().describe());
      run.coverage.complete = false;  // a host that was killed leaves half a list, or none
      if (!first_failure) first_failure = status.error();
    }
  }
  if (failures == files.size()) return Result<Run>(fail(*first_failure));
  run.topology = modules.build();
  std::set<std::string_view> nodes;
  for (const TensorRecord& record : run.records) nodes.insert(record.node);
  run.coverage.captured = nodes.size();
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
