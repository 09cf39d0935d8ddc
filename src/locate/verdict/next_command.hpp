// SPDX-License-Identifier: Apache-2.0
// The command that would tell more than the runs at hand.
#pragma once
#include <string>

#include "locate/verdict/locate.hpp"

namespace assay::locate {

/// A line that can be pasted into a shell: another capture of golden or mine, of the suspects only
/// where there are some, or measured floors. Empty when nothing that can be captured would help.
[[nodiscard]] std::string next_command(const Verdict& verdict, const run::Run& golden,
                                       const run::Run& mine);

/// Whether operators of mine, in place of modules, might change the verdict: they say nothing more
/// about runs that are damaged, of two models, or were given other inputs or steps.
[[nodiscard]] bool would_operators_tell(const Verdict& verdict);

/// The command line that the run's manifest names, quoted for a shell; empty when it names none.
[[nodiscard]] std::string program_of(const run::Run& run);

}  // namespace assay::locate
