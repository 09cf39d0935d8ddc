// SPDX-License-Identifier: Apache-2.0
// manifest.json of a native run: what was planned, captured and missed, and what it cost. Keys:
// docs/formats/native.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "stats/digest.hpp"
#include "writer/async_writer.hpp"

namespace assay::writer {

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
  std::string
      stopped;  // why nothing more was written, so that it is not complete; empty: it went on to the end

  [[nodiscard]] std::string to_json() const;
};

/// The time now as "2026-01-01T00:00:00Z".
[[nodiscard]] std::string utc_now();

/// 32 hexadecimal digits that no other run has.
[[nodiscard]] std::string new_run_id();

/// Which run the process belongs to that is about to capture beside the manifest `path`.
struct RunClaim {
  std::string id;
  bool is_first =
      false;  // the manifest was made here, with a new id; another process's is left as it is
};
/// All processes that capture into one folder are of one run: the first one's manifest names it. Those on hosts that share
/// no folder are when ASSAY_RUN_ID gives them the same 32 hexadecimal digits.
/// errors  of create_file_atomically()
[[nodiscard]] Result<RunClaim> claim_run(const std::string& path, Manifest manifest);

/// False when there is one already.
/// errors  of create_file_atomically()
[[nodiscard]] Result<bool> create_manifest(const std::string& path, const Manifest& manifest);
/// errors  of write_file_atomically()
[[nodiscard]] Status write_manifest(const std::string& path, const Manifest& manifest);

}  // namespace assay::writer
