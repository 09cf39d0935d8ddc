// SPDX-License-Identifier: Apache-2.0
// One function for each form: text, JSON, GitHub's workflow commands and JUnit's XML. Texts of
// programs are escaped for the form they stand in.
#include "cli/gate/gate_report.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "cli/answer.hpp"
#include "cli/command.hpp"
#include "locate/verdict/sentence.hpp"
#include "report/markup.hpp"
#include "report/verdict_json.hpp"
#include "report/verdict_terminal.hpp"

namespace assay::cli {
namespace {

using Json = nlohmann::ordered_json;
using locate::VerdictOutcome;

std::string sentence_of(const GateOutcome& outcome) {
  return printable(locate::sentence(outcome.judged.verdict));
}

double all_seconds(const GateOutcome& outcome) {
  double sum = 0;
  for (const auto& [phase, seconds] : outcome.seconds) sum += seconds;
  return sum;
}

/// What a capture says of the software it ran in: "torch" -> "2.13.0+cpu".
std::vector<std::pair<std::string, std::string>> versions_of(
    const std::map<std::string, std::string>& properties) {
  constexpr std::string_view kHost = "host.";
  constexpr std::array<std::string_view, 6> kOfTheProcess = {
      "host.program", "host.hostname", "host.pid", "host.rank", "host.world_size", "host.threads"};
  std::vector<std::pair<std::string, std::string>> versions;
  for (const auto& [name, value] : properties) {
    if (!name.starts_with(kHost) || name.starts_with("host.command.") ||
        std::ranges::find(kOfTheProcess, name) != kOfTheProcess.end())
      continue;
    versions.emplace_back(name.substr(kHost.size()), value);
  }
  return versions;
}

Json versions_json(const std::map<std::string, std::string>& properties) {
  Json json = Json::object();
  for (const auto& [name, value] : versions_of(properties))
    json[repair_utf8(name)] = repair_utf8(value);
  return json;
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(repair_utf8(text));
}

/// "%", line ends, and in properties ":" and ",", as GitHub's runner reads them.
std::string github_escaped(std::string_view text, bool is_property) {
  std::string out;
  for (const char c : text) {
    const bool escape =
        c == '%' || c == '\r' || c == '\n' || (is_property && (c == ':' || c == ','));
    if (!escape) {
      out += c;
      continue;
    }
    char code[8];
    std::snprintf(code, sizeof(code), "%%%02X", static_cast<unsigned>(c));
    out += code;
  }
  return out;
}

/// "file=port/norm.py,line=12," of a source "WORKSPACE/port/norm.py:12"; empty for what is outside.
std::string github_place(const GateOutcome& outcome, const std::string& workspace) {
  const locate::Verdict& verdict = outcome.judged.verdict;
  if (verdict.candidates.empty()) return {};
  const std::string& source = verdict.candidates.front().source;
  const size_t colon = source.rfind(':');
  const std::string root = workspace + (workspace.ends_with('/') ? "" : "/");
  if (colon == std::string::npos || !source.starts_with(root) || colon <= root.size()) return {};
  return "file=" +
         github_escaped(printable(source.substr(root.size(), colon - root.size())), true) +
         ",line=" + github_escaped(printable(source.substr(colon + 1)), true) + ",";
}

/// Text of characters that XML 1.0 allows: printable() leaves no control characters, but U+FFFE and
/// U+FFFF, which become U+FFFD.
std::string xml_text(std::string_view text) {
  std::string out;
  const std::string clean = printable(text);
  for (size_t i = 0; i < clean.size(); ++i) {
    const std::string_view rest = std::string_view(clean).substr(i);
    if (rest.starts_with("\xEF\xBF\xBE") || rest.starts_with("\xEF\xBF\xBF")) {
      out += "\xEF\xBF\xBD";
      i += 2;
      continue;
    }
    report::append_markup(clean[i], &out);
  }
  return out;
}

std::string junit_property(const std::string& name, const std::string& value) {
  return "      <property name=\"" + xml_text(name) + "\" value=\"" + xml_text(value) + "\"/>\n";
}

std::string milliseconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f", seconds);
  return text;
}

std::string junit_properties(const GateRequest& request, const GateOutcome& outcome) {
  std::string out = junit_property("assay", ASSAY_VERSION);
  for (const auto& [side, properties] : {std::pair("golden.", &outcome.judged.golden_properties),
                                         std::pair("mine.", &outcome.judged.my_properties)}) {
    for (const auto& [name, value] : versions_of(*properties))
      out += junit_property(side + name, value);
  }
  for (const auto& [phase, seconds] : outcome.seconds)
    out += junit_property("seconds, " + phase, milliseconds_text(seconds));
  if (!request.golden.empty()) out += junit_property("golden", request.golden);
  out += junit_property("mine", request.mine);
  const locate::TokenChoices& tokens = outcome.judged.verdict.tokens;
  if (tokens.positions > 0) out += junit_property("near ties", std::to_string(tokens.near_ties));
  return out + junit_property("next", outcome.next);
}

/// What stands inside the test case: nothing where all is well.
std::string junit_result(const GateOutcome& outcome) {
  if (outcome.status == kSame) return {};
  const std::string sentence = xml_text(sentence_of(outcome));
  if (outcome.status == kCannotJudge) return "      <skipped message=\"" + sentence + "\"/>\n";
  return "      <failure type=\"" +
         std::string(
             outcome_name(outcome.judged.verdict.outcome, outcome.judged.verdict.order_known)) +
         "\" message=\"" + sentence + "\">" + sentence + "\n" + xml_text("next: " + outcome.next) +
         "</failure>\n";
}

std::string lines_of(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += xml_text(line) + "\n";
  return out;
}

}  // namespace

std::string gate_text(const GateRequest& request, const GateOutcome& outcome) {
  return report::verdict_text(outcome.judged.verdict,
                              {.width = std::max(60, terminal_width(STDOUT_FILENO)),
                               .colour = use_colour(STDOUT_FILENO),
                               .why = request.judge.verdict.why,
                               .tokens = request.judge.verdict.tokens,
                               .remarks = false,
                               .files = {}}) +
         next_line(outcome.next);
}

std::string gate_json(const GateRequest& request, const GateOutcome& outcome) {
  const locate::Verdict& verdict = outcome.judged.verdict;
  Json json = Json::parse(report::verdict_json(verdict));
  Json gate = {{"twin", text_or_null(outcome.twin)}};
  gate["commands"] = {{"golden", text_or_null(request.golden)},
                      {"mine", repair_utf8(request.mine)}};
  gate["seconds"] = Json::object();
  for (const auto& [phase, seconds] : outcome.seconds) gate["seconds"][phase] = seconds;
  gate["runs"] = {{"kept", outcome.kept},
                  {"golden", outcome.kept ? text_or_null(outcome.judged.golden_path) : Json()},
                  {"mine", outcome.kept ? text_or_null(outcome.judged.my_path) : Json()}};
  gate["versions"] = {{"assay", ASSAY_VERSION},
                      {"golden", versions_json(outcome.judged.golden_properties)},
                      {"mine", versions_json(outcome.judged.my_properties)}};
  gate["notes"] = Json::array();
  for (const std::string& note : outcome.judged.notes) gate["notes"].push_back(repair_utf8(note));
  gate["program_output"] = Json::array();
  for (const std::string& line : outcome.program_output)
    gate["program_output"].push_back(repair_utf8(line));
  json["gate"] = std::move(gate);
  return answer_json({"gate", outcome_name(verdict.outcome, verdict.order_known),
                      sentence_of(outcome), outcome.next, outcome.status},
                     json.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::string gate_github(const GateOutcome& outcome, const std::string& workspace) {
  const char* kind = outcome.status == kSame          ? "notice"
                     : outcome.status == kCannotJudge ? "warning"
                                                      : "error";
  const std::string mark(2, ':');
  return mark + kind + " " + github_place(outcome, workspace) + "title=assay gate" + mark +
         github_escaped(sentence_of(outcome), false) + "\n" + next_line(outcome.next);
}

std::string gate_junit(const GateRequest& request, const GateOutcome& outcome) {
  const std::string time = milliseconds_text(all_seconds(outcome));
  const bool failed = outcome.status == kDiffers;
  const bool skipped = outcome.status == kCannotJudge;
  const std::string counts = std::string("tests=\"1\" errors=\"0\" failures=\"") +
                             (failed ? "1" : "0") + "\" skipped=\"" + (skipped ? "1" : "0") +
                             "\" time=\"" + time + "\"";
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites " + counts +
         ">\n  <testsuite name=\"assay gate\" " + counts + ">\n    <properties>\n" +
         junit_properties(request, outcome) +
         "    </properties>\n    <testcase classname=\"assay.gate\" name=\"" +
         xml_text(request.first.empty() ? request.mine : request.first) + "\" time=\"" + time +
         "\">\n" + junit_result(outcome) + "      <system-out>" + xml_text(sentence_of(outcome)) +
         "\n" + xml_text("next: " + outcome.next) + "</system-out>\n      <system-err>" +
         lines_of(outcome.program_output) +
         "</system-err>\n    </testcase>\n  </testsuite>\n</testsuites>\n";
}

}  // namespace assay::cli
