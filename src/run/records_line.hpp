// SPDX-License-Identifier: Apache-2.0
// One line of records.jsonl.   Keys and defaults: docs/formats/native.md
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "run/record.hpp"

namespace assay::run {

inline constexpr size_t kMaxRecordLineBytes = size_t{1}
                                              << 20;  // our writer's lines stay below a few kB

struct RecordsLine {
  int64_t number = 0;              // key `n`
  std::optional<int64_t> same_as;  // earlier record with the same bytes
  /// An earlier line, which says what this one leaves out: until complete_line() dtype, shape, node
  /// and so on are not known, and nothing is held against them.
  std::optional<int64_t> like;
  bool is_view = false;  // its bytes are a place in those of `same_as`
  std::string run_id;    // of the run, in its first line
  std::string device = "cpu";
  bool is_tensor = false;  // kind `tensor`
  /// rank is left 0 and bytes.file is the bare file name. A record whose place in its file makes no
  /// sense has `problem` and no bytes. `producer` is a number of the file, not held against it.
  TensorRecord record;
  /// Of a line of kind `operator`, which is no tensor: `record` means nothing then.
  std::optional<OperationRecord> operation;
};

/// Parses one line without its newline. Nothing in it is trusted; offsets are held against the file
/// only when the tensor is loaded.
/// errors    Invalid (offset within the line): no JSON object, a key of the wrong type, an unknown
///           role or kind | TooLarge: a limit above
[[nodiscard]] Result<RecordsLine> parse_records_line(std::string_view line);
/// Completes a line by the earlier one that it is like.
/// earlier   as that line was completed
/// errors    Invalid: it is no tensor that another can be like
[[nodiscard]] Status complete_line(const TensorRecord& earlier, RecordsLine* line);
void complete_line(const OperationRecord& earlier, RecordsLine* line);
/// The same of lines of any form, and slower: what the function above falls back to, and is tested
/// against.
[[nodiscard]] Result<RecordsLine> parse_any_records_line(std::string_view line);

}  // namespace assay::run
