// SPDX-License-Identifier: Apache-2.0
// What of a run is small enough to commit and still lets another run be judged: its program
// without values, statistics, digests, and the few values that nobody else has.
//   docs/formats/fingerprint.md
#pragma once
#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "run/run.hpp"

namespace assay::run {

/// A tensor of more bytes is kept by its digest only, unless it holds one value.
inline constexpr uint64_t kMostKeptBytes = 16384;

struct FingerprintOptions {
  std::string floors;  // JSON of a floor profile; empty: none
  bool statistics = true;
  bool program = true;
  /// Weights of golden's, by name, for a run that has neither their bytes nor their digests.
  const Run* checkpoint = nullptr;
};

struct FingerprintFile {
  std::string bytes;  // the file
  // What is in it:
  size_t steps = 0, operators = 0;
  size_t statistics = 0;  // tensors
  size_t weights = 0;     // by their digests
  size_t kept = 0;        // tensors with their values
};

/// errors  Unsupported (a run of another layout, or of an engine) | Invalid (a damaged or
///         incomplete run, one with nothing to keep) | of reading its tensors
[[nodiscard]] Result<FingerprintFile> make_fingerprint(const Run& run,
                                                       const FingerprintOptions& options);

/// Whether a file begins as a fingerprint does; false for what is no file.
[[nodiscard]] bool is_fingerprint(const std::string& path);

/// The run that a fingerprint is of, without most of its values.
///
/// path    of the file, for messages
/// errors  BadMagic (no fingerprint) | Truncated | Invalid | TooLarge | Unsupported (a later
///         version)
[[nodiscard]] Result<Run> open_fingerprint(ByteSpan file, const std::string& path);

}  // namespace assay::run
