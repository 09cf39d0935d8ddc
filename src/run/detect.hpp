// SPDX-License-Identifier: Apache-2.0
// Which layout does a path hold? One line here for each reader in sources/.
#pragma once
#include <string>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

/// Offers the path to every source in turn and reads it with the first that recognises it.
/// errors    of open_run()
[[nodiscard]] Result<Run> detect_and_read(const std::string& path);

}  // namespace assay::run
