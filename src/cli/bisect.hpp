// SPDX-License-Identifier: Apache-2.0
// Two command lines in, a verdict out: captured coarsely, then finely where something is wrong.
//   docs/commands/locate.md
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "locate/verdict/locate.hpp"

namespace assay::cli {

struct BisectRequest {
  std::string golden;  // command line, split as a shell would split words
  std::string mine;
  std::string output = "locate-runs";  // folder of the runs
};

struct Bisected {
  locate::Verdict verdict;
  std::vector<std::string> notes;
};

/// Judges the runs in two folders.
using JudgeRuns =
    std::function<Result<Bisected>(const std::string& golden, const std::string& mine)>;

/// Runs golden with every operator and mine with its modules, and judges. When that is not the last
/// word, runs mine once more with the operators of the suspect modules, of all when there is no
/// suspect.
///
/// errors  Usage (no command, a folder that is taken) | Interrupted | Invalid (a program failed, or
///         nothing of it was captured)
[[nodiscard]] Result<Bisected> bisect(const BisectRequest& request, const JudgeRuns& judge);

}  // namespace assay::cli
