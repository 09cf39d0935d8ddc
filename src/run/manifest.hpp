// SPDX-License-Identifier: Apache-2.0
// manifest.json: what a capture planned, got and missed.   Keys: docs/formats/native.md
#pragma once
#include <string>

#include "formats/native/manifest.hpp"
#include "run/run.hpp"

namespace assay::run {

/// What a manifest says of the files beside it.
struct Manifest : native::ReadManifest {
  std::string path;
  bool found = false;
  /// It says that the capture did not come to its end.
  [[nodiscard]] bool is_unfinished() const { return found && !complete; }
};

/// Adds coverage and properties of a file that may be missing to the run, and what contradicts
/// itself to its damage. Sets coverage.complete to false and adds a warning when the file cannot be
/// used or says why the capture stopped; what a capture without an end means is the caller's to say.
[[nodiscard]] Manifest add_manifest_file(const std::string& path, Run* run);

}  // namespace assay::run
