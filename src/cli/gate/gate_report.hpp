// SPDX-License-Identifier: Apache-2.0
// A gate's outcome for a person, a program, GitHub's workflow or a reader of JUnit's files.
//   docs/commands/gate.md
#pragma once
#include <string>

#include "cli/gate/gate.hpp"

namespace assay::cli {

/// The sentence, and behind it the command.
[[nodiscard]] std::string gate_text(const GateRequest& request, const GateOutcome& outcome);
/// The verdict's JSON with a key `gate` behind it.
[[nodiscard]] std::string gate_json(const GateRequest& request, const GateOutcome& outcome);
/// A workflow command (::error, ::warning, ::notice) with the module's line of source, where that
/// is in `workspace`; the command that goes on behind it.
[[nodiscard]] std::string gate_github(const GateOutcome& outcome, const std::string& workspace);
/// One suite with one test case.
[[nodiscard]] std::string gate_junit(const GateRequest& request, const GateOutcome& outcome);

}  // namespace assay::cli
