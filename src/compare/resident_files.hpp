// SPDX-License-Identifier: Apache-2.0
// Keeps the resident part of captured files small while all of them are read.
#pragma once
#include <memory>
#include <vector>

#include "compare/resident.hpp"
#include "run/container.hpp"

namespace assay::compare {

/// Holds the larger files of runs open and gives their pages back to the page cache when they
/// exceed a limit. A page that is needed again costs a minor fault, so only speed can suffer.
class ResidentFiles {
 public:
  explicit ResidentFiles(uint64_t max_bytes) : limit_(max_bytes) {}
  /// Files that cannot be opened are left to those who read them.
  void add(const run::Run& run);

 private:
  // Ranges end before their files are unmapped, and the thread that looks at them before both.
  std::vector<std::shared_ptr<const run::Container>> files_;
  ResidentLimit limit_;
  std::vector<ResidentLimit::Watch> ranges_;
};

}  // namespace assay::compare
