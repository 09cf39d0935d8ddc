// SPDX-License-Identifier: Apache-2.0
// The request of the dump command as JSON, and which steps and nodes it names.
#include "capture/ggml/settings.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/numbers.hpp"
#include "base/text.hpp"
#include "formats/json_fields.hpp"

namespace assay::capture::ggml {
namespace {

using nlohmann::json;

bool matches_any(const std::vector<std::string>& patterns, const std::string& text) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  });
}

}  // namespace

bool Settings::wants_step(uint64_t step) const {
  return all_steps || std::any_of(steps.begin(), steps.end(), [step](const StepRange& range) {
           return step >= range.first && step <= range.second;
         });
}

bool Settings::wants_node(std::string_view name, std::string_view op) const {
  const std::string text(name);
  if (!names.empty() && !matches_any(names, text)) return false;
  if (matches_any(exclude, text)) return false;
  return types.empty() || std::any_of(types.begin(), types.end(), [op](const std::string& type) {
           return op.starts_with(type);
         });
}

void set_range(std::string_view range, Settings* settings) {
  settings->all_steps = range == "all";
  settings->steps.clear();
  const std::vector<std::string_view> parts = split(range, ',');
  for (size_t i = 0; i + 1 < parts.size(); i += 2) {
    const auto first = parse_number<uint64_t>(parts[i]);
    const auto last = parse_number<uint64_t>(parts[i + 1]);
    if (first && last) settings->steps.emplace_back(*first, *last);
  }
}

Result<Settings> settings_from_json(std::string_view text) {
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return fail(Errc::Invalid, "ASSAY_GGML_DUMP is no JSON object");
  try {
    Settings settings;
    settings.output = object.value("output", "");
    if (settings.output.empty()) return fail(Errc::Invalid, "ASSAY_GGML_DUMP names no output");
    set_range(object.value("steps", "0,0"), &settings);
    settings.first_only = object.value("first_only", false);
    settings.names = formats::texts_of(object, "names");
    settings.exclude = formats::texts_of(object, "exclude");
    settings.types = formats::texts_of(object, "types");
    settings.full = object.value("full", true);
    settings.statistics = object.value("statistics", false);
    settings.digest = object.value("digest", false);
    settings.inputs = object.value("inputs", true);
    settings.outputs = object.value("outputs", true);
    settings.weights = object.value("weights", false);
    settings.caches = object.value("caches", false);
    settings.report_folder = object.value("report_dir", "");
    // The folder by its bytes, when they are no text.
    if (const char* output = std::getenv("ASSAY_DUMP_OUTPUT"); output != nullptr) {
      settings.output = output;
      if (const size_t slash = settings.report_folder.rfind('/'); slash != std::string::npos)
        settings.report_folder = settings.output + settings.report_folder.substr(slash);
    }
    settings.config_path = object.value("config", "");
    settings.queue_bytes = object.value("queue_bytes", settings.queue_bytes);
    settings.drop_when_full = object.value("drop_when_full", false);
    settings.synchronous = object.value("sync", false);
    return settings;
  } catch (const json::exception& error) {
    return fail(Errc::Invalid, std::string("ASSAY_GGML_DUMP: ") + error.what());
  }
}

}  // namespace assay::capture::ggml
