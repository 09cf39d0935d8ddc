// SPDX-License-Identifier: Apache-2.0
// Decides which files are the model's (those of the index, else safetensors, else torch's, else
// GGUF), lists their members as weights, and tells what an index or the name of a shard promises
// and is not there.
#include "run/checkpoint.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/mapped_file.hpp"
#include "base/numbers.hpp"
#include "formats/json_fields.hpp"
#include "run/container.hpp"
#include "run/folder.hpp"

namespace assay::run {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;  // 1e5 names take about 10 MiB
constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20;

Result<json> read_json(const std::string& path, uint64_t max_bytes) {
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  if (file.bytes().size() > max_bytes) {
    return fail(Error{Errc::TooLarge, path, std::nullopt,
                      "has " + std::to_string(file.bytes().size()) + " bytes, at most " +
                          std::to_string(max_bytes) + " are read"});
  }
  return in_file(path, formats::parse_json_object(as_text(file.bytes())));
}

struct Listing {
  std::vector<std::string> safetensors;  // names of files, sorted as strings
  std::vector<std::string> torch;
  std::vector<std::string> gguf;
  std::set<std::string> all;
};

Result<Listing> list_weight_files(const std::string& folder) {
  ASSAY_TRY(const FolderEntries entries, list_folder(folder, real_path(folder)));
  Listing out;
  for (const FolderEntry& entry : entries) {
    if (!is_file(entry.path)) continue;
    out.all.insert(entry.name);
    const auto ends = [&](std::string_view suffix) { return entry.name.ends_with(suffix); };
    if (ends(".safetensors")) out.safetensors.push_back(entry.name);
    if (ends(".gguf")) out.gguf.push_back(entry.name);
    if (ends(".bin") || ends(".pth") || ends(".pt")) out.torch.push_back(entry.name);
  }
  // The original sorted names as strings; shard numbers have leading zeros, so it is the same
  // order.
  std::sort(out.safetensors.begin(), out.safetensors.end());
  std::sort(out.torch.begin(), out.torch.end());
  std::sort(out.gguf.begin(), out.gguf.end());
  return out;
}

/// Names of weights by the shard that should hold them.
using ShardNames = std::map<std::string, std::set<std::string>>;

Result<ShardNames> read_index(const std::string& path) {
  ASSAY_TRY(const json index, read_json(path, kMaxIndexBytes));
  const auto map = index.find("weight_map");
  if (map == index.end() || !map->is_object()) {
    return fail(Error{Errc::Invalid, path, std::nullopt, "has no object weight_map"});
  }
  ShardNames out;
  for (const auto& [name, shard] : map->items()) {
    if (!shard.is_string()) {
      return fail(
          Error{Errc::Invalid, path, std::nullopt, "the shard of '" + name + "' is no text"});
    }
    const auto& file = shard.get_ref<const std::string&>();
    if (file.empty() || file.find('/') != std::string::npos || file == "." || file == "..") {
      return fail(Error{Errc::Invalid, path, std::nullopt,
                        "the shard of '" + name + "' is no name of a file: '" + file + "'"});
    }
    out[file].insert(name);
  }
  return out;
}

/// "model-00002-of-00003.gguf" -> "model-" and "-of-00003.gguf"; nothing for a file that is no
/// shard.
struct ShardName {
  std::string prefix;
  std::string suffix;
  uint32_t number = 0;  // from 1
  uint32_t count = 0;
};
std::optional<ShardName> shard_name(const std::string& name) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kEnding = ".gguf";
  const size_t of = name.rfind("-of-");
  if (of == std::string::npos || of < kDigits + 1 ||
      name.size() != of + 4 + kDigits + kEnding.size())
    return std::nullopt;
  const auto digits = [&](size_t at) {
    return parse_number<uint32_t>(std::string_view(name).substr(at, kDigits));
  };
  const auto number = digits(of - kDigits);
  const auto count = digits(of + 4);
  if (!number || !count) return std::nullopt;
  return ShardName{name.substr(0, of - kDigits), name.substr(of), *number, *count};
}

/// Those of `files` that are shards of the same model, or the file alone.
std::vector<std::string> shards_of(const std::string& file, const std::vector<std::string>& files) {
  const auto wanted = shard_name(file);
  std::vector<std::string> out;
  for (const std::string& other : files) {
    const auto shard = shard_name(other);
    if (wanted && shard && shard->prefix == wanted->prefix && shard->suffix == wanted->suffix)
      out.push_back(other);
  }
  if (out.empty()) out.push_back(file);
  return out;
}

/// A sentence for each shard that the names of the others speak of. Names that claim more than
/// there are files in any model are not believed.
std::vector<std::string> missing_shards(const std::string& folder,
                                        const std::vector<std::string>& files) {
  constexpr uint32_t kMaxShards = 10000;
  std::vector<std::string> out;
  const auto first = shard_name(files.front());
  if (!first || first->count > kMaxShards) return out;
  std::set<uint32_t> present;
  for (const std::string& file : files) {
    if (const auto shard = shard_name(file)) present.insert(shard->number);
  }
  for (uint32_t number = 1; number <= first->count; ++number) {
    if (present.contains(number)) continue;
    out.push_back(join_path(folder, files.front()) + ": shard " + std::to_string(number) + " of " +
                  std::to_string(first->count) + " is not there");
  }
  return out;
}

class Reader {
 public:
  explicit Reader(const std::string& folder) : folder_(folder) {
    run_.path = folder;
    run_.layout = Layout::Checkpoint;
  }

  void read_shard(const std::string& file, const std::set<std::string>* expected) {
    const std::string path = join_path(folder_, file);
    Result<std::vector<TensorRecord>> members = list_members(path);
    if (!members) {
      const std::string problem = in_file(path, Status(fail(members.error()))).error().describe();
      if (expected == nullptr) run_.warnings.push_back(problem);
      if (expected != nullptr) add_missing(*expected, problem);
      return;
    }
    std::set<std::string> found;
    for (TensorRecord& member : *members) {
      if (!member.bytes) continue;  // numbers and texts beside the weights
      found.insert(member.slot);
      add(std::move(member));
    }
    if (expected == nullptr) return;
    std::set<std::string> missing;
    for (const std::string& name : *expected) {
      if (!found.contains(name)) missing.insert(name);
    }
    add_missing(missing, path + ": has no such tensor, although the index says so");
  }

  /// The names and metadata of GGUF files; the first one's metadata are those of the model.
  void read_gguf(const std::vector<std::string>& files) {
    run_.layout = Layout::Gguf;
    add_warnings(missing_shards(folder_, files));
    for (const std::string& file : files) {
      read_shard(file, nullptr);
      const auto container = open_container(join_path(folder_, file));
      if (!container) continue;  // read_shard() has added a warning
      for (const auto& [key, value] : (*container)->properties())
        run_.properties.emplace(key, value);
    }
  }

  void add_warnings(std::vector<std::string> warnings) {
    for (std::string& warning : warnings) run_.warnings.push_back(std::move(warning));
  }

  /// files   what a broken index is replaced by
  void read_indexed(const std::string& index_name, const std::vector<std::string>& files) {
    const Result<ShardNames> index = read_index(join_path(folder_, index_name));
    if (!index) {
      run_.warnings.push_back(index.error().describe() + "; every file of weights is read instead");
      for (const std::string& file : files) read_shard(file, nullptr);
      return;
    }
    run_.properties["index"] = index_name;
    for (const auto& [file, names] : *index) read_shard(file, &names);
    for (const std::string& file : files) {
      if (index->contains(file)) continue;
      run_.warnings.push_back(join_path(folder_, file) + ": left out, the index does not name it");
    }
  }

  void read_config() {
    for (const char* file : {"config.json", "quantize_config.json"}) {
      const std::string path = join_path(folder_, file);
      if (!is_file(path)) continue;
      const Result<json> config = read_json(path, kMaxConfigBytes);
      if (!config) {
        run_.warnings.push_back(config.error().describe());
        continue;
      }
      if (const auto tied = config->find("tie_word_embeddings");
          tied != config->end() && tied->is_boolean()) {
        run_.properties["tie_word_embeddings"] = tied->get<bool>() ? "true" : "false";
      }
      const auto nested = config->find("quantization_config");
      const json& quantisation = nested != config->end() && nested->is_object() ? *nested : *config;
      if (const auto format = quantisation.find("checkpoint_format");
          format != quantisation.end() && format->is_string()) {
        run_.properties["checkpoint_format"] = format->get<std::string>();
      }
    }
  }

  Run finish() && {
    uint64_t order = 0;
    for (TensorRecord& record : run_.records) record.order = order++;
    run_.coverage.captured = run_.records.size();
    return std::move(run_);
  }

 private:
  static Result<std::vector<TensorRecord>> list_members(const std::string& path) {
    ASSAY_TRY(const std::shared_ptr<const Container> container, open_container(path));
    return container->list();
  }

  void add(TensorRecord record) {
    record.node = record.slot;
    record.slot.clear();
    record.role = Role::Weight;
    record.step_name = "weights";
    record.step = -1;
    if (const auto [first, is_new] = by_name_.try_emplace(record.node, run_.records.size());
        !is_new) {
      TensorRecord& known = run_.records[first->second];
      if (known.problem.empty()) {
        run_.warnings.push_back(record.bytes->file + ": holds '" + record.node +
                                "' again; the one of " + known.bytes->file + " is compared");
        return;
      }
      known = std::move(record);
      return;
    }
    run_.records.push_back(std::move(record));
  }

  void add_missing(const std::set<std::string>& names, const std::string& problem) {
    for (const std::string& name : names) {
      if (by_name_.contains(name)) continue;
      TensorRecord record;
      record.node = name;
      record.role = Role::Weight;
      record.step_name = "weights";
      record.step = -1;
      record.problem = problem;
      by_name_[name] = run_.records.size();
      run_.records.push_back(std::move(record));
    }
  }

  const std::string& folder_;
  Run run_;
  std::map<std::string, size_t> by_name_;
};

Result<Run> read_gguf_shards(const std::string& folder, const std::vector<std::string>& files) {
  // A file that the user named, or the only one, is an error when it cannot be read, not a warning.
  ASSAY_TRY(const auto container, open_container(join_path(folder, files.front())));
  ASSAY_TRY_STATUS(container->list().transform([](const std::vector<TensorRecord>&) {}));
  Reader reader(folder);
  reader.read_gguf(files);
  return std::move(reader).finish();
}

/// The folder, "." where the path names none, and the name of the file.
std::pair<std::string, std::string> split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return {slash == std::string::npos ? "." : path.substr(0, slash + 1), base_name(path)};
}

/// Names of all shards of the model, or of the file alone.
Result<std::vector<std::string>> shards_beside(const std::string& folder, const std::string& file) {
  if (!shard_name(file)) return std::vector<std::string>{file};
  ASSAY_TRY(const Listing listing, list_weight_files(folder));
  return shards_of(file, listing.gguf);
}

Result<Run> open_gguf(const std::string& path) {
  const auto [folder, file] = split_path(path);
  ASSAY_TRY(const std::vector<std::string> files, shards_beside(folder, file));
  ASSAY_TRY(Run run, read_gguf_shards(folder, files));
  run.path = path;
  return run;
}

Result<Run> open_gguf_folder(const std::string& folder, const std::vector<std::string>& files) {
  const std::vector<std::string> shards = shards_of(files.front(), files);
  if (shards.size() != files.size()) {
    return fail(Error{Errc::Usage, folder, std::nullopt,
                      "holds several GGUF models, " + files.front() + " and others; name one"});
  }
  return read_gguf_shards(folder, shards);
}

}  // namespace

Result<GgufFiles> gguf_files(const std::string& path, const std::string& split_count) {
  const auto [folder, file] = split_path(path);
  ASSAY_TRY(const std::vector<std::string> files, shards_beside(folder, file));
  GgufFiles out;
  out.warnings = missing_shards(folder, files);
  for (const std::string& shard : files)
    out.paths.push_back(shard == file ? path : join_path(folder, shard));
  if (parse_number<uint32_t>(split_count).value_or(1) > 1 && !shard_name(file)) {
    out.warnings.push_back(path + ": is one of " + split_count +
                           " shards; the others are found where their names are like "
                           "model-00001-of-00003.gguf");
  }
  return out;
}

Result<Run> open_checkpoint(const std::string& folder, bool first_file_only) {
  if (folder.ends_with(".gguf") && is_file(folder)) return open_gguf(folder);
  if (!is_folder(folder)) {
    if (is_file(folder)) {
      return fail(
          Error{Errc::Usage, folder, std::nullopt, "is a file; weights are compared by folder"});
    }
    return fail(Error{Errc::NotFound, folder, std::nullopt, "no such folder"});
  }
  ASSAY_TRY(const Listing listing, list_weight_files(folder));
  constexpr const char* kIndex = "model.safetensors.index.json";
  constexpr const char* kTorchIndex = "pytorch_model.bin.index.json";
  const bool has_safetensors = !listing.safetensors.empty() || listing.all.contains(kIndex);
  const std::vector<std::string>& files = has_safetensors ? listing.safetensors : listing.torch;
  const std::string index_name = has_safetensors ? kIndex : kTorchIndex;
  const bool has_index = listing.all.contains(index_name) && !first_file_only;
  if (files.empty() && !has_index && !listing.gguf.empty())
    return open_gguf_folder(folder, listing.gguf);
  if (files.empty() && !has_index) {
    return fail(Error{Errc::NotFound, folder, std::nullopt,
                      "No .safetensors files found in the directory."});
  }
  Reader reader(folder);
  if (first_file_only) {
    reader.read_shard(files[0], nullptr);
  } else if (has_index) {
    reader.read_indexed(index_name, files);
  } else {
    for (const std::string& file : files) reader.read_shard(file, nullptr);
  }
  reader.read_config();
  return std::move(reader).finish();
}

}  // namespace assay::run
