// SPDX-License-Identifier: Apache-2.0
// Noise measured on healthy pairs, for runs whose golden is no program (levels N and S).   localisation 5
#pragma once
#include "locate/finding.hpp"

namespace assay::locate {

/// The largest healthy value of each component at one place.
struct Floor {
  std::string key;                 // "model.layers.0.mlp call 0 output 0"
  std::vector<double> components;  // N: relative L2, peak. S: l2, mean, max, min
};

/// What healthy runs differ by. A file that a team can commit.   docs/formats/floor-profile.md
struct FloorProfile {
  bool statistics = false;  // S; otherwise N
  size_t pairs = 0;         // healthy pairs it was measured on
  double threshold = 0;     // T: 1.1 times the largest leave-one-out ratio (N), 8.6 (S)
  std::map<std::string, std::vector<double>> floors;  // by place
};

/// golden, mine  of each healthy pair: the same model and programs, other prompts; at least 5 for a verdict
/// errors        Usage (no pair; runs with nothing in common)
[[nodiscard]] Result<FloorProfile> measure_floors(
    const std::vector<std::pair<const run::Run*, const run::Run*>>& healthy, bool statistics,
    int jobs, const std::atomic<bool>* interrupted);
[[nodiscard]] Status write_profile(const std::string& path, const FloorProfile& profile);
/// errors  of the file | Invalid (with the place in it)
[[nodiscard]] Result<FloorProfile> read_profile(const std::string& path);

struct FloorFindings {
  std::vector<Finding> findings;  // first record beyond the floor, and the others
  size_t judged = 0, judgeable = 0;
  std::map<std::string, size_t> unjudged;
};
[[nodiscard]] Result<FloorFindings> judge_by_floors(const run::Run& golden, const run::Run& mine,
                                                    const FloorProfile& profile, int jobs,
                                                    const std::atomic<bool>* interrupted);

}  // namespace assay::locate
