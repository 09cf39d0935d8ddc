// SPDX-License-Identifier: Apache-2.0
// Dumps of transformers' model_addition_debugger_context: docs/formats/transformers-debug.md
//
//   {Class}_debug_tree_FULL_TENSORS.json   calls inside calls, with their tensors printed, or the names of their files
//   {Class}_debug_tree_SUMMARY.json        the same without the tensors
//   {Class}.model.norm_outputs.safetensors       with use_repr=False
//
// The reader starts at the folder, or at one of the two lists.
#include <algorithm>
#include <set>

#include "base/mapped_file.hpp"
#include "run/folder.hpp"
#include "run/sources/debug_tree_list.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

constexpr std::string_view kFullEnd = "_debug_tree_FULL_TENSORS.json";
constexpr std::string_view kSummaryEnd = "_debug_tree_SUMMARY.json";

/// The class of the model that a list's name begins with; empty for other names.
std::string_view class_of(std::string_view name) {
  for (const std::string_view end : {kFullEnd, kSummaryEnd}) {
    if (name.ends_with(end)) return name.substr(0, name.size() - end.size());
  }
  return {};
}

std::string folder_of(const std::string& file) {
  const size_t slash = file.rfind('/');
  return slash == std::string::npos ? "." : file.substr(0, slash + 1);
}

/// The lists of a folder, one a model: the full one where it is there.
std::vector<std::string> lists_in(const std::string& folder) {
  std::map<std::string, std::string> lists;  // by class
  const Result<FolderEntries> entries = list_folder(folder, real_path(folder));
  if (!entries) return {};
  for (const FolderEntry& entry : *entries) {
    const std::string model(class_of(entry.name));
    if (model.empty() || entry.kind != FolderEntry::Kind::File) continue;
    std::string& list = lists[model];
    if (list.empty() || entry.name.ends_with(kFullEnd)) list = entry.path;
  }
  std::vector<std::string> paths;
  for (auto& [model, path] : lists) paths.push_back(std::move(path));
  return paths;
}

/// What the whole model returned is not in the tree, but its files are:
/// "{Class}_outputs_logits.safetensors".
void add_model_outputs(const DebugTreePlace& place, const DebugTreeModel& model, Run* run) {
  const std::string front = model.model_class + "_outputs";
  constexpr std::string_view kEnd = ".safetensors";
  const Result<FolderEntries> entries = list_folder(place.folder, real_path(place.folder));
  if (!entries) return;
  for (const FolderEntry& entry : *entries) {
    if (entry.kind != FolderEntry::Kind::File || !entry.name.starts_with(front) ||
        !entry.name.ends_with(kEnd))
      continue;
    const std::string slot =
        entry.name.substr(front.size(), entry.name.size() - front.size() - kEnd.size());
    if (!slot.empty() && slot[0] != '_') continue;
    TensorRecord record;
    record.step_name = "0";
    record.op_type = model.model_class;
    record.slot = slot.empty() ? slot : slot.substr(1);
    record.order = model.end;
    record.bytes = ByteLocation{.file = entry.path, .member = "data"};
    run->records.push_back(std::move(record));
  }
}

void say_what_is_not_there(const DebugTreeModel& model, Run* run) {
  const bool has_values = std::ranges::any_of(
      run->records, [](const TensorRecord& record) { return record.bytes.has_value(); });
  if (!has_values)
    run->warnings.emplace_back(
        "holds statistics of five digits, no tensors: use_repr=False keeps them");
  if (!model.has_output && !model.has_files)
    run->warnings.emplace_back("what the whole model returned was not stored");
}

Result<Run> read_tree(const std::string& path) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  Run run;
  run.layout = Layout::TransformersDebug;
  ModuleTree modules;
  const DebugTreePlace place{path, folder_of(path)};
  ASSAY_TRY(const DebugTreeModel model,
            in_file(path, read_debug_tree(as_text(file.bytes()), place, &modules, &run)));
  if (!model.has_output && model.has_files) add_model_outputs(place, model, &run);
  say_what_is_not_there(model, &run);
  run.properties["model"] = model.model_class;
  run.topology = modules.build();
  if (run.topology) run.topology->type = model.model_class;
  std::set<std::string_view> nodes;
  for (const TensorRecord& record : run.records) nodes.insert(record.node);
  run.coverage.captured = nodes.size();
  return run;
}

}  // namespace

Attempt read_debug_tree_dump(const std::string& path) {
  if (is_file(path)) {
    if (class_of(base_name(path)).empty()) return std::nullopt;
    return read_tree(path);
  }
  const std::vector<std::string> lists = lists_in(path);
  if (lists.empty()) return std::nullopt;
  if (lists.size() > 1) {
    std::string names;
    for (const std::string& list : lists) names += (names.empty() ? "" : ", ") + base_name(list);
    return Result<Run>(fail(Error{Errc::Usage, path, std::nullopt,
                                  "holds dumps of several models, name one of them: " + names}));
  }
  return read_tree(lists.front());
}

}  // namespace assay::run::sources
