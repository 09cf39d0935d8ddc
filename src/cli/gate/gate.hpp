// SPDX-License-Identifier: Apache-2.0
// Golden and mine captured and judged in one go.   docs/commands/gate.md
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "cli/verdict_options.hpp"

namespace assay::cli {

struct GateRequest {
  std::string first;   // a twin, a run or a fingerprint; empty: both sides are commands
  std::string golden;  // command lines
  std::string mine;
  std::string output;  // folder of the captures; empty: a temporary one
  /// Of mine: with operators from the start, else only where modules do not end with clean.
  bool operators = true;
  bool require_capture = false;
  bool show_output = false;
  JudgeRequest judge;
};

struct GateOutcome {
  int status = 0;
  std::string next;  // a command line
  /// Of programs that failed: its reason is the sentence.
  Judged judged;
  bool kept = false;                                    // the captures are there
  std::string twin;                                     // its folder; empty: none
  std::vector<std::pair<std::string, double>> seconds;  // of each phase, in order
  std::vector<std::string> program_output;              // last lines of the program that failed
};

/// errors  Usage | Interrupted | Internal | of reading the floor's file and of writing the page.
///         Everything else is an outcome: nothing can be judged.
[[nodiscard]] Result<GateOutcome> run_gate(const GateRequest& request);

}  // namespace assay::cli
