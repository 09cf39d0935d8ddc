// SPDX-License-Identifier: Apache-2.0
// Looks for cheap explanations of what the first candidates have wrong.
#pragma once
#include "locate/verdict/locate.hpp"

namespace assay::locate {

/// Fills `hypothesis` of the first candidates where a stage left none: an operator's output is held
/// against its reference, a weight against golden's, a value at a module boundary against what
/// golden's program makes of mine's values.
///
/// references  of the replay, by record of mine
void add_hypotheses(const Program& golden, const Program& mine,
                    const std::map<size_t, Tensor>& references, Verdict* verdict);

}  // namespace assay::locate
