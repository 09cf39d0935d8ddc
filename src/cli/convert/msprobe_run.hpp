// SPDX-License-Identifier: Apache-2.0
// A run as msprobe's PrecisionDebugger would have left it: docs/formats/msprobe.md
#pragma once
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::cli {

/// Writes {out}/step{n}/rank{n}/ with dump.json, construct.json, stack.json and dump_tensor_data/.
///
/// chosen    indices of records; weights go to the first call of their module
/// returns   a sentence for each record that could not be written; the others are
/// errors    Interrupted | NoSpace | Permission | Io
[[nodiscard]] Result<std::vector<std::string>> write_msprobe_run(const run::Run& run,
                                                                 const std::vector<size_t>& chosen,
                                                                 const std::string& out);

}  // namespace assay::cli
