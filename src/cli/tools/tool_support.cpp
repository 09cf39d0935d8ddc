// SPDX-License-Identifier: Apache-2.0
// Old names keep the original's exit status and stamp files in China's time, ours in UTC. Rows of a
// table that do not fit its header are left out and told.
#include "cli/tools/tool_support.hpp"

#include <algorithm>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "base/paths.hpp"
#include "cli/command.hpp"
#include "formats/csv.hpp"
#include "report/files.hpp"

namespace assay::cli {
namespace {

constexpr int kException = 1;
constexpr unsigned kFolderMode = 0750;

}  // namespace

int tool_failure(const ToolCall& call, const Error& error) {
  call.voice.error(error);
  if (call.name != DumpName::Assay) return kException;
  return error.code == Errc::Internal ? kOurFault : kUsageOrInput;
}

std::string time_stamp(int hours_east, std::time_t when) {
  constexpr int kSecondsPerHour = 3600;
  when += hours_east * kSecondsPerHour;
  std::tm parts{};
  ::gmtime_r(&when, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d%H%M%S", &parts);
  return text;
}

std::string report_stamp(const ToolCall& call, std::time_t when) {
  constexpr int kChinaHours = 8;
  return time_stamp(call.name == DumpName::Assay ? 0 : kChinaHours, when);
}

std::string quoted(const std::string& text) { return "'" + text + "'"; }

Result<std::string> write_stamped_csv(const std::string& folder, const std::string& stem,
                                      const std::string& stamp, const std::string& content) {
  ASSAY_TRY_STATUS(make_directories(folder, kFolderMode));
  const std::string path =
      report::free_path(folder, stem + (stem.empty() ? "" : "_") + stamp, ".csv");
  ASSAY_TRY_STATUS(write_file_atomically(path, as_bytes(content), report::kReportMode));
  return path;
}

std::optional<size_t> CsvColumns::find(std::string_view name) const {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<size_t>(found - names.begin());
}

Result<CsvColumns> read_csv_columns(const std::string& path) {
  if (!path.ends_with(".csv")) {
    return fail(Errc::Invalid,
                "Invalid csv path, only path with suffix '.csv' is allowed: '" + path + "'");
  }
  ASSAY_TRY(const MappedFile file, MappedFile::open(path));
  formats::CsvTable table = formats::read_csv(as_text(file.bytes()));
  if (table.rows.empty())
    return fail(Error{Errc::Invalid, path, std::nullopt, "is empty: a header was expected"});
  CsvColumns columns;
  columns.names = std::move(table.rows[0]);
  size_t damaged = 0;
  for (size_t i = 1; i < table.rows.size(); ++i) {
    if (table.rows[i].size() != columns.names.size()) {
      ++damaged;
      continue;
    }
    columns.rows.push_back(std::move(table.rows[i]));
  }
  if (damaged > 0) {
    columns.problems.push_back(path + ": " + std::to_string(damaged) + " rows do not have " +
                               std::to_string(columns.names.size()) + " columns and were left out");
  }
  if (table.unterminated_quote) columns.problems.push_back(path + ": was cut off inside quotes");
  return columns;
}

}  // namespace assay::cli
