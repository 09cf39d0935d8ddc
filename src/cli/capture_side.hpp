// SPDX-License-Identifier: Apache-2.0
// One side of two command lines, captured as `assay dump` does it.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace assay::cli {

/// What both sides of a pair are captured with.
struct CaptureOptions {
  std::string host = "torch";      // as --host of `assay dump`
  std::string steps = {};          // as --steps; empty: its default
  std::string log_level = "info";  // of what the capture says
  bool require = false;            // a capture that lacks something is an error
  /// What stands for a word in a command: "{twin}" -> the folder's path, whatever is in it.
  std::map<std::string, std::string> places = {};
};

struct SideCapture {
  std::string side;     // "golden", "mine"
  std::string command;  // of the user, split as a shell would split words
  std::string folder;
  bool operators = false;  // not only modules
};

/// Runs the program and captures it into a folder of its own.
///
/// errors  Usage (no command, or one that only a shell understands) | Interrupted | Invalid (there
///         is no such program, it failed, or its capture lacks something)
[[nodiscard]] Status capture_side(const SideCapture& wanted, const CaptureOptions& options);

/// The command's words with what stands for them, as capture_side() runs them.
/// errors  Usage
[[nodiscard]] Result<std::vector<std::string>> words_of_command(
    std::string_view side, std::string_view command,
    const std::map<std::string, std::string>& places);

}  // namespace assay::cli
