// SPDX-License-Identifier: Apache-2.0
// The records.jsonl of one rank of a native run.   docs/formats/native.md
#pragma once
#include <string>

#include "run/native_damage.hpp"
#include "run/run.hpp"

namespace assay::run {

/// Appends what the file says to run->records, run->operations, run->warnings and run->damage.
/// Long files leave an index beside them (run/records_index.hpp), from which they are read next
/// time.
///
/// folder     of the rank
/// boundary   links that lead out of it are not followed
[[nodiscard]] RecordsFacts read_records(const std::string& folder, int rank,
                                        const std::string& boundary, Run* run);

}  // namespace assay::run
