// SPDX-License-Identifier: Apache-2.0
// Spellings of `ait llm` and `msit llm` rewritten to ours before parsing: CLI11 knows only
// one-letter short names, and early releases spelled long names with underscores.
#pragma once
#include <string>
#include <vector>

namespace assay::cli {

/// Replaces whole tokens, and the name in front of the first '=' of a token: "-gp" ->
/// "--golden-path",
/// "-ids=2_1" -> "--operation-ids=2_1", "--golden_path" -> "--golden-path". Nothing behind a "--" is
/// touched, and no other token changes. arguments    without the program's name
[[nodiscard]] std::vector<std::string> rewrite_legacy_flags(std::vector<std::string> arguments);

}  // namespace assay::cli
