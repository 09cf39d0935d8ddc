// SPDX-License-Identifier: Apache-2.0
// Which commands there are, and `assay help`.
#include "cli/commands.hpp"

#include <algorithm>
#include <memory>

#include "base/suggest.hpp"
#include "engines/engines.hpp"

namespace assay::cli {
namespace {

// In the order of the help. A row that is meant only with some words stands before the one that is
// meant otherwise.
constexpr CommandRow kCommands[] = {
    {"dump", "dd", "Runs a program and captures what its operators compute", dump_command, true,
     true},
    {"errcheck", "", "Runs a program and names the kernels that overflow", errcheck_command, true,
     true},
    {"compare", "cc", "Compare two runs or two tensor files, tensor by tensor", compare_command,
     true},
    {"locate", "", "Name the first wrong operator of a run", locate_command},
    {"fingerprint", "", "Writes what of a golden run is small enough to commit",
     fingerprint_command},
    {"gate", "", "Judge a program against golden in one go: a line for CI", gate_command, false,
     true},
    {"repeat", "", "Says whether a program computes the same bits each time", repeat_command, false,
     true},
    {"invariance", "", "Says whether a row of a batch depends on its neighbours",
     invariance_command, false, true},
    {"show", "", "Lists a run; shows one tensor's values, statistics and histogram", show_command},
    {"verify", "", "Says whether a run is as its capture left it", verify_command},
    {"part", "", "", part_command},
    {"join", "", "Makes one run of what the hosts of a job have captured", join_command},
    {"convert", "", "", older_convert_command, false, false, is_older_convert},
    {"convert", "", "", dump_convert_command, false, false, is_dump_convert},
    {"convert", "", "Writes tensors as npy, pth, safetensors, txt, csv, bin or dump files",
     convert_command},
    {"overflow", "", "Names the operators of an overflow dump that overflowed", overflow_command},
    {"doctor", "", "Says what can be captured on this machine and why something cannot",
     doctor_command},
    {"twin", "", "Writes a small random checkpoint of a model's architecture, or checks one",
     twin_command},
    {"graph", "", "Turns a topology or a graph's text into ONNX or Model Explorer files",
     graph_command},
    {"opcheck", "oo", "Recomputes captured operations in fp64 and judges their outputs",
     opcheck_command, true},
    {"logitscmp", "", "Compares the logits files of two folders", logitscmp_command, true},
    {"logitsdump", "", "Runs modeltest on bad cases and saves their logits", logitsdump_command,
     true},
    {"bcanalyze", "", "Names the cases whose verdict differs between two evaluations",
     bcanalyze_command, true},
    {"analyze", "", "The same for results with token ids", analyze_command, true},
    {"casefilter", "", "Names the cases whose text misses a limit", casefilter_command, true},
    {"completion", "", "Prints the completion of commands and options for bash, zsh or fish",
     completion_command},
    {"man", "", "Prints the manual page of a command: assay man compare | man -l -", man_command},
    {"help", "", "Explains a command: assay help compare", help_command},
};

/// What to do with a program that no capture knows: docs/guide/own-host.md in short.
HelpPage own_host_page() {
  std::string known = "PyTorch, ATB";
  for (const locate::Engine* engine : engines::all()) known += ", " + std::string(engine->name());
  return {
      .usage = "assay help own-host",
      .description =
          "assay dump captures " + known +
          ". Every other program (JAX, ONNX Runtime, "
          "NumPy, an engine of one's own) saves what it computed, in one of these ways; all "
          "commands read it then.\n",
      .groups = {{"ways",
                  {{"arrays with names",
                    "One file a tensor in a folder, or all in one npz: NODE.output, NODE.input.0, "
                    "NODE.weight, with the paths of modules as NODE (layers.0.mlp)."},
                   {"a native run",
                    "A line of JSON a tensor and a file with the bytes: 30 lines in any language, "
                    "examples/own_host.py. It holds steps, ranks, order, and operators."},
                   {"modules of PyTorch in a loop of your own",
                    "with assay.capture(model, \"mine\"): around it."}}}},
      .epilogue =
          "example:\n  numpy.savez(\"mine.npz\", **{\"layers.0.mlp.output\": y, "
          "\"layers.0.mlp.weight\": w})\n  assay compare golden.npz mine.npz\n\nMore: "
          "docs/guide/own-host.md, docs/formats/native.md"};
}

/// The page of a command or of a topic, of all when none is named.
int explain(const std::string& name) {
  if (name.empty()) return print_help(commands_page());
  if (name == kOwnHostTopic) return print_help(own_host_page());
  const CommandRow* row = find_command(name);
  if (row == nullptr) return unknown_command(name);
  return run_command(row->make(assay_caller(*row)), {"--help"});
}

}  // namespace

std::span<const CommandRow> all_commands() { return kCommands; }

const CommandRow* find_command(std::string_view name, const Words& words) {
  const auto found = std::ranges::find_if(kCommands, [&](const CommandRow& row) {
    const bool named = !name.empty() && (row.name == name || row.alias == name);
    return named && (row.is_meant == nullptr || row.is_meant(words));
  });
  return found == std::end(kCommands) ? nullptr : found;
}

Caller assay_caller(const CommandRow& row) {
  return {DumpName::Assay, "assay " + std::string(row.name)};
}

std::string own_host_command() { return "assay help " + std::string(kOwnHostTopic); }

int unknown_command(const std::string& name) {
  std::vector<std::string> known;
  for (const CommandRow& row : kCommands) known.emplace_back(row.name);
  return report_usage(unknown_word_text("command", name, known), "assay help");
}

HelpPage commands_page() {
  HelpPage page{.usage = "assay COMMAND [OPTIONS]",
                .description =
                    "assay captures what every operator of an LLM inference produced and names the "
                    "first wrong one.",
                .groups = {},
                .epilogue =
                    "example:\n  assay dump -o mine -- python run.py\n  assay compare golden/ "
                    "mine/\n\nEvery command explains itself: assay help compare"};
  for (const CommandRow& row : kCommands) {
    if (!row.summary.empty())
      page.group("commands").push_back({std::string(row.name), std::string(row.summary)});
  }
  page.group("options") = {
      {"--help, -h", "show this help message and exit"},
      {"--version, -V",
       "show the program's version and exit; with --verbose also what it is built of"}};
  return page;
}

Command help_command(const Caller& caller) {
  Command command(caller, "Explains a command.");
  const auto name = std::make_shared<std::string>();
  command.add("COMMAND", "The command, or own-host; all are listed without one", *name);
  command.example = "assay help compare";
  command.run = [name](const ParsedArguments&) { return explain(*name); };
  return command;
}

}  // namespace assay::cli
