// SPDX-License-Identifier: Apache-2.0
#include "report/opcheck_html.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/text.hpp"
#include "report/opcheck_table.hpp"
#include "report/opcheck_terminal.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

using opcheck::CaseResult;
using opcheck::CheckOutcome;
using opcheck::OutputRow;

constexpr std::string_view kHead = R"html(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>opcheck</title>
<style>
:root { color-scheme: light dark; --line: #8884; --good: #1a7f37; --bad: #c62828; --open: #9a6700; }
body { font: 14px/1.45 system-ui, sans-serif; margin: 1.5rem auto; max-width: 110rem; padding: 0 1rem; }
h1 { font-size: 1.35rem; margin: 0 0 .3rem; }
h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .2rem 0; }
code, .value { font-family: ui-monospace, monospace; font-size: .92em; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem; border-bottom: 1px solid var(--line); }
th { position: sticky; top: 0; background: Canvas; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.PASS { color: var(--good); } .FAILED, .ERROR { color: var(--bad); } .NOT_SUPPORTED { color: var(--open); }
.mark { font-weight: 600; white-space: nowrap; }
td:first-child { white-space: nowrap; }
.note { opacity: .75; }
.filters { display: flex; gap: .5rem; flex-wrap: wrap; align-items: center; margin: .4rem 0; }
button, input { font: inherit; padding: .2rem .7rem; border: 1px solid var(--line); border-radius: .4rem; background: none; color: inherit; }
button[aria-pressed="true"] { border-color: currentColor; font-weight: 600; }
</style>
</head>
<body>
)html";

// A row shows when its result is chosen and its text contains the words of the search field.
constexpr std::string_view kScript = R"html(<script>
"use strict";
const rows = [...document.querySelectorAll("#outputs tbody tr")];
const buttons = [...document.querySelectorAll("button[data-result]")];
const search = document.getElementById("search");
const shown = document.getElementById("shown");
let result = "";
function show() {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const text = row.textContent.toLowerCase();
    const visible = (!result || row.dataset.result === result) && words.every(word => text.includes(word));
    row.hidden = !visible;
    count += visible;
  }
  shown.textContent = count + " of " + rows.length + " outputs";
}
for (const button of buttons) {
  button.addEventListener("click", () => {
    result = button.dataset.result;
    for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
    show();
  });
}
search.addEventListener("input", show);
show();
</script>
</body>
</html>
)html";

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string cell(std::string_view text, std::string_view kind = "") {
  std::string out = "<td";
  if (!kind.empty()) out += " class=\"" + std::string(kind) + "\"";
  return out + ">" + escaped(text) + "</td>";
}

void append_totals(const opcheck::Report& report, std::string* out) {
  *out += "<h2>Operations</h2>\n<table><thead><tr><th>type</th>";
  for (const char* name : {"cases", "outputs", "pass", "failed", "not supported", "error"})
    *out += "<th class=\"number\">" + std::string(name) + "</th>";
  *out += "<th>first reason</th></tr></thead><tbody>\n";
  for (const OpcheckTotals& totals : opcheck_totals(report)) {
    *out += "<tr>" + cell(totals.op_type);
    *out += cell(std::to_string(totals.cases), "number") +
            cell(std::to_string(totals.outputs), "number");
    const auto count = [&](size_t number, std::string_view result) {
      *out += cell(number == 0 ? "" : std::to_string(number), "number " + std::string(result));
    };
    count(totals.passed, "PASS");
    count(totals.failed, "FAILED");
    count(totals.not_supported, "NOT_SUPPORTED");
    count(totals.errors, "ERROR");
    *out += cell(totals.first_reason) + "</tr>\n";
  }
  *out += "</tbody></table>\n";
  if (report.unlisted.empty()) return;
  *out += "<p class=\"note\">Not judged: ";
  for (size_t i = 0; i < report.unlisted.size(); ++i) {
    *out += (i == 0 ? "" : ", ") + escaped(report.unlisted[i].first) + " " +
            std::to_string(report.unlisted[i].second);
  }
  *out += "</p>\n";
}

std::string rate_text(double rate) {
  if (std::isnan(rate)) return {};
  char text[32];
  std::snprintf(text, sizeof(text), "%.4f", rate);
  return text;
}

constexpr std::array kRoundingNames = {"z", "e"};
constexpr std::array kStandardNames = {"within %", "max abs"};

/// Two numbers; their names are in the head of the table.
void append_two_numbers(const OutputRow& row, std::string* out) {
  std::string first;
  std::string second;
  if (row.rounding && row.rounding->judged) {
    first = short_number(row.rounding->z);
    second = short_number(row.rounding->e);
  } else if (row.compared) {
    first = rate_text(row.judgements[static_cast<size_t>(measure::Standard::Atb)].rate);
    second = short_number(row.measures.max_abs_error);
  }
  *out += cell(first, "number") + cell(second, "number");
}

void append_row(const CaseResult& one, const OutputRow& row, std::string* out) {
  const std::string result(opcheck::outcome_name(row.outcome));
  *out += "<tr data-result=\"" + result + "\">";
  *out += cell(one.description.id, "value") + cell(one.description.op_type);
  *out += cell(output_name(row)) + cell(result, "mark " + result);
  *out += "<td>" + escaped(row.reason);
  for (const std::string& note : {row.note, one.variant}) {
    if (!note.empty()) *out += "<div class=\"note\">" + escaped(note) + "</div>";
  }
  *out += "</td>";
  append_two_numbers(row, out);
  *out += cell(row.dtype.empty() ? "" : row.dtype + " " + list_text(row.shape.span()), "value");
  *out += "<td class=\"value\">" + escaped(worst_text(row));
  const std::string around = neighbours_text(row);
  if (row.outcome != CheckOutcome::Pass && !around.empty())
    *out += "<div class=\"note\">around it " + escaped(around) + "</div>";
  *out += "</td>" + cell(one.description.node, "value") + "</tr>\n";
}

void append_outputs(const opcheck::Report& report, std::string* out) {
  *out +=
      "<h2>Outputs</h2>\n<div class=\"filters\">"
      "<button data-result=\"\" aria-pressed=\"true\">all</button>";
  for (const char* result : {"FAILED", "ERROR", "NOT_SUPPORTED", "PASS"})
    *out += "<button class=\"" + std::string(result) + "\" data-result=\"" + result +
            "\" aria-pressed=\"false\">" + result + "</button>";
  *out +=
      "<input id=\"search\" type=\"search\" placeholder=\"type, id, reason ...\" "
      "aria-label=\"search\"><span id=\"shown\"></span></div>\n";
  *out +=
      "<table id=\"outputs\"><thead><tr><th>id</th><th>type</th><th>output</th><th>result</th>"
      "<th>reason</th>";
  for (const char* name : report.by_rounding ? kRoundingNames : kStandardNames)
    *out += "<th class=\"number\">" + std::string(name) + "</th>";
  *out += "<th>tensor</th><th>worst element</th><th>node</th></tr></thead><tbody>\n";
  for (const CheckOutcome outcome : {CheckOutcome::Failed, CheckOutcome::Error,
                                     CheckOutcome::NotSupported, CheckOutcome::Pass}) {
    for (const CaseResult& one : report.cases) {
      for (const OutputRow& row : one.rows) {
        if (row.outcome == outcome) append_row(one, row, out);
      }
    }
  }
  *out += "</tbody></table>\n";
}

}  // namespace

std::string opcheck_html(const opcheck::Report& report) {
  std::string out(kHead);
  const opcheck::Report::Counts counts = report.counts();
  const bool good = counts.failed == 0 && counts.errors == 0;
  out += "<h1 class=\"" + std::string(good ? "PASS" : "FAILED") + "\">" +
         escaped(opcheck_verdict(report)) + "</h1>\n";
  out += "<p><code>" + escaped(report.path) + "</code>, judged by " + escaped(judged_by(report)) +
         "</p>\n";
  if (!report.coverage.empty()) out += "<p>" + escaped(report.coverage) + "</p>\n";
  for (const std::string& warning : report.warnings)
    out += "<p class=\"NOT_SUPPORTED\">" + escaped(warning) + "</p>\n";
  append_totals(report, &out);
  append_outputs(report, &out);
  return out + std::string(kScript);
}

}  // namespace assay::report
