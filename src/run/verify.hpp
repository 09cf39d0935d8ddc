// SPDX-License-Identifier: Apache-2.0
// Reads everything of a run and says what is not as its capture left it.   docs/commands/verify.md
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

struct VerifyOptions {
  int jobs = 0;  // <= 0: one a core
  std::function<void(size_t done, size_t total)> progress;
  const std::atomic<bool>* interrupted = nullptr;
};

struct Verification {
  std::vector<Damage> damage;  // of the reader first, then by file
  uint64_t payloads = 0;       // distinct ones that were read
  uint64_t bytes = 0;          // of them
  uint64_t digests = 0;        // files that were held against a digest
};

/// Of every layout: each tensor's file opens and has what the record says. Of a native run also:
/// values against the statistics or digests of their records, files against their digests, headers
/// against the records.
/// errors  Interrupted
[[nodiscard]] Result<Verification> verify_run(const Run& run, const VerifyOptions& options = {});

}  // namespace assay::run
