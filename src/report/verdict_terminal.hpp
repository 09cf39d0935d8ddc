// SPDX-License-Identifier: Apache-2.0
// The verdict on a screen: remarks first, the sentence last.
#pragma once
#include <string>

#include "locate/verdict/locate.hpp"
#include "report/terminal.hpp"

namespace assay::report {

/// Nothing is longer than options.width except single words (paths) and a command to paste, which
/// stands on a line of its own. Ends with the sentence, and behind "cannot judge" with that
/// command.
[[nodiscard]] std::string verdict_text(const locate::Verdict& verdict,
                                       const TerminalOptions& options);

}  // namespace assay::report
