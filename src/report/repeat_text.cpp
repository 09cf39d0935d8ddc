// SPDX-License-Identifier: Apache-2.0
// Text and JSON are made of one Outcome; equal layers share a line in both.
#include "report/repeat_text.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

using Json = nlohmann::ordered_json;
using repeat::Alike;
using repeat::Finding;
using repeat::Outcome;

constexpr size_t kListed = 10;

Json number_or_null(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json finding_json(const Finding& finding) {
  const repeat::Place& place = finding.difference.place;
  Json json;
  json["cause"] = repeat::cause_name(finding.difference.cause);
  json["node"] = repair_utf8(place.node);
  json["module"] = repair_utf8(place.module);
  json["operator"] = repair_utf8(place.operation);
  json["source"] = place.source.empty() ? Json() : Json(repair_utf8(place.source));
  json["rank"] = place.rank;
  json["step"] = place.step;
  json["call"] = place.call;
  json["slot"] = repair_utf8(finding.difference.slot);
  json["weight"] = finding.difference.leaf.empty() ? Json() : Json(finding.difference.leaf);
  json["inputs_not_captured"] = finding.difference.unseen;
  json["runs"] = finding.runs;
  json["results"] = finding.results;
  json["text"] = repair_utf8(repeat::finding_text(finding));
  return json;
}

Json alike_json(const std::vector<Finding>& findings) {
  Json list = Json::array();
  for (const Alike& one : repeat::alike(findings)) {
    list.push_back({{"cause", repeat::cause_name(one.cause)},
                    {"pattern", repair_utf8(one.pattern)},
                    {"operator", repair_utf8(one.operation)},
                    {"places", one.places},
                    {"runs", one.runs}});
  }
  return list;
}

Json elements_json(const Outcome& outcome) {
  if (!outcome.elements) return nullptr;
  const repeat::Elements& elements = *outcome.elements;
  Json json;
  json["kind"] = repeat::kind_name(elements.kind);
  json["count"] = elements.count;
  json["different"] = elements.different;
  json["largest_ulp"] = number_or_null(elements.largest_ulp);
  json["place"] = elements.worst_place;
  json["first"] = number_or_null(elements.first);
  json["other"] = number_or_null(elements.other);
  json["off_ulp"] = number_or_null(elements.off_ulp);
  json["allowed_ulp"] = number_or_null(elements.allowed_ulp);
  json["text"] = repeat::elements_text(elements, outcome.findings.front());
  return json;
}

/// At most kListed lines of what is alike, behind `head`.
std::string alike_lines(const std::string& head, const std::vector<Finding>& findings, int width) {
  const std::vector<Alike> all = repeat::alike(findings);
  std::string text;
  for (size_t i = 0; i < std::min(all.size(), kListed); ++i) {
    text += hanging(head + all[i].pattern + " " + all[i].operation + " (" +
                        std::string(repeat::cause_name(all[i].cause)) + "): " +
                        counted(all[i].places, "place") + ", " + counted(all[i].runs.size(), "run"),
                    2, static_cast<size_t>(width)) +
            "\n";
  }
  if (all.size() > kListed)
    text += head + "and " + std::to_string(all.size() - kListed) + " more, see --json\n";
  return text;
}

}  // namespace

std::string repeat_text(const Outcome& outcome, int width) {
  const auto columns = static_cast<size_t>(width);
  std::string text = hanging(repeat::sentence_of(outcome), 2, columns) + "\n";
  if (outcome.elements) {
    text += hanging("values: " + repeat::elements_text(*outcome.elements, outcome.findings.front()),
                    2, columns) +
            "\n";
  } else if (!outcome.elements_note.empty()) {
    text += hanging("values: " + outcome.elements_note, 2, columns) + "\n";
  }
  if (outcome.findings.size() > 1) text += alike_lines("all: ", outcome.findings, width);
  for (const repeat::ThreadGroup& group : outcome.threads) {
    if (group.against_first.empty()) continue;
    const std::string counts = std::to_string(group.threads) + " against " +
                               std::to_string(outcome.threads.front().threads);
    text += alike_lines("depends on the number of threads, " + counts + ": ", group.against_first,
                        width);
  }
  return text;
}

std::string pair_json(const repeat::Repetition& pair) {
  Json json;
  const std::vector<Finding> findings = pair.findings();
  json["alike"] = alike_json(findings);
  json["rows"]["findings"] = Json::array();
  for (const Finding& one : findings) {
    Json finding = finding_json(one);
    finding["index"] = one.difference.place.index;
    json["rows"]["findings"].push_back(std::move(finding));
  }
  json["rows"]["states"] = Json::array();
  for (const repeat::State state : *pair.grid().front().states)
    json["rows"]["states"].push_back(repeat::state_name(state));
  return json.dump();
}

std::string repeat_json(const Outcome& outcome) {
  Json json;
  json["repeats"] = outcome.repeats();
  json["sentence"] = repair_utf8(repeat::sentence_of(outcome));
  json["runs"] = outcome.runs;
  json["operators"] = outcome.operators;
  json["steps"] = outcome.steps;
  json["operators_without_digest"] = outcome.unseen;
  json["first"] = outcome.repeats() ? Json() : finding_json(outcome.findings.front());
  json["findings"] = Json::array();
  for (const Finding& one : outcome.findings) json["findings"].push_back(finding_json(one));
  json["alike"] = alike_json(outcome.findings);
  json["elements"] = elements_json(outcome);
  json["elements_note"] = outcome.elements_note.empty() ? Json() : Json(outcome.elements_note);
  json["threads"] = Json::array();
  for (const repeat::ThreadGroup& group : outcome.threads) {
    json["threads"].push_back({{"threads", group.threads},
                               {"runs", group.runs},
                               {"depends", alike_json(group.against_first)}});
  }
  json["depends_on_threads"] = outcome.depends_on_threads();
  json["next"] = outcome.next;
  return json.dump(2) + "\n";
}

}  // namespace assay::report
