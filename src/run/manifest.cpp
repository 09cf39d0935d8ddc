// SPDX-License-Identifier: Apache-2.0
#include "run/manifest.hpp"

#include <nlohmann/json.hpp>

#include "base/mapped_file.hpp"
#include "run/records_line.hpp"

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

}  // namespace

Status read_manifest(std::string_view text, Run* run) {
  if (json_nesting(text) > kMaxRecordNesting)
    return fail(Errc::TooLarge, "JSON is nested deeper than 64", 0);
  const json manifest = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!manifest.is_object()) return fail(Errc::Invalid, "is no JSON object, or was cut off", 0);
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
  return {};
}

void add_manifest_file(const std::string& path, Run* run, bool* found) {
  const Result<MappedFile> file = MappedFile::open(path);
  *found = file.has_value() || file.error().code != Errc::NotFound;
  if (!*found) return;
  const Status status =
      file ? in_file(path, read_manifest(as_text(file->bytes()), run)) : Status(fail(file.error()));
  if (status) return;
  run->coverage.complete = false;
  run->warnings.push_back(status.error().describe());
}

}  // namespace assay::run
