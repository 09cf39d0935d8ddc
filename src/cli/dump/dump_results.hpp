// SPDX-License-Identifier: Apache-2.0
// After the program's end: what its probes say they did, tables and graphs made of what they left,
// the manifest.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/dump/dump_places.hpp"
#include "cli/dump/dump_request.hpp"
#include "cli/dump/process_reports.hpp"
#include "formats/probe_status.hpp"

namespace assay::cli {

struct DumpResults {
  std::string root;                              // of the ATB dump; may not exist
  std::vector<formats::ProbeSummary> processes;  // by pid
  std::vector<TorchReport> torch;                // by pid
  std::vector<GgmlReport> ggml;                  // by file name
  std::vector<std::string> profiling_tables;     // files made of the host statistics
  std::vector<std::string> graphs;               // .onnx files
  uint64_t files_without_summary = 0;            // of a probe that does not say what it did
  std::vector<std::string> warnings;             // one sentence each: what is missing, and why
  bool is_other_host = false;                    // the program ran, with nothing that is known

  /// Anything at all.
  [[nodiscard]] bool captured_anything() const;
  /// Nothing was captured because none of the ranks here was to (--ranks).
  [[nodiscard]] bool nothing_was_asked() const;
};

/// Reads the summaries (those of dead processes from their status pages), merges the host
/// statistics, converts the reported topologies, writes manifest.json, removes the scratch folder.
/// A failed part becomes a warning; the others still happen.
[[nodiscard]] DumpResults finish_dump(const DumpRequest& request, const DumpPlaces& places,
                                      const DumpRun& run);

/// The folder that other commands open: of all ranks together where there are several; empty when
/// nothing was captured.
[[nodiscard]] std::string folder_of_run(const DumpResults& results);

/// What to do with the run: operators are checked by themselves, modules held against another run.
[[nodiscard]] std::string next_command(const DumpRequest& request, const DumpResults& results);

/// The summary for a person, one line each, without the warnings.
[[nodiscard]] std::vector<std::string> summary_lines(const DumpRequest& request,
                                                     const DumpResults& results);

}  // namespace assay::cli
