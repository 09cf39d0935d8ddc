// SPDX-License-Identifier: Apache-2.0
// One page of 3392 bytes that host and command map, little-endian; then the JSON summary made of
// it.
//
//   0   "ASAYPRB1"  u32 version  u32 size      288   tool, 32 bytes             1344  8 notes of 256 bytes
//   16  u64 pid     u64 start                  320   program, 512 bytes
//   32  32 x u64 counters                      832   first error, 512 bytes
#include "formats/probe_status.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "base/text.hpp"
#include "formats/json_fields.hpp"

namespace assay::formats {
namespace {

using Json = nlohmann::json;

struct CounterKey {
  const char* group;
  const char* key;
  uint64_t ProbeCounters::* counter;
};

// In the order of the summary. waited_ms and tensors.lost are computed.
constexpr CounterKey kCounters[] = {
    {"tensors", "seen", &ProbeCounters::tensors_seen},
    {"tensors", "accepted", &ProbeCounters::tensors_accepted},
    {"tensors", "written", &ProbeCounters::tensors_written},
    {"tensors", "linked", &ProbeCounters::tensors_linked},
    {"tensors", "failed", &ProbeCounters::tensors_failed},
    {"tensors", "dropped", &ProbeCounters::tensors_dropped},
    {"skipped", "part", &ProbeCounters::skipped_part},
    {"skipped", "time", &ProbeCounters::skipped_time},
    {"skipped", "device", &ProbeCounters::skipped_device},
    {"skipped", "size", &ProbeCounters::skipped_size},
    {"skipped", "null", &ProbeCounters::skipped_null},
    {"skipped", "header", &ProbeCounters::skipped_header},
    {"skipped", "name", &ProbeCounters::skipped_name},
    {"skipped", "disk", &ProbeCounters::skipped_disk},
    {"files", "tiling", &ProbeCounters::tiling_files},
    {"files", "params", &ProbeCounters::param_files},
    {"files", "layers", &ProbeCounters::layer_files},
    {"files", "models", &ProbeCounters::model_files},
    {"files", "operation_rows", &ProbeCounters::operation_rows},
    {"files", "kernel_rows", &ProbeCounters::kernel_rows},
    {"files", "statistics", &ProbeCounters::statistic_lines},
    {"files", "overflows", &ProbeCounters::overflows},
    {"bytes", "payload", &ProbeCounters::payload_bytes},
    {"bytes", "queue_bound", &ProbeCounters::queue_bound_bytes},
    {"bytes", "queue_peak", &ProbeCounters::queue_peak_bytes},
    {"asked", "need_save", &ProbeCounters::asked_need_save},
    {"asked", "need_save_yes", &ProbeCounters::asked_need_save_yes},
    {"asked", "in_range", &ProbeCounters::asked_in_range},
    {"asked", "in_range_yes", &ProbeCounters::asked_in_range_yes},
    {"asked", "in_dir", &ProbeCounters::asked_in_dir},
    {"asked", "in_dir_yes", &ProbeCounters::asked_in_dir_yes},
};

std::string utc_text(int64_t seconds) {
  const auto time = static_cast<time_t>(seconds);
  std::tm parts{};
  if (gmtime_r(&time, &parts) == nullptr) return "";
  char text[80];
  std::snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02dZ", parts.tm_year + 1900,
                parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
  return text;
}

// A text of the page; without its zero byte only when the page is damaged.
template <size_t size>
std::string_view field_text(const char (&field)[size]) {
  return {field, strnlen(field, size)};
}

/// One object a group.
void add_counters(const ProbeCounters& counters, JsonObject* json) {
  for (size_t i = 0; i < std::size(kCounters);) {
    const std::string_view group = kCounters[i].group;
    JsonObject members;
    for (; i < std::size(kCounters) && kCounters[i].group == group; ++i) {
      members.add(kCounters[i].key, counters.*kCounters[i].counter);
      if (kCounters[i].counter == &ProbeCounters::tensors_dropped)
        members.add("lost", tensors_lost(counters));
    }
    json->add_json(group, members.text());
  }
}

ProbeCounters read_counters(const Json& object) {
  ProbeCounters counters;
  for (const CounterKey& entry : kCounters) {
    const auto group = object.find(entry.group);
    if (group == object.end() || !group->is_object()) continue;
    const auto value = group->find(entry.key);
    if (value != group->end() && value->is_number_unsigned()) {
      counters.*entry.counter = value->get<uint64_t>();
    }
  }
  const auto waited = object.find("waited_ms");
  // Beyond a century it is no waiting time.
  if (waited != object.end() && waited->is_number() && waited->get<double>() >= 0 &&
      waited->get<double>() < 4e12) {
    counters.waited_us = static_cast<uint64_t>(std::llround(waited->get<double>() * 1000));
  }
  return counters;
}

}  // namespace

void set_status_text(char* field, size_t field_bytes, std::string_view text) {
  size_t size = std::min(text.size(), field_bytes - 1);
  // Not in the middle of a UTF-8 sequence.
  while (size > 0 && size < text.size() && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80)
    --size;
  std::memcpy(field, text.data(), size);
  field[size] = '\0';
}

Result<ProbeStatus> read_probe_status(ByteSpan file) {
  ProbeStatus status;
  const ProbeStatus expected;
  if (file.size() < sizeof(status.magic)) {
    return fail(Errc::Truncated, "is shorter than its magic number", file.size());
  }
  if (std::memcmp(file.data(), expected.magic, sizeof(expected.magic)) != 0) {
    return fail(Errc::BadMagic, "is no status page of a probe", 0);
  }
  if (file.size() < sizeof(status)) {
    return fail(
        Errc::Truncated,
        "has " + std::to_string(file.size()) + " of " + std::to_string(sizeof(status)) + " bytes",
        file.size());
  }
  status = load<ProbeStatus>(file.data());
  if (status.version != expected.version || status.size_bytes != expected.size_bytes) {
    return fail(Errc::Unsupported, "is a status page of version " + std::to_string(status.version),
                offsetof(ProbeStatus, version));
  }
  return status;
}

uint64_t tensors_lost(const ProbeCounters& counters) {
  const uint64_t settled =
      counters.tensors_written + counters.tensors_linked + counters.tensors_failed;
  return counters.tensors_accepted - std::min(settled, counters.tensors_accepted);
}

std::optional<OperationsThatRan> parse_operations_note(std::string_view note) {
  if (!note.starts_with(kOperationsNote)) return std::nullopt;
  const auto words = [](std::string_view list) {
    std::vector<std::string> found;
    for (std::string_view word : split(list, ',')) {
      if (word.starts_with(' ')) word.remove_prefix(1);
      if (!word.empty()) found.emplace_back(word);
    }
    return found;
  };
  note.remove_prefix(kOperationsNote.size());
  const size_t middle = std::min(note.find(kOperationsNoteIds), note.size());
  const size_t ids = std::min(middle + kOperationsNoteIds.size(), note.size());
  return OperationsThatRan{words(note.substr(0, middle)), words(note.substr(ids))};
}

bool is_skipped_tensor_note(std::string_view note) { return note.starts_with("a tensor "); }

std::string probe_summary_json(const ProbeStatus& status, bool complete,
                               std::optional<int64_t> ended) {
  JsonObject json;
  json.add("format", "assay-probe-summary").add("version", 1);
  json.add("tool", field_text(status.tool)).add("pid", status.pid);
  json.add("program", field_text(status.program)).add("started", utc_text(status.started));
  json.add_json("ended", ended ? json_quote(utc_text(*ended)) : "null").add("complete", complete);
  add_counters(status.counters, &json);
  const double waited_ms = static_cast<double>(status.counters.waited_us) / 1000;
  json.add_json("waited_ms", json_number(waited_ms));
  json.add("first_error", field_text(status.first_error));
  std::vector<std::string_view> notes;
  for (const auto& note : status.notes) {
    if (note[0] != '\0') notes.push_back(field_text(note));
  }
  return json.add_json("notes", json_texts(notes)).text() + "\n";
}

Result<ProbeSummary> read_probe_summary(std::string_view text) {
  const Json object = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return fail(Errc::Invalid, "is no JSON object");
  if (text_of(object, "format") != "assay-probe-summary") {
    return fail(Errc::Invalid, "its \"format\" is not \"assay-probe-summary\"");
  }
  if (!object.contains("version") || object["version"] != 1) {
    return fail(Errc::Invalid, "its \"version\" is not 1");
  }
  ProbeSummary summary;
  summary.tool = text_of(object, "tool");
  if (object.contains("pid") && object["pid"].is_number_integer()) {
    summary.pid = object["pid"].get<int64_t>();
  }
  summary.program = text_of(object, "program");
  summary.started = text_of(object, "started");
  if (object.contains("ended") && object["ended"].is_string()) {
    summary.ended = object["ended"].get<std::string>();
  }
  summary.complete = object.contains("complete") && object["complete"] == true;
  summary.counters = read_counters(object);
  summary.first_error = text_of(object, "first_error");
  summary.notes = texts_of(object, "notes");
  return summary;
}

ProbeCounters sum_of_counters(std::span<const ProbeSummary> processes) {
  ProbeCounters sum;
  for (const ProbeSummary& process : processes) {
    for (const CounterKey& entry : kCounters) sum.*entry.counter += process.counters.*entry.counter;
    sum.waited_us += process.counters.waited_us;
  }
  return sum;
}

}  // namespace assay::formats
