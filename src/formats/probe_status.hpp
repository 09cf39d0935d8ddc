// SPDX-License-Identifier: Apache-2.0
// What a probe tells about itself: a page of counters that is right at every moment, so that a
// killed process still tells what it lost, and the summary made of it.
// Bytes and keys: docs/formats/probe-summary.md
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.hpp"
#include "base/result.hpp"

namespace assay::formats {

/// Numbers only ever grow. Inside the host they are changed by several threads, each with relaxed
/// atomic additions; the sums agree once the process has ended.
struct ProbeCounters {
  // What became of the tensors the library handed over.
  uint64_t tensors_seen = 0;
  uint64_t tensors_accepted = 0;  // wanted, copied and queued
  uint64_t tensors_written = 0;
  uint64_t tensors_linked = 0;  // stored as a link to an identical file
  uint64_t tensors_failed = 0;
  uint64_t tensors_dropped = 0;  // the queue was full and the user did not want to wait

  uint64_t skipped_part = 0;    // input or output not asked for
  uint64_t skipped_time = 0;    // output before, or input after the operation
  uint64_t skipped_device = 0;  // another device
  uint64_t skipped_size = 0;    // 0 bytes, more than 10 GiB, or memory that cannot be read
  uint64_t skipped_null = 0;    // no data
  uint64_t skipped_header = 0;  // format, dtype or dims too long
  uint64_t skipped_name = 0;    // a path that leads out of the dump, or is too long
  uint64_t skipped_disk = 0;    // the disk would be full

  uint64_t tiling_files = 0;
  uint64_t param_files = 0;
  uint64_t layer_files = 0;
  uint64_t model_files = 0;
  uint64_t operation_rows = 0;
  uint64_t kernel_rows = 0;
  uint64_t statistic_lines = 0;
  uint64_t overflows = 0;

  uint64_t payload_bytes = 0;  // of written tensors
  uint64_t queue_bound_bytes = 0;
  uint64_t queue_peak_bytes = 0;
  uint64_t waited_us = 0;  // the host's threads, for room in the queue

  uint64_t asked_need_save = 0;
  uint64_t asked_need_save_yes = 0;
  uint64_t asked_in_range = 0;
  uint64_t asked_in_range_yes = 0;
  uint64_t asked_in_dir = 0;
  uint64_t asked_in_dir_yes = 0;
  friend bool operator==(const ProbeCounters&, const ProbeCounters&) = default;
};

inline constexpr size_t kProbeNoteCount = 8;
/// Begins the note about what ran while the choice of operations let nothing through: types, then
/// "; ids ", then ids.
inline constexpr std::string_view kOperationsNote = "operations that ran: ";
inline constexpr std::string_view kOperationsNoteIds = "; ids ";
/// What such a note lists: "LinearOperation", "0_1". Nothing for other notes.
struct OperationsThatRan {
  std::vector<std::string> types;
  std::vector<std::string> ids;
};
[[nodiscard]] std::optional<OperationsThatRan> parse_operations_note(std::string_view note);
/// A note about the first of the tensors that a counter of skipped ones counts: "a tensor of ...".
[[nodiscard]] bool is_skipped_tensor_note(std::string_view note);

/// The file probe_status_<pid>, as it lies in memory that the process and the file share. Texts end
/// with a zero byte and are written before the counters that speak of them.
struct ProbeStatus {
  char magic[8] = {'A', 'S', 'A', 'Y', 'P', 'R', 'B', '1'};
  uint32_t version = 1;
  uint32_t size_bytes = sizeof(ProbeStatus);
  int64_t pid = 0;
  int64_t started = 0;  // seconds since 1970-01-01 UTC
  ProbeCounters counters;
  char tool[32] = {};
  char program[512] = {};
  char first_error[512] = {};
  char notes[kProbeNoteCount][256] = {};
  uint64_t concluded = 0;  // 1: every run that was asked for is over, and on disk
};
static_assert(std::is_trivially_copyable_v<ProbeStatus>);
static_assert(offsetof(ProbeStatus, counters) == 32 && offsetof(ProbeStatus, notes) == 1344 &&
              sizeof(ProbeStatus) == 3400);

/// Copies `text` with a zero byte behind it; cut at a character's boundary when it is too long.
void set_status_text(char* field, size_t field_bytes, std::string_view text);

/// errors  Truncated | BadMagic | Unsupported (another version or size)
[[nodiscard]] Result<ProbeStatus> read_probe_status(ByteSpan file);

/// tensors.lost of a summary: accepted and neither written nor linked nor failed.
[[nodiscard]] uint64_t tensors_lost(const ProbeCounters& counters);

/// The summary as JSON with a line feed.
/// ended   seconds since 1970-01-01 UTC; nothing when the process did not come to its end
[[nodiscard]] std::string probe_summary_json(const ProbeStatus& status, bool complete,
                                             std::optional<int64_t> ended);

struct ProbeSummary {
  std::string tool;
  int64_t pid = 0;
  std::string program;
  std::string started;               // "2026-01-01T00:00:00Z"
  std::optional<std::string> ended;  // nothing: the process was killed
  bool complete = false;
  ProbeCounters counters;
  std::string first_error;
  std::vector<std::string> notes;
};

/// errors  Invalid: no JSON, another format or version. Unknown keys are ignored, missing counters
///         are 0.
[[nodiscard]] Result<ProbeSummary> read_probe_summary(std::string_view text);

/// The counters of all processes added up, the sizes of their queues too.
[[nodiscard]] ProbeCounters sum_of_counters(std::span<const ProbeSummary> processes);

}  // namespace assay::formats
