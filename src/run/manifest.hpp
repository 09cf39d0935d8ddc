// SPDX-License-Identifier: Apache-2.0
// manifest.json: what a capture planned, got and missed.   Keys: docs/formats/native.md
#pragma once
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

/// Adds coverage and properties to the run. Keys of other types than expected are left out.
/// errors    Invalid: no JSON object | TooLarge: nested deeper than 64
[[nodiscard]] Status read_manifest(std::string_view text, Run* run);

/// The same for a file that may be missing. Sets coverage.complete to false and adds a warning when
/// the file cannot be used or says that the capture did not end. `added` tells whether there was a
/// file.
void add_manifest_file(const std::string& path, Run* run, bool* found);

}  // namespace assay::run
