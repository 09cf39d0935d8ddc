// SPDX-License-Identifier: Apache-2.0
#include "report/files.hpp"

#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "base/atomic_file.hpp"
#include "base/paths.hpp"
#include "report/summary.hpp"
#include "report/table.hpp"
#include "report/xlsx.hpp"

namespace assay::report {
namespace {

// The workbook of the original keeps the rows that its csv leaves out.
Result<std::string> workbook(const compare::Comparison& comparison, bool summary) {
  std::vector<Table> tables;
  for (const compare::Sheet& sheet : comparison.sheets) {
    tables.push_back(build_table(comparison, sheet, comparison.msit));
  }
  if (summary && !comparison.msit) tables.push_back(build_summary_table(comparison));
  return xlsx_bytes(tables);
}

std::string json_lines(const compare::Comparison& comparison) {
  std::string out;
  for (const compare::Sheet& sheet : comparison.sheets) {
    out += jsonl_text(build_table(comparison, sheet, false));
  }
  return out;
}

std::string csv_of_sheet(const compare::Comparison& comparison, const compare::Sheet& sheet) {
  return csv_text(build_table(comparison, sheet, false), !comparison.msit);
}

// Graph mode has a report for each graph of each rank; ranks and graphs are named where there are any.
struct GraphReport {
  std::string stem_end;  // "_rank0"
  std::string name_end;  // "_graph1", behind the time
};
GraphReport graph_report(const compare::Comparison& comparison, const compare::Sheet& sheet) {
  GraphReport report;
  if (sheet.rank >= 0) report.stem_end = "_rank" + std::to_string(sheet.rank);
  const auto graphs =
      std::count_if(comparison.sheets.begin(), comparison.sheets.end(),
                    [&](const compare::Sheet& other) { return other.rank == sheet.rank; });
  if (graphs > 1) report.name_end = "_graph" + std::to_string(sheet.graph);
  return report;
}

std::string csv_of_all_sheets(const compare::Comparison& comparison) {
  Table all;
  for (const compare::Sheet& sheet : comparison.sheets) {
    Table table = build_table(comparison, sheet, false);
    if (comparison.sheets.size() > 1 && !comparison.ait02) {  // ait 0.2 knew no levels
      table.columns.insert(table.columns.begin(), "level");
      for (std::vector<Cell>& row : table.rows) row.insert(row.begin(), Cell::of(sheet.name));
    }
    all.columns = table.columns;
    std::move(table.rows.begin(), table.rows.end(), std::back_inserter(all.rows));
  }
  return csv_text(all, !comparison.msit);
}

}  // namespace

std::string free_path(const std::string& folder, const std::string& stem,
                      const std::string& ending) {
  const std::string base = folder + (folder.ends_with('/') ? "" : "/") + stem;
  std::string path = base + ending;
  for (int n = 1; is_taken(path); ++n) path = base + "_" + std::to_string(n) + ending;
  return path;
}

std::string utc_timestamp() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y%m%d%H%M%S", &parts);
  return text;
}

Result<std::vector<std::string>> write_files(const compare::Comparison& comparison,
                                             const run::Run& golden, const run::Run& mine,
                                             const FileOptions& options) {
  ASSAY_TRY_STATUS(make_directories(options.folder, 0750));
  std::vector<std::string> written;
  const auto write = [&](const std::string& stem, const std::string& ending,
                         const std::string& content, const std::string& name_end = "") -> Status {
    const std::string path =
        free_path(options.folder, stem + "_" + options.timestamp + name_end, ending);
    ASSAY_TRY_STATUS(write_file_atomically(path, as_bytes(content), kReportMode));
    written.push_back(path);
    return {};
  };
  const std::string stem = comparison.statistics ? "statstics_cmp_report" : "msit_cmp_report";
  const bool by_graph = !comparison.sheets.empty() && comparison.sheets.front().graph >= 0;
  if (comparison.ait02) {  // {pid}/cmp_report.csv
    const std::string folder =
        options.folder + (options.folder.ends_with('/') ? "" : "/") + std::to_string(::getpid());
    ASSAY_TRY_STATUS(make_directories(folder, 0750));
    const std::string path = folder + "/cmp_report.csv";
    ASSAY_TRY_STATUS(
        write_file_atomically(path, as_bytes(csv_of_all_sheets(comparison)), kReportMode));
    written.push_back(path);
  } else if (by_graph) {
    for (const compare::Sheet& sheet : comparison.sheets) {
      const GraphReport report = graph_report(comparison, sheet);
      ASSAY_TRY_STATUS(
          write(stem + report.stem_end, ".csv", csv_of_sheet(comparison, sheet), report.name_end));
    }
  } else if (options.workbook) {
    ASSAY_TRY(const std::string bytes, workbook(comparison, options.summary));
    ASSAY_TRY_STATUS(write(stem, ".xlsx", bytes));
  } else {
    const std::string text = csv_of_all_sheets(comparison);
    ASSAY_TRY_STATUS(write(stem, ".csv", text));
    if (comparison.statistics && !comparison.msit) {
      ASSAY_TRY_STATUS(write("statistics_cmp_report", ".csv", text));
    }
  }
  if (options.jsonl) ASSAY_TRY_STATUS(write(stem, ".jsonl", json_lines(comparison)));
  if (options.unmatched && !comparison.sheets.empty()) {
    Table table = build_unmatched_table(comparison.sheets.back(), golden, mine);
    for (size_t i = 0; by_graph && i + 1 < comparison.sheets.size(); ++i) {
      const Table more = build_unmatched_table(comparison.sheets[i], golden, mine);
      table.rows.insert(table.rows.end(), more.rows.begin(), more.rows.end());
    }
    ASSAY_TRY_STATUS(write("msit_cmp_unmatched", ".csv", csv_text(table, !comparison.msit)));
  }
  if (!options.first_bad.empty())
    ASSAY_TRY_STATUS(write("msit_cmp_first_bad", ".json", options.first_bad));
  return written;
}

Status write_report(const compare::Comparison& comparison, const std::string& path) {
  std::string content;
  if (path.ends_with(".xlsx")) {
    ASSAY_TRY(content, workbook(comparison, true));
  } else if (path.ends_with(".jsonl")) {
    content = json_lines(comparison);
  } else if (path.ends_with(".csv")) {
    content = csv_of_all_sheets(comparison);
  } else {
    return fail(Error{Errc::Usage, path, std::nullopt, "a report ends with .csv, .xlsx or .jsonl"});
  }
  return write_file_atomically(path, as_bytes(content), kReportMode);
}

}  // namespace assay::report
