// SPDX-License-Identifier: Apache-2.0
// One function for each member of the object. Numbers that JSON does not have become null or words.
#include "report/comparison_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "report/judged_rows.hpp"
#include "report/rank_errors.hpp"
#include "report/verdict_json.hpp"

namespace assay::report {
namespace {

using Json = nlohmann::ordered_json;
using compare::Sheet;

constexpr size_t kWorst = 10;

Json number(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json texts(const std::vector<std::string>& list) {
  Json json = Json::array();
  for (const std::string& one : list) json.push_back(repair_utf8(one));
  return json;
}

Json counts_json(const compare::Comparison& comparison) {
  const compare::Comparison::Counts counts = comparison.counts();
  return {{"pairs", counts.pairs},
          {"identical", counts.identical},
          {"beyond_limits", comparison.judged ? Json(counts.failed) : Json(nullptr)},
          {"unreadable", counts.unreadable},
          {"left_out", counts.filtered}};
}

Json sheets_json(const compare::Comparison& comparison) {
  Json list = Json::array();
  for (const Sheet& sheet : comparison.sheets)
    list.push_back({{"name", repair_utf8(sheet.name)},
                    {"pairs", sheet.rows.size()},
                    {"unmatched", sheet.matching.unmatched.size()},
                    {"coverage_percent", number(sheet.matching.coverage_percent())}});
  return list;
}

Json row_json(const compare::Row& row, const compare::Comparison& comparison) {
  Json json = {{"name", repair_utf8(row.label)}, {"step", row.token_id}, {"rank", row.rank}};
  json["error"] = number(error_of(row));
  json["beyond_limit"] =
      comparison.judged ? Json(row.outcome == compare::Outcome::Fail) : Json(nullptr);
  const std::string& reason = row.comparable ? row.exceeded : row.fail_reason;
  json["reason"] = reason.empty() ? Json(nullptr) : Json(repair_utf8(reason));
  return json;
}

Json worst_json(const compare::Comparison& comparison) {
  Json list = Json::array();
  for (const compare::Row* row : comparison.worst_rows(kWorst))
    list.push_back(row_json(*row, comparison));
  return list;
}

Json rank_json(const RankErrors& one) {
  return {{"pairs", one.pairs},
          {"different", one.different},
          {"unreadable", one.unreadable},
          {"worst", number(one.worst)}};
}

/// Null for less than three ranks.
Json ranks_json(const compare::Comparison& comparison) {
  const auto summary = summarise_ranks(comparison, comparison.parallel);
  if (!summary) return nullptr;
  Json beside = Json::array();
  for (const RankErrors& one : summary->beside) {
    Json json = {{"rank", one.rank}};
    json["groups"] = Json::object();
    if (const auto places = comparison.parallel.find(one.rank);
        places != comparison.parallel.end()) {
      for (const auto& [group, place] : places->second) json["groups"][group] = place.rank;
    }
    json.update(rank_json(one));
    json["first"] = row_json(*one.first_beside, comparison);
    beside.push_back(std::move(json));
  }
  Json others = rank_json(summary->all_peers);
  others["ranks"] = summary->peers;
  return {{"sentence", summary->sentence.empty() ? Json(nullptr) : Json(summary->sentence)},
          {"beside_peers", std::move(beside)},
          {"others", std::move(others)}};
}

/// Rows by what is said of them, of the sheet that shows most; sheets of graphs show one each.
Json verdicts_json(const ComparisonSummary& summary) {
  if (summary.verdict == nullptr) return nullptr;
  Json json = Json::object();
  for (const Sheet& sheet : summary.comparison.sheets) {
    const bool shows_all = sheet.graph >= 0 || &sheet == &summary.comparison.sheets.back();
    if (!shows_all || sheet.matching.pairs.size() != sheet.rows.size()) continue;
    for (const RowVerdict& row : judge_rows(*summary.verdict, summary.mine, sheet)) {
      const std::string_view name = locate::judgement_name(row.verdict);
      Json& count = json[name.empty() ? "none" : std::string(name)];
      count = count.is_null() ? 1 : count.get<int64_t>() + 1;
    }
  }
  return json;
}

}  // namespace

std::string comparison_json(const ComparisonSummary& summary) {
  const compare::Comparison& comparison = summary.comparison;
  Json json = {{"golden", repair_utf8(comparison.golden_path)},
               {"mine", repair_utf8(comparison.mine_path)}};
  json["counts"] = counts_json(comparison);
  json["sheets"] = sheets_json(comparison);
  json["worst"] = worst_json(comparison);
  json["ranks"] = ranks_json(comparison);
  json["verdicts"] = verdicts_json(summary);
  json["gaps"] = texts(comparison.gaps);
  std::vector<std::string> notes = summary.notes;
  notes.insert(notes.end(), comparison.notes.begin(), comparison.notes.end());
  json["notes"] = texts(notes);
  json["warnings"] = texts(comparison.warnings);
  json["files"] = texts(summary.files);
  json["verdict"] =
      summary.verdict == nullptr ? Json(nullptr) : Json::parse(verdict_json(*summary.verdict));
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace assay::report
