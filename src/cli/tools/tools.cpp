// SPDX-License-Identifier: Apache-2.0
// Command lines of Ascend/msit 8.2: msit/components/llm/msit_llm/__main__.py
#include "cli/tools/tools.hpp"

#include <cstdio>

#include "cli/command.hpp"
#include "cli/tools/tool_support.hpp"

namespace assay::cli {
namespace {

const std::vector<Tool>& tools() {
  static const std::vector<Tool> all = {logitscmp_tool(), logitsdump_tool(), bcanalyze_tool(),
                                        analyze_tool(),   casefilter_tool(), opcheck_tool()};
  return all;
}

DumpName name_of(const std::string& program) {
  if (program.starts_with("assay")) return DumpName::Assay;
  return program.starts_with("ait") ? DumpName::Ait : DumpName::Msit;
}

}  // namespace

const std::vector<std::string>& tool_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Tool& tool : tools()) all.emplace_back(tool.name);
    return all;
  }();
  return names;
}

int tool_main(std::string_view tool, const std::string& program,
              const std::vector<std::string>& words) {
  for (const Tool& candidate : tools()) {
    if (candidate.name != tool) continue;
    const Grammar grammar = candidate.grammar(program);
    Result<ParsedArguments> parsed = parse_arguments(grammar, words);
    const DumpName name = name_of(program);
    if (!parsed) {
      return name == DumpName::Assay
                 ? report_error(parsed.error().message, program + " --help lists the options")
                 : argparse_error(grammar, parsed.error().message);
    }
    if (parsed->given("--help")) {
      std::fputs(help_text(grammar).c_str(), stdout);
      return kSame;
    }
    const Voice voice(name, parsed->text("--log-level", "info"));
    return candidate.run({name, program, *std::move(parsed), voice});
  }
  return report_error("no such tool: " + std::string(tool));
}

}  // namespace assay::cli
