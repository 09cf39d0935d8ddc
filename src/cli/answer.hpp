// SPDX-License-Identifier: Apache-2.0
// What a command found: for a person a sentence and the command to go on with, for a program the
// same as JSON.   docs/agents.md
#pragma once
#include <string>
#include <string_view>

#include "base/error.hpp"
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
/// The same in front of the members of an object, which is JSON; where both have one it is the
/// answer's.
[[nodiscard]] std::string answer_json(const Answer& answer, const std::string& object);
/// Prints `text` and the next command, or with `json` that object. Returns the exit status, or that
/// of a failure to print.
int print_answer(const Answer& answer, std::string_view text, bool json, const std::string& object);
int print_answer(const Answer& answer, std::string_view text, bool json, const JsonObject& object);

/// Behind what a failed command said on standard error: the next command there, or with `json` the
/// object on standard output. Returns the exit status.
int print_failure(const Answer& answer, bool json);

/// Of a command that failed: "error: ..." and "hint: ..." on standard error, behind them the next
/// command, or with `json` an object on standard output. Returns the exit status.
///
/// next   empty: the command's help
int report_failure(std::string_view command, const Error& error, std::string_view hint, bool json,
                   const std::string& next = {});

}  // namespace assay::cli
