// SPDX-License-Identifier: Apache-2.0
// Whether the files of one rank of a native run belong together and are whole.
//   docs/formats/native.md
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/mapped_file.hpp"
#include "base/result.hpp"
#include "formats/native/step_header.hpp"
#include "run/manifest.hpp"
#include "run/run.hpp"
#include "stats/digest.hpp"

namespace assay::run {

/// What was met in the records.jsonl of one rank.
struct RecordsFacts {
  std::string path;
  std::string run_id;  // of the first line; empty: it names none
  uint64_t lines = 0;
  std::optional<MappedFile> file;
  std::optional<stats::Digest> digest;  // of the whole file; of long ones only, whose index asks
  std::map<int64_t, native::ManifestStep> steps;  // steps of weights left out
  /// Lines whose payload is a part of another one's and was not stored again, as views in a graph
  /// are: the bytes of a step are not the sum of its lines then.
  bool has_views = false;
};

/// The start of a step file: what its header says of the file as a whole.
struct StepFileHead : native::StepMetadata {
  uint64_t header_bytes = 0;
  uint64_t file_bytes = 0;
};
/// errors  of the operating system, with the path
[[nodiscard]] Result<StepFileHead> read_step_file_head(const std::string& path);

/// Appends to run->damage what manifest, records and step files of a rank's folder contradict each
/// other in. Of a capture that did not end only what does not depend on its end is looked at.
/// boundary   links that lead out of it are not followed
void find_native_damage(const std::string& folder, const std::string& boundary,
                        const Manifest& manifest, const RecordsFacts& records, Run* run);

}  // namespace assay::run
