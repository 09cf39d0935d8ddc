// SPDX-License-Identifier: Apache-2.0
// Readers of manifests and of what the headers of step files begin with. Lines are read into run's
// records: run/records_line.
#include <nlohmann/json.hpp>

#include "base/bytes.hpp"
#include "formats/json_fields.hpp"
#include "formats/native/manifest.hpp"
#include "formats/native/schema.hpp"
#include "formats/native/step_header.hpp"

namespace assay::native {
namespace {

using formats::count_of;
using formats::member;
using formats::objects_of;
using formats::text_of;
using Json = nlohmann::json;

/// Its last key is the digest of what stands before it; manifests of earlier versions have neither
/// that nor an id.
bool is_as_written(const Json& manifest, std::string_view text, const Manifest& said) {
  const std::string seal = text_of(manifest, key::kSeal);
  if (seal.empty()) return said.id.empty() && said.files.empty();
  const size_t end = text.rfind(",\n " + std::string(key::kSeal.first()));
  return end != std::string_view::npos &&
         stats::digest_text(stats::digest_bytes(as_bytes(text.substr(0, end)))) == seal;
}

/// {"tp": {"rank": 1, "size": 2}}; what is no place in a group is left out.
ParallelPlaces read_parallel(const Json& host) {
  ParallelPlaces places;
  const Json* parallel = member(host, key::kParallel);
  if (parallel == nullptr || !parallel->is_object()) return places;
  for (const auto& [kind, place] : parallel->items()) {
    const Json* rank = member(place, key::kRank);
    const Json* size = member(place, key::kSize);
    if (rank == nullptr || size == nullptr || !rank->is_number_integer() ||
        !size->is_number_integer())
      continue;
    const ParallelPlace read{rank->get<int64_t>(), size->get<int64_t>()};
    if (0 <= read.rank && read.rank < read.size) places.emplace(kind, read);
  }
  return places;
}

}  // namespace

std::vector<MissedNode> read_missed(const Json& object) {
  std::vector<MissedNode> missed;
  for (const Json* item : objects_of(object, key::kMissed))
    missed.push_back(
        {text_of(*item, key::kNode), text_of(*item, key::kReason), count_of(*item, key::kCount)});
  return missed;
}

Result<ReadManifest> read_manifest(std::string_view text) {
  ASSAY_TRY(const Json object, formats::parse_json_object(text));
  ReadManifest read;
  read.id = text_of(object, key::kId);
  for (const Json* step : objects_of(object, key::kSteps))
    read.steps.push_back({.step = static_cast<int64_t>(count_of(*step, key::kStep)),
                          .tensors = count_of(*step, key::kTensors),
                          .records = count_of(*step, key::kRecords),
                          .bytes = count_of(*step, key::kBytes)});
  for (const Json* file : objects_of(object, key::kFiles))
    read.files.push_back(
        {text_of(*file, key::kFile), count_of(*file, key::kBytes), count_of(*file, key::kEntries),
         stats::parse_digest(text_of(*file, key::kDigest)).value_or(stats::Digest())});
  if (const Json* coverage = member(object, key::kCoverage)) {
    read.planned = count_of(*coverage, key::kPlanned);
    read.captured = count_of(*coverage, key::kCaptured);
    read.missed = read_missed(*coverage);
  }
  if (const Json* sink = member(object, key::kSink)) {
    read.dropped = count_of(*sink, key::kDropped);
    read.stopped = text_of(*sink, key::kStopped);
  }
  if (const Json* host = member(object, key::kHost)) read.parallel = read_parallel(*host);
  const Json* complete = member(object, key::kComplete);
  read.complete = complete == nullptr || *complete != false;
  read.is_as_written = is_as_written(object, text, read);
  for (const Key& part : {key::kTool, key::kHost, key::kConfig, key::kStarted, key::kFinished}) {
    if (const Json* found = member(object, part))
      formats::flatten(*found, std::string(part.name()), &read.properties);
  }
  return read;
}

StepMetadata read_step_metadata(std::string_view header) {
  const std::string start = "{" + std::string(key::kMetadata.first());
  if (!header.starts_with(start)) return {};
  header.remove_prefix(start.size());
  const Json metadata = Json::parse(header.substr(0, header.find('}') + 1), nullptr, false);
  return {text_of(metadata, key::kRun), text_of(metadata, key::kFile),
          text_of(metadata, key::kDigest)};
}

}  // namespace assay::native
