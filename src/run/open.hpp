// SPDX-License-Identifier: Apache-2.0
// From a path to a run.
#pragma once
#include <string>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

/// Recognises the layout and reads the list of records; reads no payload.
/// path    a run folder of any supported layout, a step or module folder inside a torch tree, or
///         one tensor file
/// errors  NotFound | Permission | Unsupported (the sentence names the layouts that were tried) |
///         Invalid
[[nodiscard]] Result<Run> open_run(const std::string& path);

}  // namespace assay::run
