// SPDX-License-Identifier: Apache-2.0
// Runs that are equal bit for bit need no reference.
#pragma once
#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::locate {

/// Number of outputs of mine when each has a partner of the same name in golden with the same type, shape and bits;
/// 0 otherwise. Stops at the first difference; records without bytes and digest count as different.
[[nodiscard]] size_t identical_values(const run::Run& golden, const run::Run& mine);

}  // namespace assay::locate
