// SPDX-License-Identifier: Apache-2.0
// What the PyTorch and ggml sides of each process say they captured. A process that could not say
// it at its end (a signal, _exit) has left a first report, or at least its run: that is read
// instead.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/dump/child_process.hpp"
#include "cli/dump/dump_places.hpp"
#include "cli/dump/process_watch.hpp"

namespace assay::cli {

/// What the command knows about the run itself.
struct DumpRun {
  int64_t started = 0;  // seconds since 1970
  ChildEnd end;
  std::string program_file;             // what was executed; empty when unknown
  const ProcessWatch* watch = nullptr;  // how the processes below the program ended
  /// Files of earlier runs in the dump root, and when each was last written, in nanoseconds since
  /// 1970.
  std::map<std::string, int64_t> earlier = {};

  /// Whether a file is as an earlier run left it.
  [[nodiscard]] bool is_earlier(const std::string& path) const;
  /// Whether a file was written after the program started; in whole seconds.
  [[nodiscard]] bool wrote(const std::string& path) const;
};

/// The files of probes in a dump root that is used again: summaries and host statistics.
[[nodiscard]] std::map<std::string, int64_t> files_of_earlier_runs(const std::string& root);

/// What the PyTorch side of one process reports.
struct TorchReport {
  int64_t pid = 0;
  int64_t rank = 0;
  int64_t world_size = 0;
  bool not_asked = false;  // its rank is none of --ranks
  std::string output;      // folder of its run; empty: it captured nothing
  uint64_t models = 0;
  uint64_t steps = 0;
  uint64_t tensors = 0;
  std::string message;  // why there is nothing, or less than asked
  std::string stopped;  // why not all of it is on disk
  bool idle = false;    // it imported torch, and that was all
  bool ended = true;    // false: its run was counted by us
  std::string end;      // of one that ended: "ended with status 0", as far as it is known

  [[nodiscard]] bool captured() const {
    return !output.empty() && (tensors > 0 || message.empty());
  }
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
  std::string message;            // why nothing was captured
  bool ended = true;              // false: its run was counted by us
  std::string end;                // as of TorchReport

  [[nodiscard]] bool captured() const { return !output.empty() && nodes > 0; }
};

struct ProcessReports {
  std::vector<TorchReport> torch;  // by file name
  std::vector<GgmlReport> ggml;    // by file name
  // how processes ended that could not say it, and reports that cannot be read
  std::vector<std::string> warnings;
};

/// Reads the reports in the scratch folder and the runs in the output folder that none of them
/// names. Waits a moment for processes that are about to end.
[[nodiscard]] ProcessReports read_reports(const DumpPlaces& places, const DumpRun& run);

/// The process whose capture of a rank's folder says that it has not ended; 0 when it has, or
/// cannot be read.
[[nodiscard]] int64_t unfinished_writer(const std::string& output, const std::string& rank);

/// Names in a folder, sorted; empty when it cannot be read.
[[nodiscard]] std::vector<std::string> names_in(const std::string& folder);

/// "ended with status 0" of a process that ran its exit handlers.
[[nodiscard]] std::string how_it_came_to_its_end(int64_t pid, const DumpRun& run);

/// "process 12 was ended by signal 9 (Killed)"; how it ended is not always known.
[[nodiscard]] std::string how_it_ended(int64_t pid, const DumpRun& run);

}  // namespace assay::cli
