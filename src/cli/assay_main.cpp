// SPDX-License-Identifier: Apache-2.0
// Finds the command, runs it, returns its exit status.
#include "cli/assay_main.hpp"

#include "base/file_changes.hpp"
#include "base/suggest.hpp"
#include "base/temporary_files.hpp"
#include "base/text.hpp"
#include "cli/commands.hpp"
#include "cli/msit_main.hpp"
#include "cli/version.hpp"
#include "remote/remote_files.hpp"

namespace assay::cli {
namespace {

/// Words in front of any command.
int run_without_command(const Words& words) {
  const std::string word = words.empty() ? "" : words[0];
  if (word == "--help" || word == "-h") return print_help(commands_page());
  if (word == "--version" || word == "-V") {
    if (words.size() > 1 && words[1] != "--verbose")
      return report_usage(unknown_word_text("option", words[1], {"--verbose"}),
                          "assay --version --verbose");
    return print_result(words.size() > 1 ? long_version_text() : version_text(), kSame);
  }
  if (!words.empty() && !word.starts_with('-')) return unknown_command(word);
  if (!words.empty())
    return report_usage(unknown_word_text("option", word, {"--help", "--version"}), "assay help");
  // What a newcomer types first deserves the help, a script still sees that nothing was asked.
  std::fputs(help_page_text(commands_page(), help_width()).c_str(), stderr);
  return kUsageOrInput;
}

/// Programs that `assay dump` and its like run write while we read; everything else reads what is
/// finished.
int run_on_finished_files(const Command& command, const Words& words) {
  const ReadingScope reading;
  const int exit_status = run_command(command, words);
  const Status unchanged = reading.finish();
  return unchanged ? exit_status
                   : report_error(unchanged.error(), "what was said above may be wrong");
}

}  // namespace

int assay_main(int argc, char** argv) {
  end_process_on_changed_file(kUsageOrInput);
  remove_temporary_files_on_signals();
  remote::register_remote_files();
  if (const Status registered = remote::register_node_files(); !registered)
    return report_error(registered.error());
  if (argc > 0 && is_old_name(argv[0])) return msit_main(argc, argv);
  Words words(argv + std::min(argc, 1), argv + argc);
  // `assay llm dump` is `assay dump`: what fingers used to the old names type.
  if (words.size() > 1 && words[0] == "llm") words.erase(words.begin());
  const Words options(words.begin() + (words.empty() ? 0 : 1), words.end());
  const CommandRow* row = words.empty() ? nullptr : find_command(words[0], options);
  if (row == nullptr) return run_without_command(words);
  const Command command = row->make(assay_caller(*row));
  return row->runs_program ? run_command(command, options)
                           : run_on_finished_files(command, options);
}

}  // namespace assay::cli

// What the command looks up in the library (main.cpp).
extern "C" {
extern const char assay_version[];
const char assay_version[] = ASSAY_VERSION;
int assay_main(int argc, char** argv) { return assay::cli::assay_main(argc, argv); }
}
