// SPDX-License-Identifier: Apache-2.0
// A single tensor file as a run.
#include "run/checkpoint.hpp"
#include "run/container.hpp"
#include "run/folder.hpp"
#include "run/sources/sources.hpp"

namespace assay::run::sources {

bool has_tensor_suffix(std::string_view name) {
  for (const std::string_view suffix :
       {".npy", ".npz", ".pth", ".pt", ".safetensors", ".gguf", ".bin"}) {
    if (name.size() > suffix.size() && name.ends_with(suffix)) return true;
  }
  return false;
}

std::string without_tensor_suffix(std::string_view name) {
  return std::string(has_tensor_suffix(name) ? name.substr(0, name.rfind('.')) : name);
}

namespace {

/// "", ".0", ".1.0", ".kwargs.mask": no name of a module inside one that is called "output".
bool is_slot(std::string_view rest) {
  constexpr std::string_view kKeyword = ".kwargs.";
  if (rest.empty()) return true;
  if (rest.starts_with(kKeyword)) return rest.size() > kKeyword.size();
  return rest.size() > 1 && rest[0] == '.' && rest.back() != '.' &&
         rest.find_first_not_of(".0123456789") == std::string_view::npos;
}

}  // namespace

bool has_named_arrays(std::string_view file) { return file.ends_with(".npz"); }

std::string member_of(const TensorRecord& record) {
  return record.bytes ? record.bytes->member.str() : std::string();
}

void name_array(std::string_view name, TensorRecord* record) {
  record->node = std::string(name);
  record->slot = {};
  for (const std::string_view weight : {"weight", "bias"}) {
    if (name.size() <= weight.size() + 1 || !name.ends_with(weight) ||
        name[name.size() - weight.size() - 1] != '.')
      continue;
    record->role = Role::Weight;
    record->node = std::string(name.substr(0, name.size() - weight.size() - 1));
    record->slot = std::string(weight);
    record->step_name = "weights";
    record->step = -1;
    return;
  }
  for (const Role role : {Role::Output, Role::Input}) {
    const std::string ending = "." + std::string(role_name(role));
    const size_t at = name.rfind(ending);
    if (at == std::string_view::npos || at == 0) continue;
    const std::string_view rest = name.substr(at + ending.size());
    if (!is_slot(rest)) continue;
    record->role = role;
    record->node = std::string(name.substr(0, at));
    record->slot = std::string(rest.empty() ? rest : rest.substr(1));
    return;
  }
}

std::vector<TensorRecord> records_of_file(const std::string& file, const std::string& node) {
  const Result<std::shared_ptr<const Container>> container = open_container(file);
  Result<std::vector<TensorRecord>> members =
      container ? (*container)->list() : Result<std::vector<TensorRecord>>(fail(container.error()));
  std::vector<TensorRecord> records;
  if (members) {
    records = *std::move(members);
  } else {
    TensorRecord unreadable;
    unreadable.problem = in_file(file, Result<void>(fail(members.error()))).error().describe();
    ByteLocation location;
    location.file = file;
    unreadable.bytes = std::move(location);
    records.push_back(std::move(unreadable));
  }
  for (TensorRecord& record : records) {
    record.node = node;
    record.step_name = "0";
  }
  return records;
}

void append_records(std::vector<TensorRecord> records, Run* run) {
  for (TensorRecord& record : records) {
    record.order = run->records.size();
    run->records.push_back(std::move(record));
  }
}

Attempt read_file(const std::string& path) {
  if (is_folder(path)) return std::nullopt;
  // A file that nobody can read is an error here, not a record: the user named just this file.
  const Result<std::shared_ptr<const Container>> container = open_container(path);
  if (!container) return Result<Run>(fail(container.error()));
  const Result<std::vector<TensorRecord>> members = (*container)->list();
  if (!members) return Result<Run>(fail(members.error()));
  Run run;
  run.layout = Layout::File;
  run.properties = (*container)->properties();
  std::vector<std::string> files = {path};
  if (path.ends_with(".gguf")) {
    const auto count = run.properties.find("gguf:split.count");
    Result<GgufFiles> shards = gguf_files(path, count != run.properties.end() ? count->second : "");
    if (!shards) return Result<Run>(fail(shards.error()));
    files = std::move(shards->paths);
    run.warnings = std::move(shards->warnings);
  }
  for (const std::string& file : files) {
    std::vector<TensorRecord> records =
        records_of_file(file, without_tensor_suffix(base_name(file)));
    if (has_named_arrays(file)) {
      for (TensorRecord& record : records) name_array(member_of(record), &record);
    }
    append_records(std::move(records), &run);
    // Of a model in shards the first has all metadata, the others only their own number.
    if (const auto shard = open_container(file); shard && file == files.front())
      run.properties = (*shard)->properties();
  }
  run.coverage.captured = run.records.size();
  run.order_known = run.records.size() < 2;  // members stand in the order of the file
  return Result<Run>(std::move(run));
}

}  // namespace assay::run::sources
