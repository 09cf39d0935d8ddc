// SPDX-License-Identifier: Apache-2.0
// What every command shares: how it is added to the program and how it speaks when it fails.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace assay::cli {

/// Exit statuses, the same for every command; docs/commands/assay.md.
inline constexpr int kSame = 0;          // same, or nothing was asked
inline constexpr int kDiffers = 1;       // differs beyond the limits
inline constexpr int kUsageOrInput = 2;  // wrong options, unreadable or malformed input
inline constexpr int kOurFault = 3;
inline constexpr int kCannotJudge = 125;  // not comparable as a whole; what git bisect skips

/// Prints "<kind>: <sentence>" to stderr. What comes from files is made printable here and nowhere
/// else.
void say(std::string_view kind, std::string_view sentence);
/// Writes a result to stdout. Returns `exit_status`, or that of the failure.
int print_result(std::string_view text, int exit_status);
/// Prints "error: <sentence>" and, when not empty, "hint: <sentence>" to stderr. Returns
/// kUsageOrInput.
int report_error(std::string_view message, std::string_view hint = {});
/// The same, and the command to go on with: "next: assay help show".
int report_usage(std::string_view message, std::string_view next);
/// The same for an Error of the library, with path and offset; Errc::Internal returns kOurFault.
int report_error(const Error& error, std::string_view hint = {});

/// Before anything runs: whether a page can be written to --html FILE; an empty path asks for none.
/// errors  Usage
[[nodiscard]] Status check_page_path(const std::string& path);

/// A variable of the environment; empty when it is not set.
[[nodiscard]] std::string environment(const char* variable);

/// True when the stream is a terminal and NO_COLOR is not set.
[[nodiscard]] bool use_colour(int fd);
/// Columns of the terminal behind `fd`; nothing when it is none, as a file or a pipe.
[[nodiscard]] std::optional<int> terminal_columns(int fd);
/// The same, and 80 for a file or a pipe.
[[nodiscard]] int terminal_width(int fd);
/// True when block characters can be shown: UTF-8 by LC_ALL, LC_CTYPE or LANG, the first that is
/// set, and no dumb terminal.
[[nodiscard]] bool use_blocks();

}  // namespace assay::cli
