// SPDX-License-Identifier: Apache-2.0
// Two runs that are to be held against each other.
#pragma once
#include "run/parallel_groups.hpp"
#include "run/run.hpp"

namespace assay::run {

struct RunPair {
  Run golden;
  Run mine;
  std::vector<std::string> notes;  // what was renamed, one sentence each
};

/// Whether records that mean the same get the same names.
enum class Names : uint8_t { Common, AsTheyAre };

/// Opens both, with common names and, where only one knows it, a common order of execution.
/// A golden fingerprint gets the values that the other run has, too.
///
/// golden_weights  a checkpoint with weights of a golden fingerprint; empty: none
/// parallel        the groups of mine's job, in place of what its manifests say; empty: those
/// errors  of open_run(), lend_weights(); Usage (a rank beyond the job)
[[nodiscard]] Result<RunPair> open_pair(const std::string& golden, const std::string& mine,
                                        const std::string& golden_weights = {},
                                        const ParallelSizes& parallel = {},
                                        Names names = Names::Common);
/// The same for runs that are open.
[[nodiscard]] std::vector<std::string> reconcile(Run* golden, Run* mine);

}  // namespace assay::run
