// SPDX-License-Identifier: Apache-2.0
// Where NaN and infinities come from.   docs/localisation.md, "Columns of the table"
#pragma once
#include <atomic>
#include <set>
#include <vector>

#include "locate/program/finding.hpp"

namespace assay::locate {

struct NanOrigins {
  std::vector<Finding> findings;  // in execution order; hard
  /// Outputs of mine with NaN or infinities that golden does not have, made from such inputs.
  std::vector<size_t> inherited;
  /// Records of those findings that have infinities and no NaN.
  std::set<size_t> only_infinite;
};

/// What somebody has seen of the values of a run, so that they are not read again.
struct SeenValues {
  const run::Run* run = nullptr;
  std::vector<bool> finite;  // by record: all of its values are finite numbers
};

/// Looks at every output of operators and modules, and at their inputs where one has NaN or
/// infinities. Statistics are enough. Where golden has no such output only NaN count: an infinity
/// may be a mask.
///
/// seen    of mine; of another run, or null: nothing
/// errors  Interrupted
[[nodiscard]] Result<NanOrigins> find_nan_origins(const run::Run& golden, const run::Run& mine,
                                                  int jobs, const std::atomic<bool>* interrupted,
                                                  const SeenValues* seen = nullptr);

}  // namespace assay::locate
