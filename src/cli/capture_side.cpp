// SPDX-License-Identifier: Apache-2.0
// Makes the words of `assay dump` from a side's command line, runs it in this process and checks
// that something was captured. Names of places become plain words before the line is split.
#include "cli/capture_side.hpp"

#include <filesystem>

#include "base/atomic_file.hpp"
#include "cli/assignments.hpp"
#include "cli/commands.hpp"
#include "cli/dump/child_process.hpp"
#include "cli/dump/dump_request.hpp"
#include "cli/interrupt.hpp"
#include "engines/engines.hpp"

namespace assay::cli {
namespace {

void replace_all(std::string* text, std::string_view what, std::string_view with) {
  for (size_t at = text->find(what); at != std::string::npos; at = text->find(what, at)) {
    text->replace(at, what.size(), with);
    at += with.size();
  }
}

/// A word of plain letters for the place of that number: braces are the shell's.
std::string stand_in(size_t number) { return "ASSAY:PLACE:" + std::to_string(number) + ":"; }

std::vector<std::string> dump_words(const SideCapture& wanted, const CaptureOptions& options) {
  std::vector<std::string> words = {"-o",      wanted.folder,
                                    "--host",  options.host,
                                    "--level", wanted.operators ? "operator" : "module",
                                    "-l",      options.log_level};
  if (!options.steps.empty()) words.insert(words.end(), {"--steps", options.steps});
  if (options.require) words.emplace_back("--require");
  // With operators, too: only their records tell a buffer from a parameter, and angles of
  // positions, which are made of one, are not rounded to the type of the run under test.
  words.emplace_back("--weights");
  if (options.host != "torch") words.emplace_back("--caches");
  words.emplace_back("--");
  return words;
}

Status failed(const SideCapture& wanted, const std::string& why) {
  return fail(Errc::Invalid, "the program of " + wanted.side + " " + why + ": " + wanted.command);
}

/// A dump that captured nothing leaves nothing.
Status check_captured(const SideCapture& wanted, const CaptureOptions& options) {
  std::error_code missing;
  if (!std::filesystem::is_empty(wanted.folder, missing) && !missing) return {};
  std::string known = "PyTorch";
  for (const locate::Engine* engine : engines::all())
    if (options.host != "torch") known += " or " + std::string(engine->name());
  return fail(Errc::NotFound, "nothing was captured of " + wanted.side +
                                  "; is the program one that computes with " + known + "? " +
                                  wanted.command);
}

}  // namespace

Result<std::vector<std::string>> words_of_command(
    std::string_view side, std::string_view command,
    const std::map<std::string, std::string>& places) {
  std::string text(command);
  size_t number = 0;
  for (const auto& [name, value] : places) replace_all(&text, name, stand_in(number++));
  Result<std::vector<std::string>> words = split_command(text);
  if (!words) return fail(Errc::Usage, "--" + std::string(side) + ": " + words.error().message);
  number = 0;
  for (const auto& [name, value] : places) {
    for (std::string& word : *words) replace_all(&word, stand_in(number), value);
    ++number;
  }
  return words;
}

Status capture_side(const SideCapture& wanted, const CaptureOptions& options) {
  ASSAY_TRY(std::vector<std::string> command,
            words_of_command(wanted.side, wanted.command, options.places));
  const ScopedEnvironment environment(take_assignments(&command));
  if (command.empty()) return fail(Errc::Usage, "--" + wanted.side + " names no program to run");
  if (find_program(command[0]).empty())
    return failed(wanted, "is none, there is no file to run named " + command[0]);
  std::vector<std::string> words = dump_words(wanted, options);
  words.insert(words.end(), command.begin(), command.end());
  ASSAY_TRY_STATUS(make_directories(wanted.folder, 0750));
  const int status = run_command(dump_command({DumpName::Assay, "assay dump"}), words);
  if (status == kInterrupted || interrupted()) {
    interrupted() = true;
    return fail(Errc::Interrupted, "interrupted");
  }
  if (status == 0) return check_captured(wanted, options);
  if (options.require && status == kCannotJudge)
    return failed(wanted, "ran, but its capture lacks something");
  return failed(wanted,
                "ended with status " + std::to_string(status) + ", so its run is not one to judge");
}

}  // namespace assay::cli
