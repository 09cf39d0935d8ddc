// SPDX-License-Identifier: Apache-2.0
// After the program's end: what its probes say they did, tables and graphs made of what they left, the manifest.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "cli/dump/child_process.hpp"
#include "cli/dump/dump_places.hpp"
#include "cli/dump/dump_request.hpp"
#include "formats/probe_status.hpp"

namespace assay::cli {

/// What the PyTorch side of one process reports.
struct TorchReport {
  int64_t pid = 0;
  std::string program;
  std::string output;  // folder of its run; empty: it captured nothing
  uint64_t models = 0;
  uint64_t steps = 0;
  uint64_t tensors = 0;
  std::string message;  // why nothing was captured
  std::string stopped;  // why not all of it was
};

/// What the ggml probe of one process reports.
struct GgmlReport {
  int64_t pid = 0;
  std::string output;   // folder of its run; empty: it captured nothing
  uint64_t steps = 0;   // compute calls that were captured
  uint64_t passed = 0;  // those that were not
  uint64_t nodes = 0;
  uint64_t bytes = 0;
  std::vector<int64_t> warm_ups;  // steps that the program threw away
  std::string message;            // why nothing was captured, or not all of it
};

struct DumpResults {
  std::string root;                              // of the ATB dump; may not exist
  std::vector<formats::ProbeSummary> processes;  // by pid
  std::vector<TorchReport> torch;                // by pid
  std::vector<GgmlReport> ggml;                  // by file name
  std::vector<std::string> profiling_tables;     // files made of the host statistics
  std::vector<std::string> graphs;               // .onnx files
  std::vector<std::string> warnings;             // one sentence each: what is missing, and why

  /// Anything at all.
  [[nodiscard]] bool captured_anything() const;
};

/// What the command knows about the run itself.
struct DumpRun {
  int64_t started = 0;  // seconds since 1970
  ChildEnd end;
  std::string program_file;  // what was executed; empty when unknown
};

/// Reads the summaries (those of dead processes from their status pages), merges the host statistics, converts the
/// reported topologies, writes manifest.json, removes the scratch folder. A failed part becomes a warning; the others
/// still happen.
[[nodiscard]] DumpResults finish_dump(const DumpRequest& request, const DumpPlaces& places,
                                      const DumpRun& run);

/// The summary for a person, one line each, without the warnings.
[[nodiscard]] std::vector<std::string> summary_lines(const DumpRequest& request,
                                                     const DumpResults& results);

}  // namespace assay::cli
