// SPDX-License-Identifier: Apache-2.0
// The command that goes on behind a verdict.   docs/agents.md, "What comes next"
#pragma once
#include <string>

#include "locate/verdict/locate.hpp"

namespace assay::locate {

/// Sets `next` and `next_at_hand`: a line each that can be pasted into a shell, and never the
/// command that asked. Words in capitals are the reader's to fill in. In this order: what tells
/// more than the runs at hand (another capture of golden or mine, with all operators: a part of a
/// program is not judged as the program is; a checkpoint; measured floors); the tensors of the
/// operator that is wrong; what a verdict without one stands on (--why); the page.
///
/// golden, mine   as the caller named them, whichever of them is replayed
void add_next_command(const run::Run& golden, const run::Run& mine, const Asked& asked,
                      Verdict* verdict);

/// Whether operators of mine, in place of modules, might change the verdict: they say nothing more
/// about runs that are damaged, of two models, or were given other inputs or steps.
[[nodiscard]] bool would_operators_tell(const Verdict& verdict);

}  // namespace assay::locate
