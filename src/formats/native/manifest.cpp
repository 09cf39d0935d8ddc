// SPDX-License-Identifier: Apache-2.0
//   {"format":"assay-run","version":1,"tool":..,
//    "complete":..,
//    "id":..,
//    "host":{..},
//    ...
//    "seal":"digest of everything in front of the comma before it"}
#include "formats/native/manifest.hpp"

#include <charconv>
#include <iterator>

#include "base/bytes.hpp"
#include "base/json_text.hpp"
#include "formats/native/schema.hpp"

namespace assay::native {
namespace {

// to_chars and not printf: the host's locale may have a comma for a decimal point.
std::string milliseconds(double value) {
  char text[400];
  const auto end =
      std::to_chars(text, std::end(text), value, std::chars_format::fixed, /*precision=*/3);
  return {text, end.ptr};
}

std::string json_of(const ManifestStep& step) {
  return JsonObject()
      .add(key::kStep, step.step)
      .add(key::kTensors, step.tensors)
      .add(key::kRecords, step.records)
      .add(key::kBytes, step.bytes)
      .add_json(key::kWallMs, milliseconds(step.wall_ms))
      .add_json(key::kAddedMs, milliseconds(step.added_ms))
      .text();
}

std::string json_of(const ManifestFile& file) {
  return JsonObject()
      .add(key::kFile, file.name)
      .add(key::kBytes, file.bytes)
      .add(key::kEntries, file.entries)
      .add(key::kDigest, stats::digest_text(file.digest))
      .text();
}

std::string json_of(const MissedNode& missed) {
  return JsonObject()
      .add(key::kNode, missed.node)
      .add(key::kReason, missed.reason)
      .add(key::kCount, missed.count)
      .text();
}

/// Each item on a line of its own.
template <typename Item>
std::string lines_of(const std::vector<Item>& items) {
  return json_list(items, [](const Item& item) { return "\n  " + json_of(item); });
}

}  // namespace

std::string Manifest::to_json() const {
  JsonObject object;
  object.add(key::kFormat, kManifestFormat).add(key::kVersion, 1).add(key::kTool, tool);
  object.new_line().add(key::kComplete, finished && stopped.empty());
  if (!id.empty()) object.new_line().add(key::kId, id);
  object.new_line().add_json(key::kHost, host_json);
  object.new_line().add_json(key::kConfig, config_json);
  if (!engines_json.empty()) object.new_line().add_json(key::kEngines, engines_json);
  if (!joined_json.empty()) object.new_line().add_json(key::kJoined, joined_json);
  object.new_line().add(key::kStarted, started);
  object.add_json(key::kFinished, finished ? json_quote(*finished) : "null");
  object.new_line().add_json(key::kSteps, lines_of(steps));
  object.new_line().add_json(key::kFiles, lines_of(files));
  object.new_line().add_json(key::kCoverage, JsonObject()
                                                 .add(key::kPlanned, planned)
                                                 .add(key::kCaptured, captured)
                                                 .add_json(key::kMissed, lines_of(missed))
                                                 .text());
  JsonObject sink;
  sink.add(key::kQueueBytes, queue_bytes).add_json(key::kWaitedMs, milliseconds(waited_ms));
  sink.add(key::kDropped, dropped).add(key::kDroppedBytes, dropped_bytes);
  sink.add_json(key::kStopped, stopped.empty() ? "null" : json_quote(stopped));
  object.new_line().add_json(key::kSink, sink.text());
  // Last, so that it is of everything that stands before it.
  const stats::Digest seal = stats::digest_bytes(as_bytes(object.open_text()));
  return object.new_line().add(key::kSeal, stats::digest_text(seal)).text() + "\n";
}

}  // namespace assay::native
