// SPDX-License-Identifier: Apache-2.0
// The verdict as JSON: msit_cmp_first_bad_{ts}.json, `assay locate --json`.
//   docs/commands/locate.md
#pragma once
#include <string>

#include "locate/verdict/locate.hpp"

namespace assay::report {

/// One object, indented, keys in the order of the document. Numbers that are not known are null,
/// infinite ones "Infinity".
[[nodiscard]] std::string verdict_json(const locate::Verdict& verdict);

}  // namespace assay::report
