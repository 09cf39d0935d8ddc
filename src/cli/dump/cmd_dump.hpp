// SPDX-License-Identifier: Apache-2.0
// `assay dump`, `msit llm dump`, `ait llm dump`; and `errcheck`, which runs a program the same way.
// docs/commands/dump.md, docs/commands/errcheck.md
#pragma once
#include <string>
#include <vector>

#include "cli/dump/dump_request.hpp"

namespace assay::cli {

/// Parses, checks, runs the program, makes tables and graphs of what it left, says what was captured.
/// program   how usage calls it: "assay dump", "msit llm dump"
/// returns   the program's exit status (128 + signal); 1 when it was not run; 2 for wrong options
int dump_main(DumpName name, const std::string& program, const std::vector<std::string>& words);

/// The same for the overflow check. Under our own name 1 when an overflow was found and the program ended with 0.
int errcheck_main(DumpName name, const std::string& program, const std::vector<std::string>& words);

}  // namespace assay::cli
