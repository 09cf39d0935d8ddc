// SPDX-License-Identifier: Apache-2.0
// Whether a capture whose host never came to its end holds all that it was asked for.
//   docs/formats/native.md, "manifest.json"
#pragma once
#include <string>

#include "run/manifest.hpp"
#include "run/run.hpp"

namespace assay::run {

/// True when every model of a rank has returned from every step that was asked for, and its step
/// files were closed. False where no end was asked for (all steps, a test of the host's), where a
/// model's own results were not recorded, and for folders without a tree of modules.
///
/// folder     of the rank
/// boundary   links that lead out of it are not followed
/// run        with the rank's records, whose lines are whole, and its tree
[[nodiscard]] bool has_all_requested_steps(const std::string& folder, const std::string& boundary,
                                           int rank, const Manifest& manifest, const Run& run);

}  // namespace assay::run
