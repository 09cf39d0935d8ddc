// SPDX-License-Identifier: Apache-2.0
// Comparing as msit 8.2 did, defects included: `--compat msit`.   docs/commands/msit-llm-compare.md
#pragma once
#include "compare/compare.hpp"

namespace assay::vendor::msit {

[[nodiscard]] compare::Conventions conventions();

}  // namespace assay::vendor::msit
