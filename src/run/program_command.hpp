// SPDX-License-Identifier: Apache-2.0
// How a run's program was started, as lines that start it again.   Keys: docs/formats/native.md
#pragma once
#include <string>
#include <vector>

#include "run/run.hpp"

namespace assay::run {

/// The command line that the run's manifest names, quoted for a shell, with what gives it back the
/// folder and the variables that it had where these are others now; empty when it names none.
/// Words in capitals are the reader's to fill in.
[[nodiscard]] std::string program_of(const Run& run);

/// Where two runs were captured of other numbers of processes or of other models, one sentence each;
/// of other command lines, too, when `commands`.
[[nodiscard]] std::vector<std::string> program_differences(const Run& golden, const Run& mine,
                                                           bool commands);

/// The same behind "assay dump OPTIONS --", under the launcher that it was captured under.
[[nodiscard]] std::string dump_command(const Run& run, const std::string& options);

}  // namespace assay::run
