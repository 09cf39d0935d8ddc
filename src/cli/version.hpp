// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace assay::cli {

/// "assay 0.1.0" and the end of the line.
[[nodiscard]] std::string version_text();
/// Below it what was built, of what, and where it runs: what a report of a defect needs.
[[nodiscard]] std::string long_version_text();

}  // namespace assay::cli
