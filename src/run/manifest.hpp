// SPDX-License-Identifier: Apache-2.0
// manifest.json: what a capture planned, got and missed.   Keys: docs/formats/native.md
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

/// What a manifest says of the files beside it.
struct Manifest {
  struct Step {
    int64_t step = 0;
    uint64_t tensors = 0, records = 0, bytes = 0;
    friend bool operator==(const Step&, const Step&) = default;
  };
  struct File {
    std::string name;
    uint64_t bytes = 0;
    std::string digest;
  };
  std::string path;
  bool found = false;
  bool complete = false;  // read, and the capture came to its end
  std::string id;         // of the run; empty: of an earlier version
  std::vector<Step> steps;
  std::vector<File> files;
};

/// Adds coverage and properties to the run, and what contradicts itself to its damage. Keys of other types than expected
/// are left out. errors    Invalid: no JSON object | TooLarge: nested deeper than 64
[[nodiscard]] Result<Manifest> read_manifest(const std::string& path, std::string_view text,
                                             Run* run);

/// The same for a file that may be missing. Sets coverage.complete to false and adds a warning when
/// the file cannot be used or says that the capture did not end.
[[nodiscard]] Manifest add_manifest_file(const std::string& path, Run* run);

}  // namespace assay::run
