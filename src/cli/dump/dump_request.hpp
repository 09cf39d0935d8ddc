// SPDX-License-Identifier: Apache-2.0
// What a user asks of `assay dump`, `msit llm dump` and `ait llm dump`: one grammar, checked
// values. docs/commands/dump.md
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/argparse.hpp"

namespace assay::cli {

struct DumpRequest {
  DumpName name = DumpName::Assay;
  std::string exec;                  // --exec, as given
  std::vector<std::string> command;  // program and arguments; empty: nothing to do
  std::vector<std::pair<std::string, std::string>> assignments;  // in front of it, in --exec
  // complete: `onnx` has brought `model` and `op`, `stats` brought `tensor`
  std::vector<std::string> types;
  bool statistics = false;  // --statistics
  bool description_only = false;
  std::string ids;            // "2,3_1" without blanks; empty: all
  std::string range = "0,0";  // pairs "first,last,first,last", or "all"
  bool range_given = false;   // otherwise ggml's warm-up graphs do not count
  bool child = true;
  int save_time = 3;            // 0 before, 1 after, 2 both, 3 inputs before and outputs after
  int tensor_part = 2;          // 0 inputs, 1 outputs, 2 both
  std::string operation_names;  // comma list as given
  bool tiling = false;
  std::string output = "./";
  std::string device;  // comma list; empty: all
  std::string log_level = "info";
  std::optional<int64_t> seed = {};
  bool symlink = false;
  std::string config_path;
  // Ours.
  std::string host = "auto";              // auto, atb, torch, ggml
  bool strict = false;                    // of PyTorch and ATB programs: the original's layout
  bool operators = false;                 // of PyTorch programs: modules and their operators
  bool weights = false;                   // of PyTorch and ggml programs, native layout
  bool caches = false;                    // of ggml programs
  bool digest = false;                    // native layout
  std::string ranks = "all";              // of PyTorch programs: pairs as in `range`, or "all"
  std::string parallel = {};              // sizes of the job's groups: "tp=2,pp=2,dp=2"
  uint64_t node_memory = 0;               // of all ranks of a host; 0: not said
  uint64_t disk_budget = 0;               // likewise
  std::vector<std::string> modules = {};  // patterns of module paths, of names of ggml nodes
  std::vector<std::string> exclude = {};  // patterns of names of ggml nodes
  std::string probe_library;              // empty: our own
  uint64_t queue_bytes = 256ull << 20;
  bool drop_when_full = false;
  bool synchronous = false;
  bool filter_rows = false;  // of the op and kernel lists, by ids, names and range
  bool force = false;        // the run in the output folder makes way
  bool json = false;         // the summary as an object on stdout
  std::string next;          // the command that goes on; empty: our own advice
  bool require = false;      // a capture that lacks something is an exit status of its own
  bool compat_text = false;  // statistics as the original's probe printed them

  [[nodiscard]] bool has_type(std::string_view type) const;
  [[nodiscard]] bool wants_statistics() const { return has_type("stats") && has_type("tensor"); }
  [[nodiscard]] bool captures_atb() const { return host == "auto" || host == "atb"; }
  [[nodiscard]] bool captures_torch() const { return host == "auto" || host == "torch"; }
  [[nodiscard]] bool captures_ggml() const { return host == "auto" || host == "ggml"; }
};

/// The rows of `dump`, which store into `request`; it gets the defaults of the name.
[[nodiscard]] Command dump_options(const Caller& caller, DumpRequest& request);
/// --exec, and what may stand in its place behind "--".
void add_program_row(Command& command, std::string_view help, std::string& exec);

/// What the options mean together.
/// errors   Usage
[[nodiscard]] Status complete_request(const ParsedArguments& parsed, DumpRequest* request);
/// The command behind "--", which is taken as it is, or that of --exec.
/// errors   Invalid: as split_command()
[[nodiscard]] Status read_program(const ParsedArguments& parsed, DumpRequest* request);

/// Splits a command as a POSIX shell would split words: blanks separate, quotes keep together;
/// nothing is expanded.
/// errors   Invalid: an unclosed quote, or a character outside quotes that only a shell understands
[[nodiscard]] Result<std::vector<std::string>> split_command(std::string_view command);

/// What is wrong with `--exec` or `-opname`, as argparse reports it; empty when nothing is.
[[nodiscard]] std::string safe_string_problem(std::string_view text);

/// "0,2-4" -> "0,0,2,4"; "all" stays. errors  Usage
[[nodiscard]] Result<std::string> range_of_steps(std::string_view steps);
/// The same for ranks.
[[nodiscard]] Result<std::string> range_of_ranks(std::string_view ranks);
/// "0,0,2,4" -> "0,2-4", the way the PyTorch side and people write it; "" for all.
[[nodiscard]] std::string list_of_range(const std::string& range);

}  // namespace assay::cli
