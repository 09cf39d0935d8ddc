// SPDX-License-Identifier: Apache-2.0
// The order of execution for layouts that do not keep it: taken from the other run.
#pragma once

#include "run/run.hpp"

namespace assay::run {

/// Where one run does not know its order of execution and the other does, the records of the first
/// take the order of their namesakes (path, role, call, slot). The order counts as known when every
/// output has found one.
void share_execution_order(Run* golden, Run* mine);

}  // namespace assay::run
