// SPDX-License-Identifier: Apache-2.0
#include "writer/manifest.hpp"

#include <cstdlib>
#include <ctime>
#include <random>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
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

std::string file_json(const ManifestFile& file) {
  return R"({"file":)" + json_quote(file.name) + R"(,"bytes":)" + std::to_string(file.bytes) +
         R"(,"entries":)" + std::to_string(file.entries) + R"(,"digest":")" +
         stats::digest_text(file.digest) + "\"}";
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
  if (!id.empty()) text += ",\n \"id\":" + json_quote(id);
  text += ",\n \"host\":" + host_json + ",\n \"config\":" + config_json;
  if (!engines_json.empty()) text += ",\n \"engines\":" + engines_json;
  text += ",\n \"started\":" + json_quote(started);
  text += ",\"finished\":" + (finished ? json_quote(*finished) : "null");
  text += ",\n \"steps\":" + list_json(steps, step_json);
  text += ",\n \"files\":" + list_json(files, file_json);
  text += ",\n \"coverage\":{\"planned\":" + std::to_string(planned) +
          ",\"captured\":" + std::to_string(captured) +
          ",\"missed\":" + list_json(missed, missed_json) + "}";
  text += ",\n \"sink\":{\"queue_bytes\":" + std::to_string(queue_bytes) +
          ",\"waited_ms\":" + milliseconds(waited_ms) + ",\"dropped\":" + std::to_string(dropped) +
          ",\"dropped_bytes\":" + std::to_string(dropped_bytes) +
          ",\"stopped\":" + (stopped.empty() ? "null" : json_quote(stopped)) + "}";
  // Last, so that it is of everything that stands before it.
  const std::string seal = stats::digest_text(stats::digest_bytes(as_bytes(text)));
  return text + ",\n \"seal\":\"" + seal + "\"}\n";
}

std::string new_run_id() {
  std::random_device random;
  const auto half = [&random] { return uint64_t{random()} << 32 | random(); };
  return stats::digest_text({half(), half()});
}

namespace {

// Of a manifest that this program wrote, maybe in another version; empty when it has none.
std::string id_in(std::string_view manifest) {
  constexpr std::string_view kKey = "\n \"id\":\"";
  const size_t at = manifest.find(kKey);
  if (at == std::string_view::npos) return {};
  const std::string_view id = manifest.substr(at + kKey.size(), 32);
  return stats::parse_digest(id) ? std::string(id) : std::string();
}

}  // namespace

Result<RunClaim> claim_run(const std::string& path, Manifest manifest) {
  const char* given = std::getenv("ASSAY_RUN_ID");
  const bool is_given = given != nullptr && stats::parse_digest(given).has_value();
  manifest.id = is_given ? given : new_run_id();
  ASSAY_TRY(const bool is_first, create_manifest(path, manifest));
  if (is_first || is_given) return RunClaim{manifest.id, is_first};
  const Result<MappedFile> file = MappedFile::open(path);
  const std::string id = file ? id_in(as_text(file->bytes())) : std::string();
  return RunClaim{id.empty() ? manifest.id : id, false};
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
