// SPDX-License-Identifier: Apache-2.0
// manifest.json of a native run: what was planned, captured and missed, and what it cost. Keys:
// docs/formats/native.md
#pragma once
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "stats/digest.hpp"

namespace assay::native {

struct ManifestStep {
  int64_t step = 0;
  uint64_t tensors = 0;  // records of kind tensor
  uint64_t records = 0;
  uint64_t bytes = 0;   // payload bytes stored, each distinct payload once
  double wall_ms = 0;   // the root call, capture included
  double added_ms = 0;  // of it spent in the capture
};

/// A file of the rank's folder as its last byte left it.
struct ManifestFile {
  std::string name;      // "step-000000.safetensors", "records.jsonl"
  uint64_t bytes = 0;    // size of the file
  uint64_t entries = 0;  // tensors, or lines
  stats::Digest digest;  // of the payload behind the header; of the whole of records.jsonl
};

struct MissedNode {
  std::string node;
  std::string reason;
  uint64_t count = 0;
};

struct Manifest {
  std::string id;            // of the run, 32 hexadecimal digits; empty: none
  std::string tool;          // "assay 0.1.0"
  std::string host_json;     // an object, as the host's side describes itself
  std::string config_json;   // an object
  std::string engines_json;  // a list: the libraries that computed; empty: not said
  std::string joined_json;   // an object: the ranks and hosts of a joined run; empty: it is none
  std::string started;       // ISO 8601, UTC
  std::optional<std::string> finished;
  std::vector<ManifestStep> steps;
  std::vector<ManifestFile> files;
  uint64_t planned = 0;
  uint64_t captured = 0;
  std::vector<MissedNode> missed;
  uint64_t queue_bytes = 0;
  double waited_ms = 0;
  uint64_t dropped = 0;
  uint64_t dropped_bytes = 0;
  /// Why nothing more was written, so that it is not complete; empty: it went on to the end.
  std::string stopped;

  [[nodiscard]] std::string to_json() const;
};

/// The place of a rank in one of its parallel groups.
struct ParallelPlace {
  int64_t rank = 0;
  int64_t size = 1;
  friend bool operator==(const ParallelPlace&, const ParallelPlace&) = default;
};
/// By kind of group: "tp" "pp" "dp" "ep" "cp".
using ParallelPlaces = std::map<std::string, ParallelPlace>;

/// What a manifest says. Members of other types than expected are left out.
struct ReadManifest : Manifest {
  bool complete = false;       // the capture came to its end, or it does not say
  bool is_as_written = false;  // its seal is that of its text; earlier versions have none
  ParallelPlaces parallel;     // of the rank, where its capture knew them
  /// "tool", "host.torch", "config.steps" ...: for people.
  std::map<std::string, std::string> properties;
};
/// errors  Invalid: no JSON object | TooLarge: nested deeper than 64
[[nodiscard]] Result<ReadManifest> read_manifest(std::string_view text);

/// The list `missed` of an object.
[[nodiscard]] std::vector<MissedNode> read_missed(const nlohmann::json& object);

}  // namespace assay::native
