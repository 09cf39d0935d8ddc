// SPDX-License-Identifier: Apache-2.0
// What the small tools share: how they are called, stamp their files and read tables.
#pragma once
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "cli/argparse.hpp"
#include "cli/dump/voice.hpp"

namespace assay::cli {

/// One call of a tool after its options were read.
struct ToolCall {
  ToolCall(const Caller& caller, std::string_view log_level)
      : name(caller.name), program(caller.program), voice(caller.name, log_level) {}

  DumpName name;
  std::string program;  // for messages: "msit llm logitscmp"
  Voice voice;
};

/// Reports the error; 1 under the old names, where the original raised, otherwise 2 (3 for an
/// error of ours).
[[nodiscard]] int tool_failure(const ToolCall& call, const Error& error);

/// "20250301151505" in a zone that is `hours_east` of UTC.
[[nodiscard]] std::string time_stamp(int hours_east, std::time_t when);
/// The stamp of a file that the original stamped in China's time, and does under its names; ours
/// are in UTC.
[[nodiscard]] std::string report_stamp(const ToolCall& call, std::time_t when);

/// Python's repr() of a path in a log line: in single quotes.
[[nodiscard]] std::string quoted(const std::string& text);

/// Writes `content` to folder/stem_stamp.csv, where the stem may be empty, with mode 0640; a taken
/// name gets "_1", "_2" ... before its ending. Folders are made with mode 0750.
/// returns   the path
/// errors    Permission | NotFound | NoSpace | Io
[[nodiscard]] Result<std::string> write_stamped_csv(const std::string& folder,
                                                    const std::string& stem,
                                                    const std::string& stamp,
                                                    const std::string& content);

/// A csv file with a header line.
struct CsvColumns {
  std::vector<std::string> names;
  std::vector<std::vector<std::string>> rows;  // each as long as `names`
  std::vector<std::string> problems;           // rows of another length, a quote that never closed

  [[nodiscard]] std::optional<size_t> find(std::string_view name) const;
};

/// errors    Invalid: the path does not end in ".csv", or the file is empty | NotFound | Permission
[[nodiscard]] Result<CsvColumns> read_csv_columns(const std::string& path);

}  // namespace assay::cli
