// SPDX-License-Identifier: Apache-2.0
// The page lists the first operations that are wrong, the totals of each type and a row for each
// output.
#include "report/html/opcheck_page.hpp"

#include <algorithm>
#include <iterator>

#include "base/text.hpp"
#include "report/html/findings.hpp"
#include "report/html/sides.hpp"
#include "report/html/table_data.hpp"
#include "report/opcheck_terminal.hpp"

namespace assay::report::html {
namespace {

std::vector<Cells> output_rows(const opcheck::Report& report, const OpcheckTable& columns) {
  std::vector<Cells> rows;
  for (const opcheck::CaseResult& one : report.cases)
    std::ranges::move(columns.rows(one), std::back_inserter(rows));
  return rows;
}

Json totals_json(const opcheck::Report& report) {
  const Table summary = build_opcheck_summary(report);
  Json rows = Json::array();
  for (size_t row = 0; row < summary.rows.size(); ++row) {
    const Cells cells = summary.rows[row];
    Json texts = Json::array();
    for (const Cell& cell : cells) texts.push_back(printable(cell.csv_text()));
    rows.push_back(std::move(texts));
  }
  return {{"columns", summary.columns}, {"rows", std::move(rows)}};
}

std::string_view tone_of_checks(const opcheck::Report::Counts& counts) {
  if (counts.failed + counts.errors > 0) return "bad";
  return counts.not_supported > 0 ? "open" : "good";
}

bool is_wrong(opcheck::CheckOutcome outcome) {
  return outcome == opcheck::CheckOutcome::Failed || outcome == opcheck::CheckOutcome::Error;
}

/// The operations that are wrong, each with the first of its rows that is.
void add_failures(const opcheck::Report& report, Json* json) {
  constexpr size_t kMost = 20;
  std::vector<ListedFinding> failures;
  size_t count = 0;
  size_t row = 0;
  for (const opcheck::CaseResult& one : report.cases) {
    const size_t first_row = row;
    row += one.rows.size();
    if (!is_wrong(one.outcome) || ++count > kMost) continue;
    const auto wrong = std::ranges::find_if(
        one.rows, [](const opcheck::OutputRow& output) { return is_wrong(output.outcome); });
    if (wrong == one.rows.end()) continue;
    const auto place = static_cast<size_t>(wrong - one.rows.begin());
    std::string text = report.by_rounding ? "" : one.description.op_type + ": ";
    if (one.rows.size() > 1) text += output_name(*wrong) + ": ";
    failures.push_back({.place = one.description.id,
                        .text = std::move(text) + wrong->reason,
                        .row = first_row + place});
  }
  if (failures.empty()) return;
  (*json)["first_row"] = failures.front().row;
  (*json)["lists"] = Json::array({list_json("Wrong", true, count, failures)});
}

}  // namespace

Page opcheck_page(const opcheck::Report& report, const OpcheckTable& columns) {
  const opcheck::Report::Counts counts = report.counts();
  run::Run checked;
  checked.path = report.path;
  Page page = begin_page("opcheck", "assay opcheck: " + report.path, opcheck_verdict(report),
                         tone_of_checks(counts));
  Json& json = page.content;
  json["counts_sentence"] = "judged by " + judged_by(report);
  if (!report.coverage.empty()) json["notes"] = texts_json({report.coverage});
  json["warnings"] = texts_json(report.warnings);
  add_failures(report, &json);
  json["totals"] = totals_json(report);
  json["sides"] = {side_json(checked, "run")};
  json["table"] = add_table(columns.columns(), output_rows(report, columns), "c", &page.blobs);
  return page;
}

}  // namespace assay::report::html
