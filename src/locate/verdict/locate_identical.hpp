// SPDX-License-Identifier: Apache-2.0
// Runs that are equal bit for bit need no reference.
#pragma once
#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::locate {

struct IdenticalValues {
  size_t values = 0;     // outputs of mine, each with golden's type, shape and bits; 0: one is not
  size_t uncovered = 0;  // outputs of golden that were not captured of mine
  std::string first_uncovered;  // "lm_head, step 3"
};

/// Holds every output of mine against golden's of the same name. Stops at the first difference;
/// records without bytes and digest count as different.
[[nodiscard]] IdenticalValues find_identical_values(const run::Run& golden, const run::Run& mine);

}  // namespace assay::locate
