// SPDX-License-Identifier: Apache-2.0
// Differences that undo each other in golden's own program are no fault, whatever else is wrong in
// the module around them.   docs/localisation.md, "Functions decide"
#pragma once
#include "locate/replay/scopes.hpp"

namespace assay::locate {

/// Closes what is innocent of that which no module closed: weights and arguments that, all of a
/// module put into golden's program together, leave what it returns as it was; and values that do.
void set_aside_innocent(Openings* all);

}  // namespace assay::locate
