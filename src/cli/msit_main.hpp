// SPDX-License-Identifier: Apache-2.0
// The program under its old names: `msit llm compare ...`, `ait llm compare ...`.
#pragma once
#include <string_view>

namespace assay::cli {

/// True when the program was started as `msit` or `ait`, whatever the folder.
[[nodiscard]] bool is_old_name(std::string_view program);

/// Parses, logs and exits as the original did: argparse's messages with status 2, status 1 for an
/// error that the original raised, otherwise 0, whatever differs.
int msit_main(int argc, char** argv);

}  // namespace assay::cli
