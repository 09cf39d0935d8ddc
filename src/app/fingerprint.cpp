// SPDX-License-Identifier: Apache-2.0
// Reads the run, its floors and its weights. A file that would be too large is not written; it is
// made once more without statistics to say how large that would be.
#include "app/fingerprint.hpp"

#include <optional>

#include "base/atomic_file.hpp"
#include "base/text.hpp"
#include "locate/noise/fingerprint_floors.hpp"
#include "run/lend.hpp"
#include "run/open.hpp"
#include "run/program_command.hpp"

namespace assay::app {
namespace {

Result<std::string> floors_of(const FingerprintRequest& request) {
  if (!request.floor_file.empty()) {
    ASSAY_TRY(const locate::FloorProfile profile, locate::read_profile(request.floor_file));
    if (!profile.statistics)
      return fail(Errc::Usage, request.floor_file +
                                   ": floors of values (level N); a fingerprint is judged by its "
                                   "statistics, whose floors --floor-run measures");
    return locate::profile_text(profile);
  }
  if (request.floor_runs.empty()) return std::string();
  FloorRuns runs = request.floor_runs;
  for (auto& [golden, mine] : runs)
    if (golden.empty()) golden = request.run;
  return locate::measure_fingerprint_floors(runs, request.jobs, request.interrupted);
}

/// What to leave out of a file that is too large.
Error too_large(const FingerprintRequest& request, const run::Run& run,
                run::FingerprintOptions options, size_t bytes) {
  std::string sentence = request.output + " would have " + human_bytes(bytes) +
                         ", more than --most " + human_bytes(request.most) +
                         ": capture fewer steps or shorter prompts";
  if (options.statistics && options.program) {
    options.statistics = false;
    const Result<run::FingerprintFile> smaller = run::make_fingerprint(run, options);
    if (smaller)
      sentence +=
          ", or leave out what only a judgement without weights needs: with --without "
          "statistics it would have " +
          human_bytes(smaller->bytes.size());
  }
  return {Errc::TooLarge, {}, std::nullopt, sentence};
}

}  // namespace

Result<WrittenFingerprint> write_fingerprint(const FingerprintRequest& request) {
  if (!request.floor_file.empty() && !request.floor_runs.empty())
    return fail(Errc::Usage, "--floor and --floor-run exclude each other");
  ASSAY_TRY(const run::Run run, run::open_run(request.run));
  ASSAY_TRY(const std::string floors, floors_of(request));
  std::optional<run::Run> checkpoint;
  if (!request.weights.empty()) {
    ASSAY_TRY(checkpoint, run::open_weights(request.weights));
  }
  const run::FingerprintOptions options{.floors = floors,
                                        .statistics = request.statistics,
                                        .program = request.program,
                                        .checkpoint = checkpoint ? &*checkpoint : nullptr};
  ASSAY_TRY(run::FingerprintFile file, run::make_fingerprint(run, options));
  if (request.most > 0 && file.bytes.size() > request.most)
    return fail(too_large(request, run, options, file.bytes.size()));
  ASSAY_TRY_STATUS(write_file_atomically(request.output, as_bytes(file.bytes)));
  return WrittenFingerprint{std::move(file), !floors.empty(), run::program_of(run)};
}

}  // namespace assay::app
