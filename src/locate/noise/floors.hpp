// SPDX-License-Identifier: Apache-2.0
// Noise measured on healthy pairs, for runs whose golden is no program (levels N and S).
//   docs/localisation.md, "Measured floors"
#pragma once
#include <atomic>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "locate/program/finding.hpp"

namespace assay::locate {

/// Fewer healthy pairs than this say little about the spread: a note says so.
inline constexpr size_t kEnoughPairs = 5;
/// From here on healthy pairs differ too much among themselves for a run within their floors to be
/// called clean.
inline constexpr double kWidestThreshold = 12;
/// How much further a value may be of which only some tokens can be compared: healthy pairs
/// compared others.
inline constexpr double kPartialMargin = 2;

/// What healthy runs differ by. A file that a team can commit.   docs/formats/floor-profile.md
struct FloorProfile {
  bool statistics = false;  // S; otherwise N
  size_t pairs = 0;         // healthy pairs it was measured on
  /// N: of each component, by how much it may exceed its floor. S: one for the root of the sum of
  /// the squares of l2, mean, max and min over their floors; where runs had sketches, one for
  /// these.
  std::vector<double> thresholds;
  /// By place, "model.layers.0.mlp call 0 step 0 output": how far healthy runs are apart in each
  /// component, above 0. The largest of the pairs; the spread of what may have either sign (slope,
  /// statistics). S: without the last where a place has no sketch.
  std::map<std::string, std::vector<double>> floors;
};

/// Names of the components: relative_l2, peak, row, column, slope (N, measured.hpp); l2, mean, max,
/// min, sketch (S).
[[nodiscard]] std::span<const std::string_view> component_names(bool statistics);

/// How far components are above their floors, one for each threshold: each (N), or the root of the
/// sum of squares of the first four, and the sketch if both have one (S). Precondition: as many
/// floors as components (N), at least four of each (S).
[[nodiscard]] std::vector<double> floor_ratios(const std::vector<double>& components,
                                               const std::vector<double>& floors, bool statistics);

/// True when one of the runs has no bytes, so that only statistics can be held against each other.
[[nodiscard]] bool has_only_statistics(const run::Run& golden, const run::Run& mine);

/// golden, mine  of each healthy pair: the same model and programs, other prompts; at least 5 for a
///               verdict
/// statistics    level S, from statistics alone; tensors with bytes are reduced to theirs
/// errors        Usage (no pair; runs with nothing in common) | Interrupted
[[nodiscard]] Result<FloorProfile> measure_floors(
    const std::vector<std::pair<const run::Run*, const run::Run*>>& healthy, bool statistics,
    int jobs, const std::atomic<bool>* interrupted);
/// The file of a profile.
/// errors  Invalid (a profile that read_profile() would refuse)
[[nodiscard]] Result<std::string> profile_text(const FloorProfile& profile);
/// errors  Invalid (with the place in it) | Unsupported (a newer version)
[[nodiscard]] Result<FloorProfile> parse_profile(std::string_view text);
/// errors  of write_file_atomically() | Invalid (a profile that read_profile() would refuse)
[[nodiscard]] Status write_profile(const std::string& path, const FloorProfile& profile);
/// errors  of the file | Invalid (with the place in it) | Unsupported (a newer version) | TooLarge
[[nodiscard]] Result<FloorProfile> read_profile(const std::string& path);

struct FloorFindings {
  bool statistics = false;
  /// The first record beyond its floor, of each rank; shapes that differ; at level S weights.
  std::vector<Finding> findings;
  size_t judged = 0, judgeable = 0;  // records of mine
  std::map<std::string, size_t> unjudged;
  size_t weights = 0, weights_compared = 0;  // level S: by their statistics
  std::vector<std::string> notes;
  /// Every judged record of mine.
  struct Judgement {
    // relative L2; S: as sketches estimate it; without, what the L2 norms differ by
    double err_out = NAN;
    double floor = NAN;  // of the same
    double ratio = 0;    // of the component that is furthest beyond its floor, over that
    bool beyond = false;
  };
  std::map<size_t, Judgement> records;
};

struct FloorOptions {
  int jobs = 0;
  const std::atomic<bool>* interrupted = nullptr;
  /// Records of mine that were judged more sharply: they count as judged and are not looked at.
  const std::set<size_t>* judged_already = nullptr;
};

/// errors  Interrupted
[[nodiscard]] Result<FloorFindings> judge_by_floors(const run::Run& golden, const run::Run& mine,
                                                    const FloorProfile& profile,
                                                    const FloorOptions& options);

}  // namespace assay::locate
