// SPDX-License-Identifier: Apache-2.0
// The parallel groups of a job, as a user tells them: "tp=8,pp=4,dp=2".
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "formats/native/manifest.hpp"

namespace assay::run {

/// Sizes of the groups of a job, the fastest first: neighbours in the first are neighbouring ranks.
struct ParallelSizes {
  struct Group {
    std::string kind;  // "tp" "pp" "dp" "ep" "cp"
    int64_t size = 1;
  };
  std::vector<Group> groups;
  std::string text;  // as it was told

  [[nodiscard]] bool empty() const { return groups.empty(); }
  /// Of all ranks.
  [[nodiscard]] int64_t job_size() const;
  /// Groups of one rank are left out.
  [[nodiscard]] native::ParallelPlaces places_of(int rank) const;
};

/// The same words as parse_parallel() of python/assay/_parallel.py takes: "tensor=8" is "tp=8".
/// errors  Usage
[[nodiscard]] Result<ParallelSizes> parse_parallel(std::string_view text);

}  // namespace assay::run
