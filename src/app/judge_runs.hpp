// SPDX-License-Identifier: Apache-2.0
// The verdict on two runs by path, and its page.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "app/verdict.hpp"
#include "pair/match.hpp"

namespace assay::app {

struct JudgeRequest {
  VerdictRequest verdict;
  pair::UserRules said;
  std::string html;  // path of the page; empty: none
};

struct Judged {
  locate::Verdict verdict;
  std::vector<std::string> notes;
  // Of the two runs: where they are, and what their captures say of host and versions.
  std::string golden_path, my_path;
  std::map<std::string, std::string> golden_properties, my_properties;
};

/// Opens both runs, judges, writes the page.
/// errors  of open_pair() and find_verdict(); of writing the page; Interrupted
[[nodiscard]] Result<Judged> judge_runs(const std::string& golden_path, const std::string& my_path,
                                        const JudgeRequest& request);

/// Only the page, of runs that were judged.
[[nodiscard]] Status write_verdict_page(const Judged& judged, const JudgeRequest& request);

}  // namespace assay::app
