// SPDX-License-Identifier: Apache-2.0
// Floors for a fingerprint: what healthy runs differ by from the rounded statistics that it holds.
#pragma once
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace assay::locate {

/// The text of a floor profile, of statistics. The golden run of each pair counts as its
/// fingerprint has it, so that what is lost there is part of the floors.
///
/// pairs   paths of golden, mine
/// errors  of opening the runs, of fingerprints, of measure_floors()
[[nodiscard]] Result<std::string> measure_fingerprint_floors(
    const std::vector<std::pair<std::string, std::string>>& pairs, int jobs,
    const std::atomic<bool>* interrupted);

}  // namespace assay::locate
