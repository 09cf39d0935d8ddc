// SPDX-License-Identifier: Apache-2.0
// A golden run's fingerprint, written with its floors.   docs/commands/fingerprint.md
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

#include "app/verdict.hpp"
#include "base/result.hpp"
#include "run/fingerprint/fingerprint.hpp"

namespace assay::app {

struct FingerprintRequest {
  std::string run;         // path of the golden run
  std::string output;      // the file
  std::string weights;     // a checkpoint, for a run without weights; empty: none
  FloorRuns floor_runs;    // noise is measured on them and kept; an empty golden: `run`
  std::string floor_file;  // a kept profile of statistics, instead
  bool statistics = true;  // of what modules return
  bool program = true;     // the operators
  uint64_t most = 0;       // bytes that the file may have; 0: any number
  int jobs = 0;
  const std::atomic<bool>* interrupted = nullptr;
};

struct WrittenFingerprint {
  run::FingerprintFile file;
  bool has_floors = false;
  std::string program;  // golden's command line; empty: not known
};

/// errors  Usage (floors of both kinds, or of values) | TooLarge (with what to leave out) | of
///         reading the run, the checkpoint and the floors; of writing
[[nodiscard]] Result<WrittenFingerprint> write_fingerprint(const FingerprintRequest& request);

}  // namespace assay::app
