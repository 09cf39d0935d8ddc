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
/// A golden fingerprint gets the values that the other run has, too.
///
/// golden_weights  a checkpoint with weights of a golden fingerprint; empty: none
/// errors  of open_run(), lend_weights()
[[nodiscard]] Result<RunPair> open_pair(const std::string& golden, const std::string& mine,
                                        const std::string& golden_weights = {});
/// The same for runs that are open.
[[nodiscard]] std::vector<std::string> reconcile(Run* golden, Run* mine);

}  // namespace assay::run
