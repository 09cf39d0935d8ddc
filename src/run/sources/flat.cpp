// SPDX-License-Identifier: Apache-2.0
// A folder of tensor files, at any depth, without any order but that of their names. A tensor is
// called as its file's path inside the folder without the suffix, so that a.npy of one folder meets
// a.pth of another, and in an npz or safetensors file as its key. docs/formats/arrays.md
#include <algorithm>
#include <map>
#include <set>
#include <tuple>

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

using Names = std::set<std::tuple<std::string, Role, std::string>>;

bool is_new(const TensorRecord& record, Names* names) {
  return names->insert({record.node, record.role, record.slot}).second;
}

/// Each record by its name: that of its file, or its key where no other file has that key.
void name_arrays(std::vector<std::vector<TensorRecord>>* files) {
  std::map<std::string, int> keys;
  const auto key_of = [](const TensorRecord& record) {
    const bool keyed = record.bytes && (has_named_arrays(record.bytes->file.str()) ||
                                        record.bytes->file.str().ends_with(".safetensors"));
    return keyed ? member_of(record) : std::string();
  };
  for (const std::vector<TensorRecord>& records : *files) {
    for (const TensorRecord& record : records) ++keys[key_of(record)];
  }
  const auto name_of = [&](const TensorRecord& record) {
    const std::string key = key_of(record);
    if (key.empty()) return record.node.str();
    return keys.at(key) == 1 ? key : record.node.str() + "/" + key;
  };
  const auto is_weight = [&](const TensorRecord& record) {
    TensorRecord named;
    name_array(name_of(record), &named);
    return named.role == Role::Weight;
  };
  // Nothing but weights is a checkpoint, whose names are those of its files and keys.
  if (std::ranges::all_of(*files, [&](const std::vector<TensorRecord>& records) {
        return std::ranges::all_of(records, is_weight);
      }))
    return;
  Names names;
  for (std::vector<TensorRecord>& records : *files) {
    for (TensorRecord& record : records) {
      // A member of another kind of container, as of a tuple in a .pth, is a slot of its file.
      if (key_of(record).empty() && !record.slot.empty()) continue;
      const std::string name = name_of(record);
      name_array(name, &record);
      if (is_new(record, &names)) continue;
      record.node = name;  // "x" beside "x.output": both keep their names
      record.role = Role::Output;
      record.slot = {};
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
  name_arrays(&found);
  for (std::vector<TensorRecord>& records : found) append_records(std::move(records), &run);
  run.order_known = run.records.size() < 2;
  run.coverage.captured = folder.files.size();
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
