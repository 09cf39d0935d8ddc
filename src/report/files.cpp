// SPDX-License-Identifier: Apache-2.0
// Tables are built sheet by sheet and written through a sink into files that appear whole. Graph
// mode has a file for each graph, other comparisons one workbook or one table.
#include "report/files.hpp"

#include <algorithm>
#include <ctime>
#include <memory>

#include "base/atomic_file.hpp"
#include "base/paths.hpp"
#include "report/judged_rows.hpp"
#include "report/mark.hpp"
#include "report/summary.hpp"
#include "report/table.hpp"
#include "report/verdict_json.hpp"
#include "report/xlsx.hpp"

namespace assay::report {
namespace {

/// What the tables of a report are made of.
struct Content {
  const compare::Comparison& comparison;
  const Style& style;
  const run::Run* mine = nullptr;            // with `verdict`
  const locate::Verdict* verdict = nullptr;  // null: none
  bool verdict_columns = false;

  [[nodiscard]] Table table_of(const compare::Sheet& sheet, bool keep_filtered = false) const {
    if (!verdict_columns) return build_table(comparison, sheet, {style, keep_filtered});
    return build_table(
        comparison, sheet,
        {style, keep_filtered,
         std::make_shared<std::vector<RowVerdict>>(judge_rows(*verdict, *mine, sheet))});
  }
  [[nodiscard]] Status write_csv(std::span<const Table> tables, const ByteSink& sink) const {
    return report::write_csv(tables, !style.to_the_letter, sink);
  }
};

Status write_workbook(const Content& content, bool summary, const ByteSink& sink) {
  const compare::Comparison& comparison = content.comparison;
  const bool plain = content.style.to_the_letter;
  std::vector<Table> tables;
  for (const compare::Sheet& sheet : comparison.sheets)
    tables.push_back(content.table_of(sheet, plain));
  // Scripts take sheets by name or by number, so the summary is the last and yet seen first.
  const size_t opens_on = summary ? tables.size() : 0;
  if (summary && !plain) tables.push_back(build_summary_table(comparison, content.verdict));
  if (!plain) std::ranges::for_each(tables, [](Table& table) { mark_cells(&table); });
  return write_xlsx(tables, {.opens_on = opens_on, .plain = plain}, sink);
}

Status write_json_lines(const Content& content, const ByteSink& sink) {
  for (const compare::Sheet& sheet : content.comparison.sheets)
    ASSAY_TRY_STATUS(write_jsonl(content.table_of(sheet), true, sink));
  return {};
}

// Graph mode has a report for each graph of each rank; ranks and graphs are named where there are
// any.
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

Status write_csv_of_all_sheets(const Content& content, const ByteSink& sink) {
  const compare::Comparison& comparison = content.comparison;
  std::vector<Table> tables;
  for (const compare::Sheet& sheet : comparison.sheets) {
    Table table = content.table_of(sheet);
    if (comparison.sheets.size() > 1 && content.style.only_file == nullptr) {
      table.columns.insert(table.columns.begin(), "level");
      table.rows.change(
          [name = sheet.name](Cells* cells) { cells->insert(cells->begin(), Cell::of(name)); });
    }
    tables.push_back(std::move(table));
  }
  return content.write_csv(tables, sink);
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
  const bool verdict_columns = options.verdict != nullptr && options.verdict_columns;
  const Content content{comparison, options.style, &mine, options.verdict, verdict_columns};
  std::vector<std::string> written;
  const auto write = [&](const std::string& stem, const std::string& ending,
                         const PieceWriter& pieces, const std::string& name_end = "") -> Status {
    const std::string path =
        free_path(options.folder, stem + "_" + options.timestamp + name_end, ending);
    ASSAY_TRY_STATUS(write_pieces_atomically(path, pieces, kReportMode));
    written.push_back(path);
    return {};
  };
  const auto csv_of = [&](const Table& table) -> PieceWriter {
    return [&](const ByteSink& sink) { return content.write_csv({&table, 1}, sink); };
  };
  const PieceWriter csv = [&](const ByteSink& sink) {
    return write_csv_of_all_sheets(content, sink);
  };
  const std::string stem = comparison.statistics ? "statstics_cmp_report" : "msit_cmp_report";
  const bool by_graph = !comparison.sheets.empty() && comparison.sheets.front().graph >= 0;
  if (options.style.only_file != nullptr && !comparison.weights) {
    const std::string path = options.style.only_file(options.folder);
    ASSAY_TRY_STATUS(make_directories(path.substr(0, path.rfind('/')), 0750));
    ASSAY_TRY_STATUS(write_pieces_atomically(path, csv, kReportMode));
    written.push_back(path);
  } else if (by_graph) {
    for (const compare::Sheet& sheet : comparison.sheets) {
      const GraphReport report = graph_report(comparison, sheet);
      const Table table = content.table_of(sheet);
      ASSAY_TRY_STATUS(write(stem + report.stem_end, ".csv", csv_of(table), report.name_end));
    }
  } else if (options.workbook) {
    ASSAY_TRY_STATUS(write(stem, ".xlsx", [&](const ByteSink& sink) {
      return write_workbook(content, options.summary, sink);
    }));
  } else {
    ASSAY_TRY_STATUS(write(stem, ".csv", csv));
    if (comparison.statistics && !options.style.to_the_letter)
      ASSAY_TRY_STATUS(write("statistics_cmp_report", ".csv", csv));
  }
  if (options.jsonl)
    ASSAY_TRY_STATUS(write(stem, ".jsonl",
                           [&](const ByteSink& sink) { return write_json_lines(content, sink); }));
  if (options.unmatched && !comparison.sheets.empty()) {
    std::vector<Table> tables = {build_unmatched_table(comparison.sheets.back(), golden, mine)};
    for (size_t i = 0; by_graph && i + 1 < comparison.sheets.size(); ++i)
      tables.push_back(build_unmatched_table(comparison.sheets[i], golden, mine));
    ASSAY_TRY_STATUS(write("msit_cmp_unmatched", ".csv",
                           [&](const ByteSink& sink) { return content.write_csv(tables, sink); }));
  }
  if (verdict_columns)
    ASSAY_TRY_STATUS(write("msit_cmp_first_bad", ".json", [&](const ByteSink& sink) {
      return sink(as_bytes(verdict_json(*options.verdict)));
    }));
  return written;
}

Status write_report(const compare::Comparison& comparison, const std::string& path,
                    const Style& style) {
  const Content content{comparison, style};
  const auto write = [&](const PieceWriter& pieces) {
    return write_pieces_atomically(path, pieces, kReportMode);
  };
  if (path.ends_with(".xlsx"))
    return write([&](const ByteSink& sink) { return write_workbook(content, true, sink); });
  if (path.ends_with(".jsonl"))
    return write([&](const ByteSink& sink) { return write_json_lines(content, sink); });
  if (path.ends_with(".csv"))
    return write([&](const ByteSink& sink) { return write_csv_of_all_sheets(content, sink); });
  return fail(Error{Errc::Usage, path, std::nullopt, "a report ends with .csv, .xlsx or .jsonl"});
}

}  // namespace assay::report
