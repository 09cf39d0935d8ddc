// SPDX-License-Identifier: Apache-2.0
// Parses, dispatches to one cmd_*.cpp, returns its exit status.
#include "cli/assay_main.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_changes.hpp"
#include "base/suggest.hpp"
#include "base/temporary_files.hpp"
#include "cli/command.hpp"
#include "cli/convert/cmd_overflow.hpp"
#include "cli/convert/vendor_convert.hpp"
#include "cli/dump/cmd_dump.hpp"
#include "cli/help.hpp"
#include "cli/legacy_flags.hpp"
#include "cli/msit_main.hpp"
#include "cli/output.hpp"
#include "cli/tools/tools.hpp"
#include "completion_script.hpp"

namespace assay::cli {
namespace {

std::vector<std::string> names_of_commands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> names_of_options(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

/// What was wrong with the words. An unknown option goes first: what seems to be missing often follows from it.
int report_parse_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto chosen = app.get_subcommands();
  const CLI::App& command = chosen.empty() ? app : *chosen.front();
  const std::string hint = chosen.empty()
                               ? "assay --help lists the commands"
                               : "assay " + command.get_name() + " --help lists the options";
  for (const std::string& word : command.remaining()) {
    if (word.size() > 1 && word[0] == '-' && word != "--")
      return report_error(unknown_word_text("option", word, names_of_options(command)), hint);
  }
  return report_error(error.what(), hint);
}

int print_completion() {
  Output output;
  output.add(kCompletionScript);
  if (const Status written = output.finish(); !written) return report_error(written.error());
  return kSame;
}

int run_named_command(int argc, char** argv) {
  // `assay llm dump` is `assay dump`: what fingers used to the old names type.
  if (argc > 2 && std::string_view(argv[1]) == "llm") return run_named_command(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "help") {  // `assay help compare`, `assay help`
    std::vector<char*> words = {argv[0]};
    if (argc > 2) words.push_back(argv[2]);
    std::string help = "--help";
    words.push_back(help.data());
    return run_named_command(static_cast<int>(words.size()), words.data());
  }
  // These keep the original's grammar, also under our name.
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command == "dump" || command == "dd")
    return dump_main(DumpName::Assay, "assay dump", {argv + 2, argv + argc});
  if (command == "errcheck")
    return errcheck_main(DumpName::Assay, "assay errcheck", {argv + 2, argv + argc});
  if (command == "oo") return tool_main("opcheck", "assay opcheck", {argv + 2, argv + argc});
  const std::vector<std::string>& tools = tool_names();
  if (std::find(tools.begin(), tools.end(), command) != tools.end())
    return tool_main(command, "assay " + std::string(command), {argv + 2, argv + argc});
  if (command == "convert" && is_vendor_convert({argv + 2, argv + argc}))
    return vendor_convert_main("assay convert", {argv + 2, argv + argc});
  if (command == "overflow") return overflow_main("assay overflow", {argv + 2, argv + argc});
  CLI::App app{
      "assay captures what every operator of an LLM inference produced and names the first wrong "
      "one.",
      "assay"};
  app.formatter(help_formatter());
  app.set_version_flag("--version,-V", "assay " ASSAY_VERSION);
  app.require_subcommand(1);
  app.footer(
      "example:\n  assay dump -o mine -- python run.py\n  assay compare golden/ mine/\n\nEvery "
      "command explains itself: assay help compare");
  int exit_status = kSame;
  app.add_subcommand("dump", "Runs a program and captures what its operators compute");
  app.add_subcommand("errcheck", "Runs a program and names the kernels that overflow");
  add_compare_command(app, exit_status);
  add_locate_command(app, exit_status);
  add_show_command(app, exit_status);
  add_verify_command(app, exit_status);
  add_convert_command(app, exit_status);
  app.add_subcommand("overflow", "Names the operators of an overflow dump that overflowed");
  add_doctor_command(app, exit_status);
  add_graph_command(app, exit_status);
  app.add_subcommand("opcheck", "Recomputes captured operations in fp64 and judges their outputs");
  app.add_subcommand("logitscmp", "Compares the logits files of two folders");
  app.add_subcommand("logitsdump", "Runs modeltest on bad cases and saves their logits");
  app.add_subcommand("bcanalyze", "Names the cases whose verdict differs between two evaluations");
  app.add_subcommand("analyze", "The same for results with token ids");
  app.add_subcommand("casefilter", "Names the cases whose text misses a limit");
  app.add_subcommand("completion", "Prints the completion of commands and options for bash")
      ->callback([&exit_status] { exit_status = print_completion(); });
  app.add_subcommand("help", "Explains a command: assay help compare");

  if (argc <
      2) {  // what a newcomer types first deserves the help, a script still sees that nothing was asked
    std::cerr << app.help();
    return kUsageOrInput;
  }
  const std::vector<std::string> known = names_of_commands(app);
  if (!command.starts_with('-') && std::find(known.begin(), known.end(), command) == known.end())
    return report_error(unknown_word_text("command", command, known),
                        "assay --help lists the commands");
  const std::vector<std::string> rewritten = rewrite_legacy_flags({argv + 1, argv + argc});
  // CLI11 takes the arguments in reverse order.
  std::vector<std::string> reversed(rewritten.rbegin(), rewritten.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help, --version
  } catch (const CLI::ParseError& error) {
    return report_parse_error(app, error);
  }
  return exit_status;
}

/// Programs that `assay dump` and its like run write while we read; everything else reads what is finished.
bool reads_finished_files(int argc, char** argv) {
  const bool old = argc > 2 && std::string_view(argv[1]) == "llm";
  const std::string_view command = argc > 1 ? argv[old ? 2 : 1] : "";
  return command != "dump" && command != "dd" && command != "errcheck";
}

}  // namespace

int assay_main(int argc, char** argv) {
  end_process_on_changed_file(kUsageOrInput);
  remove_temporary_files_on_signals();
  if (argc > 0 && is_old_name(argv[0])) return msit_main(argc, argv);
  const ReadingScope reading;
  const int exit_status = run_named_command(argc, argv);
  if (!reads_finished_files(argc, argv)) return exit_status;
  const Status unchanged = reading.finish();
  return unchanged ? exit_status
                   : report_error(unchanged.error(), "what was said above may be wrong");
}

}  // namespace assay::cli
