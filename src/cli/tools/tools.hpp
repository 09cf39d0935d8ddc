// SPDX-License-Identifier: Apache-2.0
// The original's small tools around a comparison: logitscmp, logitsdump, bcanalyze, analyze,
// casefilter; and opcheck, whose grammar is the original's, too.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace assay::cli {

/// Names of the tools, as the commands are called.
[[nodiscard]] const std::vector<std::string>& tool_names();

/// Runs one of them with the original's grammar (argparse).
/// program   for messages: "msit llm logitscmp", "assay logitscmp"
/// returns   the exit status
[[nodiscard]] int tool_main(std::string_view tool, const std::string& program,
                            const std::vector<std::string>& words);

}  // namespace assay::cli
