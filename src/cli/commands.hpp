// SPDX-License-Identifier: Apache-2.0
// The table of commands. From it, and from the rows of each command, come parsing, help,
// completions and manual pages.
#pragma once
#include <span>
#include <string_view>

#include "cli/argparse.hpp"
#include "cli/command.hpp"

namespace assay::cli {

struct CommandRow {
  std::string_view name;
  std::string_view alias;    // of the old names: "dd"; or empty
  std::string_view summary;  // its line in `assay --help`; empty: not listed there
  Command (*make)(const Caller& caller);
  bool is_old = false;        // msit and ait have it, too
  bool runs_program = false;  // that writes while we read
  /// The command of that name is meant only with these words; nothing: always.
  bool (*is_meant)(const Words& words) = nullptr;
};

[[nodiscard]] std::span<const CommandRow> all_commands();
/// The command that a word names; nullptr when it names none. `words` are those behind it.
[[nodiscard]] const CommandRow* find_command(std::string_view name, const Words& words = {});
/// Our own name for it: "assay compare".
[[nodiscard]] Caller assay_caller(const CommandRow& row);
/// Says that there is no such command, and which was probably meant. Returns the exit status.
int unknown_command(const std::string& name);
/// `assay --help`
[[nodiscard]] HelpPage commands_page();

// One file each: cmd_*.cpp, convert/, dump/ and tools/.
[[nodiscard]] Command analyze_command(const Caller& caller);
[[nodiscard]] Command bcanalyze_command(const Caller& caller);
[[nodiscard]] Command casefilter_command(const Caller& caller);
[[nodiscard]] Command compare_command(const Caller& caller);
[[nodiscard]] Command completion_command(const Caller& caller);
[[nodiscard]] Command convert_command(const Caller& caller);
[[nodiscard]] Command doctor_command(const Caller& caller);
[[nodiscard]] Command dump_command(const Caller& caller);
[[nodiscard]] Command errcheck_command(const Caller& caller);
[[nodiscard]] Command fingerprint_command(const Caller& caller);
[[nodiscard]] Command gate_command(const Caller& caller);
[[nodiscard]] Command graph_command(const Caller& caller);
[[nodiscard]] Command help_command(const Caller& caller);
[[nodiscard]] Command invariance_command(const Caller& caller);
[[nodiscard]] Command join_command(const Caller& caller);
[[nodiscard]] Command locate_command(const Caller& caller);
[[nodiscard]] Command logitscmp_command(const Caller& caller);
[[nodiscard]] Command logitsdump_command(const Caller& caller);
[[nodiscard]] Command man_command(const Caller& caller);
[[nodiscard]] Command msit_compare_command(const Caller& caller);
[[nodiscard]] Command opcheck_command(const Caller& caller);
[[nodiscard]] Command overflow_command(const Caller& caller);
[[nodiscard]] Command part_command(const Caller& caller);
[[nodiscard]] Command repeat_command(const Caller& caller);
[[nodiscard]] Command show_command(const Caller& caller);
[[nodiscard]] Command twin_command(const Caller& caller);
[[nodiscard]] Command verify_command(const Caller& caller);

/// What `assay help` explains besides commands: programs that no capture knows.
inline constexpr std::string_view kOwnHostTopic = "own-host";
/// "assay help own-host"
[[nodiscard]] std::string own_host_command();

// The grammars of the original's converters, under `convert`.
[[nodiscard]] bool is_dump_convert(const Words& words);
[[nodiscard]] Command dump_convert_command(const Caller& caller);
[[nodiscard]] bool is_older_convert(const Words& words);
[[nodiscard]] Command older_convert_command(const Caller& caller);

}  // namespace assay::cli
