// SPDX-License-Identifier: Apache-2.0
// In this order: the table of types, the first wrong outputs, what could not be judged, the files,
// and the verdict as the last line.
#include "report/opcheck_terminal.hpp"

#include <algorithm>
#include <cstdio>

#include "base/display.hpp"
#include "base/text.hpp"
#include "report/opcheck_table.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

using opcheck::CaseResult;
using opcheck::CheckOutcome;
using opcheck::OutputRow;

constexpr size_t kMaxTypes = 24;  // rows of the table; types without trouble are left out first
constexpr size_t kMaxNotSupported = 6;  // lines

const char* case_word(const opcheck::Report& report) {
  return report.by_rounding ? "operator" : "operation";
}

bool is_bad(CheckOutcome outcome) {
  return outcome == CheckOutcome::Failed || outcome == CheckOutcome::Error;
}

const CaseResult* first_bad(const opcheck::Report& report) {
  const auto found = std::find_if(report.cases.begin(), report.cases.end(),
                                  [](const CaseResult& one) { return is_bad(one.outcome); });
  return found == report.cases.end() ? nullptr : &*found;
}

// ---- the table of types ----

struct TypeColumn {
  const char* name;
  size_t OpcheckTotals::* count;
  const char* colour;
};
constexpr TypeColumn kTypeColumns[] = {{"pass", &OpcheckTotals::passed, kGreen},
                                       {"failed", &OpcheckTotals::failed, kRed},
                                       {"error", &OpcheckTotals::errors, kRed},
                                       {"not supported", &OpcheckTotals::not_supported, kBold}};

void append_type_row(const OpcheckTotals& totals, size_t name_width,
                     const OpcheckTerminalOptions& options, std::string* out) {
  *out += pad_right(shorten(printable(totals.op_type), name_width), name_width);
  for (const TypeColumn& column : kTypeColumns) {
    const size_t count = totals.*column.count;
    const std::string text =
        pad_left(count == 0 ? "-" : std::to_string(count), std::string_view(column.name).size());
    *out += "  " + paint(text, column.colour, options.colour && count > 0);
  }
  *out += "\n";
}

void append_types(const opcheck::Report& report, const OpcheckTerminalOptions& options,
                  std::string* out) {
  std::vector<OpcheckTotals> types = opcheck_totals(report);
  OpcheckTotals sum;
  sum.op_type = "all";
  size_t numbers = 0;
  for (const TypeColumn& column : kTypeColumns) {
    numbers += std::string_view(column.name).size() + 2;
    for (const OpcheckTotals& totals : types) sum.*column.count += totals.*column.count;
  }
  size_t longest = 9;
  for (const OpcheckTotals& totals : types)
    longest = std::max(longest, display_columns(printable(totals.op_type)));
  const auto width = static_cast<size_t>(options.width);
  const size_t name_width = std::min(longest, width > numbers + 12 ? width - numbers : 12);
  size_t left_out = 0;
  while (types.size() > kMaxTypes) {
    const auto plain = std::find_if(types.rbegin(), types.rend(), [](const OpcheckTotals& totals) {
      return totals.passed == totals.cases;
    });
    if (plain == types.rend()) break;
    types.erase(std::next(plain).base());
    ++left_out;
  }
  *out += "\n" + paint(pad_right("operation", name_width), kBold, options.colour);
  for (const TypeColumn& column : kTypeColumns)
    *out += "  " + paint(column.name, kBold, options.colour);
  *out += "\n";
  for (const OpcheckTotals& totals : types) append_type_row(totals, name_width, options, out);
  if (left_out > 0) *out += "(" + counted(left_out, "more type") + ", all pass)\n";
  if (types.size() + left_out > 1) append_type_row(sum, name_width, options, out);
}

// ---- what is wrong ----

/// "rank 1  step 2  " where a report has several.
std::string place_of(const opcheck::Report& report, const CaseResult& one) {
  const opcheck::CaseDescription& first = report.cases.front().description;
  const opcheck::CaseDescription& last = report.cases.back().description;
  const bool has_runs =
      std::any_of(report.cases.begin(), report.cases.end(),
                  [&](const CaseResult& other) { return other.description.step != first.step; });
  std::string text;
  if (first.rank != last.rank) text += "rank " + std::to_string(one.description.rank) + "  ";
  if (has_runs) text += "step " + one.description.step + "  ";
  return text;
}

void append_bad_row(const opcheck::Report& report, const CaseResult& one, const OutputRow& row,
                    const OpcheckTerminalOptions& options, std::string* out) {
  const auto width = static_cast<size_t>(options.width);
  const std::string result(opcheck::outcome_name(row.outcome));
  const std::string type = report.by_rounding ? "" : one.description.op_type + "  ";
  const std::string name =
      place_of(report, one) + one.description.id + "  " + type + output_name(row);
  const size_t room = width > result.size() + 12 ? width - result.size() - 4 : 12;
  *out += "  " + shorten(printable(name), room) + "  " + paint(result, kRed, options.colour) + "\n";
  *out += wrapped(printable(row.reason), 4, width);
  const std::string worst = worst_text(row);
  if (worst.empty()) return;
  *out += wrapped("worst " + worst, 4, width);
  *out += wrapped("around it " + neighbours_text(row), 4, width);
}

void append_bad_rows(const opcheck::Report& report, const OpcheckTerminalOptions& options,
                     std::string* out) {
  size_t shown = 0;
  size_t bad = 0;
  for (const CaseResult& one : report.cases) {
    for (const OutputRow& row : one.rows) {
      if (!is_bad(row.outcome)) continue;
      ++bad;
      if (shown == options.failed_count) continue;
      if (shown++ == 0)
        *out +=
            "\n" + paint("first wrong outputs, in execution order", kBold, options.colour) + "\n";
      append_bad_row(report, one, row, options, out);
    }
  }
  if (bad > shown) *out += "  and " + std::to_string(bad - shown) + " more\n";
}

void append_not_judged(const opcheck::Report& report, const OpcheckTerminalOptions& options,
                       std::string* out) {
  const auto width = static_cast<size_t>(options.width);
  size_t lines = 0;
  size_t more = 0;
  for (const OpcheckTotals& totals : opcheck_totals(report)) {
    if (totals.not_supported == 0) continue;
    if (lines == kMaxNotSupported) {
      ++more;
      continue;
    }
    if (lines++ == 0) *out += "\n" + paint("not supported", kBold, options.colour) + "\n";
    for (const CaseResult& one : report.cases) {
      if (one.description.op_type != totals.op_type || one.outcome != CheckOutcome::NotSupported)
        continue;
      const auto row =
          std::find_if(one.rows.begin(), one.rows.end(), [](const OutputRow& candidate) {
            return candidate.outcome == CheckOutcome::NotSupported;
          });
      *out += wrapped(printable(totals.op_type + " " + std::to_string(totals.not_supported) + ": " +
                                row->reason),
                      2, width);
      break;
    }
  }
  if (more > 0) *out += "  and " + counted(more, "more type") + "\n";
  if (report.unlisted.empty()) return;
  std::string text = "not judged:";
  for (const auto& [type, count] : report.unlisted)
    text += (text.back() == ':' ? " " : ", ") + type + " " + std::to_string(count);
  *out += "\n" + wrapped(printable(text), 0, width);
}

}  // namespace

std::string judged_by(const opcheck::Report& report) {
  return report.by_rounding ? "what rounding explains"
                            : std::string(measure::standard_name(report.standard));
}

std::string opcheck_verdict(const opcheck::Report& report) {
  const opcheck::Report::Counts counts = report.counts();
  const size_t cases = report.cases.size();
  if (cases == 0) return "nothing checked";
  const char* what = case_word(report);
  std::string text;
  if (const CaseResult* first = first_bad(report)) {
    text = "wrong: ";
    if (counts.failed > 0) text += std::to_string(counts.failed) + " FAILED";
    if (counts.errors > 0)
      text += (counts.failed > 0 ? " and " : "") + std::to_string(counts.errors) + " ERROR";
    text += " of " + counted(cases, what) + ", first " + first->description.id;
    // An operator's node says what it is.
    if (!report.by_rounding) text += " " + first->description.op_type;
  } else if (counts.passed == 0) {
    text = "nothing judged: no " + std::string(what) + " is supported";
  } else {
    text = "right: " + std::to_string(counts.passed) + " of " + counted(cases, what) +
           (counts.passed == 1 ? " passes" : " pass");
  }
  const bool right = counts.failed == 0 && counts.errors == 0 && counts.passed > 0;
  if (right && counts.not_supported > 0)
    text += "; " + std::to_string(counts.not_supported) + " not supported";
  if (report.interrupted) text += "; interrupted before the end";
  return text;
}

std::string opcheck_terminal_report(const opcheck::Report& report,
                                    const OpcheckTerminalOptions& options) {
  const auto width = static_cast<size_t>(options.width);
  const opcheck::Report::Counts counts = report.counts();
  std::string out = shorten(printable(report.path), width) + "\n";
  char seconds[32];
  std::snprintf(seconds, sizeof(seconds), "%.2f s", report.seconds);
  out += wrapped(counted(report.cases.size(), case_word(report)) + ", " +
                     counted(counts.outputs, "output") + ", judged by " + judged_by(report) +
                     " in " + seconds,
                 0, width);
  if (!report.coverage.empty()) out += wrapped(printable(report.coverage), 0, width);
  for (const std::string& warning : report.warnings)
    out += wrapped("warning: " + printable(warning), 0, width);
  if (!report.cases.empty()) append_types(report, options, &out);
  append_bad_rows(report, options, &out);
  append_not_judged(report, options, &out);
  out += "\n";
  for (const std::string& file : options.files) out += "report: " + file + "\n";
  const bool bad = counts.failed > 0 || counts.errors > 0 || counts.passed == 0;
  std::string verdict = wrapped(printable(opcheck_verdict(report)), 0, width);
  verdict.pop_back();
  return out + paint(verdict, bad ? kRed : kGreen, options.colour) + "\n";
}

}  // namespace assay::report
