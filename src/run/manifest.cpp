// SPDX-License-Identifier: Apache-2.0
#include "run/manifest.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/mapped_file.hpp"
#include "run/records_line.hpp"
#include "stats/digest.hpp"

namespace assay::run {
namespace {

using nlohmann::json;

uint64_t count_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::vector<json> objects_of(const json& object, const char* key) {
  std::vector<json> items;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array()) return items;
  std::ranges::copy_if(*found, std::back_inserter(items),
                       [](const json& item) { return item.is_object(); });
  return items;
}

/// "host.torch" = "2.13.0", "config.steps" = "[0,1]"
void add_properties(const json& value, const std::string& name, Run* run) {
  if (value.is_object()) {
    for (const auto& [key, item] : value.items())
      add_properties(item, name.empty() ? key : name + "." + key, run);
    return;
  }
  run->properties[name] = value.is_string()
                              ? value.get<std::string>()
                              : value.dump(-1, ' ', false, json::error_handler_t::replace);
}

void add_coverage(const json& coverage, Run* run) {
  run->coverage.planned += count_of(coverage, "planned");
  run->coverage.captured += count_of(coverage, "captured");
  const auto missed = coverage.find("missed");
  if (missed == coverage.end() || !missed->is_array()) return;
  for (const json& item : *missed) {
    if (!item.is_object()) continue;
    run->coverage.missed.push_back(
        {text_of(item, "node"), text_of(item, "reason"), count_of(item, "count")});
  }
}

/// `steps`, `files` and `id`.
Manifest listed_files(const json& manifest) {
  Manifest result;
  result.id = text_of(manifest, "id");
  for (const json& step : objects_of(manifest, "steps"))
    result.steps.push_back({static_cast<int64_t>(count_of(step, "step")), count_of(step, "tensors"),
                            count_of(step, "records"), count_of(step, "bytes")});
  for (const json& file : objects_of(manifest, "files"))
    result.files.push_back(
        {text_of(file, "file"), count_of(file, "bytes"), text_of(file, "digest")});
  return result;
}

/// Its last key is the digest of what stands before it; manifests of earlier versions have neither that nor an id.
bool is_as_written(const json& manifest, std::string_view text, const Manifest& said) {
  const std::string seal = text_of(manifest, "seal");
  if (seal.empty()) return said.id.empty() && said.files.empty();
  const size_t end = text.rfind(",\n \"seal\":");
  return end != std::string_view::npos &&
         stats::digest_text(stats::digest_bytes(as_bytes(text.substr(0, end)))) == seal;
}

}  // namespace

Result<Manifest> read_manifest(const std::string& path, std::string_view text, Run* run) {
  if (json_nesting(text) > kMaxRecordNesting)
    return fail(Errc::TooLarge, "JSON is nested deeper than 64", 0);
  const json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) return fail(Errc::Invalid, "is no JSON object, or was cut off", 0);
  Manifest result = listed_files(manifest);
  result.path = path;
  if (!is_as_written(manifest, text, result)) run->add_damage(path, "is not as it was written");
  const auto complete = manifest.find("complete");
  if (complete != manifest.end() && complete->is_boolean() && !complete->get<bool>())
    run->coverage.complete = false;
  for (const char* part : {"tool", "host", "config", "started", "finished"}) {
    const auto found = manifest.find(part);
    if (found != manifest.end() && !found->is_null()) add_properties(*found, part, run);
  }
  const auto coverage = manifest.find("coverage");
  if (coverage != manifest.end() && coverage->is_object()) add_coverage(*coverage, run);
  const auto sink = manifest.find("sink");
  if (sink != manifest.end() && sink->is_object()) {
    if (const uint64_t dropped = count_of(*sink, "dropped"); dropped > 0) {
      run->coverage.lost += dropped;
      run->warnings.push_back("the capture dropped " + std::to_string(dropped) +
                              " tensors because writing was too slow");
    }
    if (const std::string stopped = text_of(*sink, "stopped"); !stopped.empty()) {
      run->coverage.complete = false;
      run->warnings.push_back("the capture stopped early: " + stopped);
    }
  }
  result.complete = complete == manifest.end() || *complete == true;
  return result;
}

Manifest add_manifest_file(const std::string& path, Run* run) {
  Manifest manifest;
  const Result<MappedFile> file = MappedFile::open(path);
  if (!file && file.error().code == Errc::NotFound) return manifest;
  Result<Manifest> read = file ? in_file(path, read_manifest(path, as_text(file->bytes()), run))
                               : Result<Manifest>(fail(file.error()));
  if (read) {
    manifest = *std::move(read);
  } else {
    run->coverage.complete = false;
    run->warnings.push_back(read.error().describe());
    // It is only ever replaced as a whole.
    if (file) run->add_damage(path, read.error().message);
  }
  manifest.found = true;
  return manifest;
}

}  // namespace assay::run
