// SPDX-License-Identifier: Apache-2.0
// Command line of Ascend/msit 8.2: msit/components/llm/msit_llm/__main__.py
// docs/commands/msit-llm-compare.md
#include "cli/msit_main.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/paths.hpp"
#include "base/text.hpp"
#include "cli/cmd_compare.hpp"
#include "cli/commands.hpp"
#include "vendor/msit/log.hpp"

namespace assay::cli {
namespace {

constexpr int kArgparseError = 2;
constexpr int kException = 1;

using MsitLog = vendor::msit::Log;
using MsitLevel = vendor::msit::Level;

void log_outcome(const CompareOutcome& outcome, const MsitLog& log) {
  const compare::Comparison& comparison = outcome.comparison;
  for (const std::string& note : outcome.notes) log.warning(note);
  for (const std::string& warning : comparison.warnings) log.warning(warning);
  for (const std::string& name : comparison.algorithms)
    log.info("Added custom comparing algorithm: " + name);
  if (outcome.two_files) {
    for (const compare::Row& row : comparison.sheets.back().rows) {
      log.info("Compared results: " + vendor::msit::metrics_text(comparison, row));
    }
    return;
  }
  const auto type_text = [](const std::string& type) { return type.empty() ? "None" : type; };
  const pair::Matching& matching = comparison.sheets.back().matching;
  const bool has_layers =
      comparison.sheets.front().graph < 0 && !comparison.weights && !comparison.named_pairs;
  if (has_layers) log.info("golden_layer_type: " + type_text(matching.golden_layer_type));
  if (has_layers && comparison.sheets.back().level == pair::Level::Api)
    log.info("my_layer_type: " + type_text(matching.mine_layer_type));
  for (const std::string& note : comparison.notes) log.info(note);
  if (const size_t filtered = comparison.counts().filtered; filtered > 0) {
    log.info(std::to_string(filtered) + " rows left out of the csv report");
  }
  for (const std::string& file : outcome.files) log.info("Saved comparing results: " + file);
}

int log_failure(const Error& error, const CompareRequest& request, const MsitLog& log) {
  if (error.code == Errc::WrongKind) {
    struct stat info{};
    const bool golden_is_file =
        ::stat(request.golden_path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
    log.error("cannot parse data path(" + (golden_is_file ? request.golden_path : request.my_path) +
              "). it is not a atb dump path or a torch dump path.");
    return kSame;
  }
  if (error.code == Errc::Unsupported && exists(error.path)) {
    log.error("cannot parse data path(" + error.path +
              "). it is not a atb dump path or a torch dump path.");
    return kSame;
  }
  log.error(error.describe());
  return error.code == Errc::NothingInCommon ? kSame : kException;
}

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

Command msit_compare_command(const Caller& caller) {
  struct Parsed {
    CompareRequest request;
    std::string log_level = "info";
  };
  const auto parsed = std::make_shared<Parsed>();
  CompareRequest& request = parsed->request;
  request.exit_zero = true;
  request.summary = false;  // scripts count on three sheets
  Command command(caller, "Compare golden data with the data under test.");
  command.require("--golden-path, -gp GOLDEN_PATH",
                  "Golden data path. It supports directory or file.", request.golden_path);
  command.require("--my-path, -mp MY_PATH", "Compared data path. It supports directory or file.",
                  request.my_path);
  command.add("--log-level, -l {debug,info,warn,warning,error,fatal,critical}",
              "Log level, default info.", parsed->log_level);
  command.add("--output, -o OUTPUT", "Data output directory, default './'.", request.output);
  command.add("--op-mapping-file, -mf OP_MAPPING_FILE", "Folder with op_mapping_file.json.",
              request.op_mapping_file);
  add_level_row(command, "Compare level; default: layer, module and api.", request.level);
  command.add("--custom-algorithms, -alg CUSTOM_ALGORITHMS ...",
              "FILE.py:FUNC, one more metric each.", request.custom_algorithms);
  command.add("--weight, -w", "Compare float weights with de-quantised ones.", request.weight);
  command.add("--stats, -st", "Compare statistics.", request.stats);
  command.add("--rank, -r RANK", "Compare only this rank.", request.rank);
  command.add("--compat {none,msit,ait-0.2}",
              "msit: values of msit 8.2, defects included; ait-0.2: its older report. Default "
              "none: corrected.",
              request.compat);
  command.example = caller.program +
                    " -gp msit_dump_G/torch_tensors/cpu_1 -mp msit_dump_M/torch_tensors/cpu_2 -o "
                    "report -cl layer";
  command.run = [parsed](const ParsedArguments&) {
    const MsitLog log(vendor::msit::level_of(parsed->log_level));
    const Result<CompareOutcome> outcome = run_comparison(parsed->request);
    if (!outcome) return log_failure(outcome.error(), parsed->request, log);
    log_outcome(*outcome, log);
    return kSame;
  };
  return command;
}

bool is_component_command(std::string_view word) {
  return word == "install" || word == "check" || word == "download" || word == "build-extra";
}

/// `msit install llm` and its neighbours: the original fetched the component; ours is there as soon
/// as the command is.
/// source   Ascend/msit: msit/components/utils/install.py
int component_main(const std::string& name, const std::vector<std::string>& words) {
  const MsitLog log(MsitLevel::Info);
  const std::string& command = words[0];
  std::vector<std::string> components;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "-f" || word == "--find-links" || word == "-d" || word == "--dest") {
      ++i;  // where to look for, or to put, what is not needed
    } else if (word == "-h" || word == "--help") {
      std::printf(
          "usage: %s %s [llm|all]\n\nThe component llm is part of this program; there is nothing "
          "to fetch.\n",
          name.c_str(), command.c_str());
      return kSame;
    } else if (word != "llm" && word != "all" && !word.starts_with('-')) {
      std::fprintf(stderr,
                   "usage: %s %s [llm|all]\n%s %s: error: argument comp_names: invalid choice: "
                   "'%s' (choose from 'llm', 'all')\n",
                   name.c_str(), command.c_str(), name.c_str(), command.c_str(), word.c_str());
      return kArgparseError;
    } else {
      components.push_back(word);
    }
  }
  if (command == "check") {
    log.info("msit-llm");
    log.info("  OK");
  } else if (components.empty() && command == "install") {
    log.info(
        "You can specify the components you want to install, you can select more than one, or you "
        "can use install all "
        "to install all components.");
  } else if (command == "build-extra") {
    log.info("there are no more extra dependencies to build");
  } else {
    log.info("msit-llm is part of this program and installed already");
  }
  return kSame;
}

bool is_old_name(std::string_view program) {
  return base_name(program) == "msit" || base_name(program) == "ait";
}

int msit_main(int argc, char** argv) {
  const std::string name(base_name(argv[0]));
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto is_help = [](const std::string& word) { return word == "-h" || word == "--help"; };
  const std::string usage =
      "usage: " + name +
      " llm {dump,compare,opcheck,errcheck,logitscmp,logitsdump,bcanalyze,analyze,"
      "casefilter} [options]\n";
  if (words.empty() || (words.size() >= 1 && is_help(words[0])) ||
      (words[0] == "llm" && (words.size() == 1 || is_help(words[1])))) {
    std::printf(
        "%s\ncommands:\n"
        "  llm dump (dd)       run a program and capture it: %s llm dump -o OUT --exec \"CMD\"\n"
        "  llm compare (cc)    compare two dumps: %s llm compare -gp GOLDEN -mp MINE -o OUT\n"
        "  llm opcheck (oo)    recompute dumped operations: %s llm opcheck -i DIR -o OUT\n"
        "  llm errcheck        name the kernels that overflow: %s llm errcheck -o OUT --exec "
        "\"CMD\"\n"
        "  llm logitscmp, logitsdump, bcanalyze, analyze, casefilter\n"
        "                      bad cases of an evaluation and their logits\n",
        usage.c_str(), name.c_str(), name.c_str(), name.c_str(), name.c_str());
    return kSame;
  }
  if (is_component_command(words[0])) return component_main(name, words);
  if (words[0] != "llm") {
    std::fprintf(stderr,
                 "%s%s: error: argument command: invalid choice: '%s' (choose from 'llm')\n",
                 usage.c_str(), name.c_str(), words[0].c_str());
    return kArgparseError;
  }
  const Words options(words.begin() + 2, words.end());
  const CommandRow* row = find_command(words[1], options);
  if (row != nullptr && row->is_old) {
    const DumpName caller = name == "ait" ? DumpName::Ait : DumpName::Msit;
    return run_command(row->make({caller, name + " llm " + std::string(row->name)}), options);
  }
  if (words[1] == "transform") {
    std::fprintf(stderr, "%s llm transform: error: not available yet\n", name.c_str());
    return kArgparseError;
  }
  std::fprintf(stderr,
               "%s%s llm: error: argument command: invalid choice: '%s' (choose from 'dump', 'dd', "
               "'compare', 'cc', 'opcheck', 'oo', 'errcheck')\n",
               usage.c_str(), name.c_str(), words[1].c_str());
  return kArgparseError;
}

}  // namespace assay::cli
