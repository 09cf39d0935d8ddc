// SPDX-License-Identifier: Apache-2.0
// What `assay compare` and `msit llm compare` share: one request, one run.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "cli/pair_options.hpp"
#include "cli/ray.hpp"
#include "cli/verdict_options.hpp"
#include "compare/dispatch.hpp"

namespace assay::cli {

/// What the options of the command ask for; docs/commands/compare.md.
struct CompareRequest {
  std::string golden_path;
  std::string my_path;
  compare::LevelChoice level = compare::LevelChoice::Default;
  std::string output = "./";
  bool output_given = false;
  bool stats = false;
  std::string rank;  // digits, or empty
  std::string compat = "none";

  compare::Limits limits;
  pair::UserRules user;
  std::vector<std::string> allow_unmatched;
  bool unmatched = false;
  bool summary = true;
  bool jsonl = false;
  bool json = false;  // what was found as one object on standard output
  std::string html;   // path of the page; empty: none
  std::vector<std::string>
      details;  // shell patterns: rows of which the page says where they differ
  int jobs = 0;
  uint64_t max_memory = 0;  // of file pages; 0: the library's own
  bool allow_pickle = false;
  bool exit_zero = false;

  RayRequest ray;

  std::vector<std::string> custom_algorithms;
  std::string op_mapping_file;
  bool weight = false;

  bool judge = false;    // name the first wrong operator
  bool verdict = false;  // --verdict: its columns, its file and its exit status, too
  VerdictRequest verdict_options;
};

/// What a comparison gave, before anybody prints it.
struct CompareOutcome {
  run::Run golden, mine;
  compare::Comparison comparison;
  std::vector<std::string> files;  // written reports
  std::vector<std::string> notes;  // for the user, one sentence each
  bool two_files = false;          // golden and mine are one tensor file each
  std::optional<locate::Verdict> verdict;
  bool verdict_stopped = false;  // by the user; there is none
  /// "same" "differs" "nothing_compared" "within_limits" "beyond_limits" "not_comparable"; with
  /// --verdict that of the verdict where it decides the status.
  std::string_view word;
  int exit_status = 0;
};

/// Opens, compares, writes the reports. Prints nothing but the progress bar.
/// errors  of the options (Usage), of the runs, of writing; Interrupted
[[nodiscard]] Result<CompareOutcome> run_comparison(const CompareRequest& request);

/// --cmp-level of both.
void add_level_row(Command& command, std::string_view help, compare::LevelChoice& level);

/// "512MiB", "2G", "1000000" -> bytes. errors  Usage
[[nodiscard]] Result<uint64_t> parse_bytes(std::string_view text);

}  // namespace assay::cli
