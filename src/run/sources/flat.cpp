// SPDX-License-Identifier: Apache-2.0
// A folder of tensor files, at any depth, without any order but that of their names. The node of a
// tensor is the file's path inside the folder without its suffix, so that a.npy of one folder meets
// a.pth of another.
#include <map>
#include <set>

#include "base/thread_pool.hpp"
#include "run/folder.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {
namespace {

constexpr int kMaxFolderDepth = 64;

struct FlatFolder {
  std::string boundary;
  std::vector<std::pair<std::string, FolderEntry>>
      files;                        // path inside the folder, in natural order
  std::vector<std::string> others;  // files that are no tensor files
  std::vector<std::string> warnings;
};

void walk(const std::string& folder, const std::string& prefix, int depth, FlatFolder* out) {
  Result<FolderEntries> entries = list_folder(folder, out->boundary);
  if (!entries) {
    out->warnings.push_back(entries.error().describe());
    return;
  }
  for (const FolderEntry& entry : *entries) {
    const std::string name = prefix + entry.name;
    if (entry.kind == FolderEntry::Kind::Folder) {
      if (entry.is_link) {
        out->warnings.push_back(entry.path + ": linked folders are not followed");
      } else if (depth >= kMaxFolderDepth) {
        out->warnings.push_back(entry.path + ": folders are nested deeper than 64");
      } else {
        walk(entry.path, name + "/", depth + 1, out);
      }
    } else if (has_tensor_suffix(entry.name)) {
      out->files.emplace_back(name, entry);
    } else if (entry.kind == FolderEntry::Kind::Unusable) {
      out->warnings.push_back(entry.path + ": " + entry.problem);
    } else {
      out->others.push_back(name);
    }
  }
}

}  // namespace

Attempt read_flat(const std::string& path) {
  FlatFolder folder;
  folder.boundary = real_path(path);
  if (const auto readable = list_folder(path, folder.boundary); !readable)
    return Result<Run>(fail(readable.error()));
  walk(path, "", 0, &folder);
  if (folder.files.empty()) return std::nullopt;

  Run run;
  run.layout = Layout::Flat;
  run.warnings = std::move(folder.warnings);
  if (!folder.others.empty()) {
    run.warnings.push_back(std::to_string(folder.others.size()) +
                           " files are no tensor files and were left out: " +
                           folder.others.front() + (folder.others.size() > 1 ? ", ..." : ""));
  }
  // Two files whose names differ only in the suffix keep it.
  std::map<std::string, int> stems;
  for (const auto& [name, entry] : folder.files) ++stems[without_tensor_suffix(name)];
  std::vector<std::vector<TensorRecord>> found(folder.files.size());
  parallel_for(found.size(), resolve_job_count(0), [&](size_t i) {
    const auto& [name, entry] = folder.files[i];
    const std::string stem = without_tensor_suffix(name);
    const std::string& node = stems.at(stem) == 1 ? stem : name;
    if (entry.kind == FolderEntry::Kind::File) {
      found[i] = records_of_file(entry.path, node);
      return;
    }
    TensorRecord unusable;
    unusable.node = node;
    unusable.step_name = "0";
    unusable.problem = entry.path + ": " + entry.problem;
    found[i].push_back(std::move(unusable));
  });
  for (std::vector<TensorRecord>& records : found) append_records(std::move(records), &run);
  run.order_known = run.records.size() < 2;
  run.coverage.captured = folder.files.size();
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
