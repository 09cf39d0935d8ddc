// SPDX-License-Identifier: Apache-2.0
// Parses, dispatches to one cmd_*.cpp, returns its exit status.
#include "cli/assay_main.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.hpp"
#include "cli/convert/cmd_overflow.hpp"
#include "cli/convert/vendor_convert.hpp"
#include "cli/dump/cmd_dump.hpp"
#include "cli/legacy_flags.hpp"
#include "cli/msit_main.hpp"
#include "cli/tools/tools.hpp"

namespace assay::cli {

int assay_main(int argc, char** argv) {
  if (argc > 0 && is_old_name(argv[0])) return msit_main(argc, argv);
  // `assay llm dump` is `assay dump`: what fingers used to the old names type.
  if (argc > 2 && std::string_view(argv[1]) == "llm") return assay_main(argc - 1, argv + 1);
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
  app.set_version_flag("--version,-V", "assay " ASSAY_VERSION);
  app.require_subcommand(1);
  app.footer(
      "Example:\n  assay dump -o mine -- python run.py\n  assay compare golden/ mine/\n\nEvery "
      "command explains itself: assay compare "
      "--help");
  int exit_status = kSame;
  app.add_subcommand("dump", "Runs a program and captures what its operators compute");
  app.add_subcommand("errcheck", "Runs a program and names the kernels that overflow");
  add_compare_command(app, exit_status);
  add_locate_command(app, exit_status);
  add_show_command(app, exit_status);
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

  if (argc <
      2) {  // what a newcomer types first deserves the help, a script still sees that nothing was asked
    std::cerr << app.help();
    return kUsageOrInput;
  }
  const std::vector<std::string> rewritten = rewrite_legacy_flags({argv + 1, argv + argc});
  // CLI11 takes the arguments in reverse order.
  std::vector<std::string> reversed(rewritten.rbegin(), rewritten.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::Success& request) {
    return app.exit(request);  // --help, --version
  } catch (const CLI::ParseError& error) {
    const auto chosen = app.get_subcommands();
    const std::string name = chosen.empty() ? "" : chosen.front()->get_name() + " ";
    return report_error(error.what(), chosen.empty()
                                          ? "assay --help lists the commands"
                                          : "assay " + name + "--help lists the options");
  }
  return exit_status;
}

}  // namespace assay::cli
