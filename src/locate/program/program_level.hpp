// SPDX-License-Identifier: Apache-2.0
// What was captured of a run.   docs/localisation.md, "What to capture"
#pragma once
#include "locate/program/program.hpp"

namespace assay::locate {

/// Sets `level` and `has_bytes` of a program whose operators and calls are complete.
void classify(Program* program);

}  // namespace assay::locate
