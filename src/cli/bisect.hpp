// SPDX-License-Identifier: Apache-2.0
// Two command lines in, a verdict out: captured coarsely, then finely where something is wrong.
//   docs/commands/locate.md
#pragma once
#include <functional>
#include <string>

#include "base/result.hpp"
#include "cli/capture_side.hpp"
#include "cli/verdict_options.hpp"

namespace assay::cli {

/// Says that a program is going to be captured, and that its capture is over.
class CaptureWatcher {
 public:
  virtual ~CaptureWatcher() = default;
  virtual void begin(const SideCapture& capture) = 0;
  virtual void end(const SideCapture& /*capture*/) {}
};

struct BisectRequest {
  std::string golden;                  // command line, split as a shell would split words
  std::string golden_run = {};         // instead of a command line: a run that is there
  std::string mine;                    // command line
  std::string output = "locate-runs";  // folder of the runs
  bool mine_operators = false;         // with operators from the start
  CaptureOptions capture = {};
};

/// Judges the runs in two folders.
using JudgeRuns = std::function<Result<Judged>(const std::string& golden, const std::string& mine)>;

/// Runs golden with every operator and mine with its modules, and judges. When that is not the last
/// word, and operators would tell more, runs mine once more with its operators.
///
/// errors  Usage (no command, a folder that is taken) | Interrupted | as capture_side() | Invalid
///         (what was captured is no run that can be judged)
[[nodiscard]] Result<Judged> bisect(const BisectRequest& request, const JudgeRuns& judge,
                                    CaptureWatcher& watcher);

}  // namespace assay::cli
