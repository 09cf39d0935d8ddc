// SPDX-License-Identifier: Apache-2.0
// Two runs that are to be held against each other.
#pragma once
#include "run/run.hpp"

namespace assay::run {

struct RunPair {
  Run golden;
  Run mine;
  std::vector<std::string> notes;  // what was renamed, one sentence each
};

/// Opens both, with common names and, where only one knows it, a common order of execution.
/// errors  of open_run()
[[nodiscard]] Result<RunPair> open_pair(const std::string& golden, const std::string& mine);
/// The same for runs that are open.
[[nodiscard]] std::vector<std::string> reconcile(Run* golden, Run* mine);

}  // namespace assay::run
