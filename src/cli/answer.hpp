// SPDX-License-Identifier: Apache-2.0
// What a command found: for a person a sentence and the command to go on with, for a program the
// same as JSON.   docs/agents.md
#pragma once
#include <string>
#include <string_view>

#include "base/json_text.hpp"

namespace assay::cli {

struct Answer {
  std::string_view command;  // "verify"
  std::string_view outcome;  // one of the command's few words: "whole"
  std::string sentence;
  std::string next;  // a command line; words in capitals are the reader's to fill in
  int exit_status = 0;
};

/// "next: COMMAND" and the end of the line; "" where nothing follows.
[[nodiscard]] std::string next_line(std::string_view command);
/// The members that every command has; it adds its own behind them.
[[nodiscard]] JsonObject answer_json(const Answer& answer);
/// Prints `text` and the next command, or with `json` that object. Returns the exit status, or that
/// of a failure to print.
int print_answer(const Answer& answer, std::string_view text, bool json, const JsonObject& object);

}  // namespace assay::cli
