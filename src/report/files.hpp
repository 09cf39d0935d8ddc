// SPDX-License-Identifier: Apache-2.0
// The report files of a comparison, with the original's names.   docs/commands/compare.md
#pragma once
#include <string>
#include <vector>

#include "base/result.hpp"
#include "compare/compare.hpp"
#include "locate/verdict/locate.hpp"
#include "report/style.hpp"

namespace assay::report {

struct FileOptions {
  const Style& style = kOurStyle;
  std::string folder = "./";  // created with all parents
  std::string timestamp;      // "20250220083154", UTC
  bool workbook = false;      // one xlsx with a sheet a level; otherwise one csv (first sheet)
  bool jsonl = false;
  bool unmatched = false;
  bool summary = true;  // a last sheet of the workbook, which it opens on: what the others hold
  /// The summary begins with its sentence; null: with what the tables say.
  const locate::Verdict* verdict = nullptr;
  /// The verdict also gives rows its columns and is written to msit_cmp_first_bad_{ts}.json.
  bool verdict_columns = false;
};

/// Permission bits of report files.
inline constexpr unsigned kReportMode = 0640;
/// folder/stem + ending, or with "_1", "_2" ... before the ending when that is taken.
[[nodiscard]] std::string free_path(const std::string& folder, const std::string& stem,
                                    const std::string& ending);

/// `%Y%m%d%H%M%S` of now, in UTC.
[[nodiscard]] std::string utc_timestamp();

/// Writes msit_cmp_report_{ts}.csv or .xlsx (statistics: statstics_cmp_report_{ts}.csv, the name
/// scripts know, and beside it statistics_cmp_report_{ts}.csv), and on request the same as .jsonl,
/// msit_cmp_unmatched_{ts}.csv and msit_cmp_first_bad_{ts}.json; a style may say otherwise. Every
/// file appears whole or not at all, with mode 0640; a taken name gets "_1", "_2" ... before its
/// ending.
/// returns   the paths, the report first
/// errors    Permission | NotFound | NoSpace | Io
[[nodiscard]] Result<std::vector<std::string>> write_files(const compare::Comparison& comparison,
                                                           const run::Run& golden,
                                                           const run::Run& mine,
                                                           const FileOptions& options);

/// Writes only the report, in the format of the ending of `path`: .csv (all sheets, one after the
/// other, when there are several: with a first column "level"), .xlsx, .jsonl. errors    Usage
/// (other ending) | as above
[[nodiscard]] Status write_report(const compare::Comparison& comparison, const std::string& path,
                                  const Style& style = kOurStyle);

}  // namespace assay::report
