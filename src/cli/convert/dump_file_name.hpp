// SPDX-License-Identifier: Apache-2.0
// Names of dump files: {type}.{name}.[{number}.]{task}.[{stream}.]{time}[.{kind}.{context}.{thread}.{device}]
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace assay::cli {

struct DumpFileName {
  std::string op_type;
  std::string op_name;  // as in the file's name: blank . / \ are '_'
  std::optional<uint64_t> task_id;
  std::optional<uint64_t> stream_id;
  std::string time;  // microseconds since 1970, 16 digits; empty where the name has none
  std::optional<uint64_t> context_id;
  std::optional<uint64_t> thread_id;
};

/// Counted from the 16 digits of the time, or without them from the last part. Nothing for names with fewer than four
/// parts or without a task's number.
[[nodiscard]] std::optional<DumpFileName> parse_dump_file_name(std::string_view name);

/// Name of a file that we make ourselves: task and stream 0. What stands for something else in names becomes '_'.
[[nodiscard]] std::string dump_file_name(std::string_view op_type, std::string_view op_name,
                                         uint64_t time_us);

/// A debug file of an overflow dump: "Opdebug.Node_OpDebug.{task}.{stream}.{time}".
[[nodiscard]] bool is_overflow_name(std::string_view name);

/// False for files that lie among dumps but are none, by their ending: .csv .txt .json .npy .tmp77 ...
[[nodiscard]] bool may_be_dump(std::string_view name);

}  // namespace assay::cli
