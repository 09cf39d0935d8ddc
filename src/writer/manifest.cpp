// SPDX-License-Identifier: Apache-2.0
#include "writer/manifest.hpp"

#include <ctime>

#include "base/atomic_file.hpp"
#include "base/text.hpp"

namespace assay::writer {
namespace {

std::string milliseconds(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", value);
  return text;
}

std::string step_json(const ManifestStep& step) {
  return R"({"step":)" + std::to_string(step.step) + R"(,"tensors":)" +
         std::to_string(step.tensors) + R"(,"records":)" + std::to_string(step.records) +
         R"(,"bytes":)" + std::to_string(step.bytes) + R"(,"wall_ms":)" +
         milliseconds(step.wall_ms) + R"(,"added_ms":)" + milliseconds(step.added_ms) + "}";
}

std::string missed_json(const MissedNode& missed) {
  return R"({"node":)" + json_quote(missed.node) + R"(,"reason":)" + json_quote(missed.reason) +
         R"(,"count":)" + std::to_string(missed.count) + "}";
}

template <typename T>
std::string list_json(const std::vector<T>& items, std::string (*item_json)(const T&)) {
  std::string text = "[";
  for (const T& item : items) {
    text += text.size() == 1 ? "\n  " : ",\n  ";
    text += item_json(item);
  }
  return text + "]";
}

}  // namespace

std::string Manifest::to_json() const {
  std::string text = R"({"format":"assay-run","version":1,"tool":)" + json_quote(tool);
  const bool complete = finished && stopped.empty();
  text += std::string(",\n \"complete\":") + (complete ? "true" : "false");
  text += ",\n \"host\":" + host_json + ",\n \"config\":" + config_json;
  if (!engines_json.empty()) text += ",\n \"engines\":" + engines_json;
  text += ",\n \"started\":" + json_quote(started);
  text += ",\"finished\":" + (finished ? json_quote(*finished) : "null");
  text += ",\n \"steps\":" + list_json(steps, step_json);
  text += ",\n \"coverage\":{\"planned\":" + std::to_string(planned) +
          ",\"captured\":" + std::to_string(captured) +
          ",\"missed\":" + list_json(missed, missed_json) + "}";
  text += ",\n \"sink\":{\"queue_bytes\":" + std::to_string(queue_bytes) +
          ",\"waited_ms\":" + milliseconds(waited_ms) + ",\"dropped\":" + std::to_string(dropped) +
          ",\"dropped_bytes\":" + std::to_string(dropped_bytes) +
          ",\"stopped\":" + (stopped.empty() ? "null" : json_quote(stopped)) + "}}\n";
  return text;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

Result<bool> create_manifest(const std::string& path, const Manifest& manifest) {
  return create_file_atomically(path, as_bytes(manifest.to_json()));
}

Status write_manifest(const std::string& path, const Manifest& manifest) {
  return write_file_atomically(path, as_bytes(manifest.to_json()));
}

}  // namespace assay::writer
