// SPDX-License-Identifier: Apache-2.0
// One function for each group of keys; verdict_json() puts them into the order of the file.
#include "report/verdict_json.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "locate/verdict/sentence.hpp"

namespace assay::report {
namespace {

using Json = nlohmann::ordered_json;
using locate::Finding;
using locate::Verdict;

Json number(double value) {
  if (std::isnan(value)) return nullptr;
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// Names come from files and need not be UTF-8.
std::string text(std::string_view raw) { return repair_utf8(raw); }

Json text_or_null(std::string_view raw) {
  if (raw.empty()) return nullptr;
  return text(raw);
}

// records   of the run that the finding is about
Json finding_json(const Finding& finding,
                  const std::map<size_t, Verdict::RecordJudgement>& records) {
  const auto record = records.find(finding.mine_record);
  Json json;
  json["my"] = text(finding.node.empty() ? finding.module : finding.node);
  json["golden"] = text_or_null(finding.golden_node);
  json["module"] = text(finding.module);
  json["also"] = text_or_null(finding.also);
  json["module_type"] = text_or_null(finding.module_type);
  json["source"] = text_or_null(finding.source);
  json["op_type"] = text_or_null(finding.op_type);
  json["slot"] = text_or_null(finding.slot);
  json["step"] = finding.step;
  json["rank"] = finding.rank;
  json["verdict"] = kind_name(finding.kind);
  json["ratio"] = number(finding.ratio);
  json["e_in"] = number(finding.err_in);
  json["e_out"] = number(finding.err_out);
  json["e_own"] = number(finding.err_own);
  json["own_source"] = text_or_null(std::string(
      record == records.end() ? "" : locate::own_source_name(record->second.own_source)));
  json["floor"] = number(finding.noise_floor);
  json["amplification"] =
      number(finding.err_in > 0 ? finding.err_out / finding.err_in : std::nan(""));
  json["worst_ulp"] = number(finding.worst_ulp);
  json["allowed_ulp"] = number(finding.allowed_ulp);
  json["confidence"] = confidence_name(finding.confidence);
  json["hypothesis"] = text_or_null(finding.hypothesis);
  json["detail"] = text_or_null(finding.detail);
  json["text"] = text(locate::place_of(finding) + ": " + locate::clause_of(finding));
  return json;
}

Json findings_json(const std::vector<Finding>& findings,
                   const std::map<size_t, Verdict::RecordJudgement>& records) {
  Json list = Json::array();
  for (const Finding& finding : findings) list.push_back(finding_json(finding, records));
  return list;
}

Json coverage_json(const locate::Coverage& coverage) {
  Json json = {{"my_ops", coverage.operators},
               {"matched", coverage.paired},
               {"judged", coverage.judged},
               {"judgeable", coverage.judgeable},
               {"values", coverage.values},
               {"judged_around", coverage.judged_around},
               {"without_partner", coverage.without_partner},
               {"weights", coverage.weights},
               {"weights_compared", coverage.weights_compared},
               {"weights_by_function", coverage.weights_by_function}};
  json["unjudged"] = Json::object();
  for (const auto& [reason, count] : coverage.unjudged) json["unjudged"][text(reason)] = count;
  return json;
}

Json groups_json(const Verdict& verdict) {
  Json list = Json::array();
  for (const locate::Systematic& group : verdict.systematic) {
    list.push_back({{"pattern", text(group.pattern)},
                    {"verdict", kind_name(group.kind)},
                    {"members", group.members},
                    {"layers", group.layers}});
  }
  return list;
}

Json coarse_json(const Verdict& verdict) {
  Json list = Json::array();
  for (const locate::CoarseGroup& group : verdict.coarse) {
    list.push_back({{"pattern", text(group.pattern)},
                    {"members", group.members},
                    {"median_z", number(group.median_z)},
                    {"median_e2", number(group.median_e2)}});
  }
  return list;
}

Json chain_json(const Verdict& verdict) {
  Json list = Json::array();
  for (const locate::ChainLink& link : verdict.chain) {
    list.push_back(
        {{"my", text(link.module)}, {"step", link.step}, {"e_out", number(link.err_out)}});
  }
  return list;
}

Json choice_json(const locate::TokenChoice& choice) {
  return {{"step", choice.step},
          {"sequence", choice.sequence},
          {"position", choice.position},
          {"golden_token", choice.golden_token},
          {"my_token", choice.mine_token},
          {"kind", choice_name(choice.kind)},
          {"margin", number(choice.margin)},
          {"gap", number(choice.gap)},
          {"noise", number(choice.noise)},
          {"difference", number(choice.difference)},
          {"kl", number(choice.divergence)}};
}

Json token_json(const locate::TokenChoices& tokens) {
  if (tokens.positions == 0 && tokens.first.step < 0) return nullptr;
  const locate::TokenChoice& first = tokens.first;
  const bool differs = first.step >= 0;
  const auto known = [&](auto value) { return differs ? Json(value) : Json(nullptr); };
  Json json = {{"step", known(first.step)},
               {"near_tie", known(first.kind == locate::ChoiceKind::NearTie)},
               {"golden_token", known(first.golden_token)},
               {"my_token", known(first.mine_token)},
               {"margin", number(first.margin)},
               {"difference", number(first.difference)},
               {"positions", tokens.positions},
               {"padding", tokens.padding},
               {"not_finite", tokens.not_finite}};
  json["other_inputs_from"] =
      tokens.other_inputs_from < 0 ? Json(nullptr) : Json(tokens.other_inputs_from);
  json["other_choices"] = tokens.other_choices();
  json["near_ties"] = tokens.near_ties;
  json["by_chance"] = tokens.chances;
  json["unexplained"] = tokens.unexplained;
  json["largest_margin_of_noise"] = number(tokens.largest_near_tie);
  json["limit_of_noise"] = number(tokens.limit);
  json["kl_mean"] = number(tokens.kl_mean);
  json["kl_max"] = number(tokens.kl_max);
  json["kl_mean_without_ties"] = number(tokens.kl_mean_without_ties);
  json["kl_max_without_ties"] = number(tokens.kl_max_without_ties);
  json["choices"] = Json::array();
  for (const locate::TokenChoice& choice : tokens.choices)
    json["choices"].push_back(choice_json(choice));
  return json;
}

Json obligations_json(const Verdict& verdict) {
  Json list = Json::array();
  for (const locate::Obligation& one : verdict.obligations)
    list.push_back(
        {{"name", one.name}, {"holds", one.open.empty()}, {"open", text_or_null(one.open)}});
  return list;
}

Json power_json(const locate::Power& power) {
  if (std::isnan(power.error)) return nullptr;
  return {{"error", number(power.error)},
          {"module", text(power.module)},
          {"step", power.step},
          {"cancelled", power.cancelled}};
}

Json unjudged_json(const Verdict& verdict) {
  Json list = Json::array();
  for (const locate::UnjudgedSteps& one : verdict.unjudged_steps)
    list.push_back({{"of", steps_of_name(one.of)}, {"steps", one.steps}});
  return list;
}

Json notes_json(const Verdict& verdict) {
  Json list = Json::array();
  for (const std::string& note : verdict.notes) list.push_back(text(note));
  return list;
}

}  // namespace

std::string verdict_json(const Verdict& verdict) {
  const bool wrong = !verdict.candidates.empty();
  Json json;
  json["version"] = 1;
  json["outcome"] = outcome_name(verdict.outcome, verdict.order_known);
  json["sentence"] = text(locate::sentence(verdict));
  json["confidence"] = confidence_name(verdict.confidence);
  json["token"] = wrong ? Json(verdict.candidates.front().step) : Json(nullptr);
  json["level"] = verdict.level == locate::JudgedBy::Identity
                      ? Json(nullptr)
                      : Json(std::string(1, locate::letter_of(verdict.level)));
  json["golden_level"] = level_name(verdict.golden_level);
  json["my_level"] = level_name(verdict.mine_level);
  json["floor"] = text_or_null(std::string(locate::floor_name(verdict.floor)));
  json["coverage"] = coverage_json(verdict.coverage);
  json["order_known"] = verdict.order_known;
  json["first_bad"] = wrong && verdict.order_known
                          ? finding_json(verdict.candidates.front(), verdict.records)
                          : Json(nullptr);
  json["candidates"] = findings_json(verdict.candidates, verdict.records);
  json["suspicions"] = findings_json(verdict.suspicions, verdict.records);
  json["golden_findings"] = findings_json(verdict.golden_findings, {});
  json["systematic"] = groups_json(verdict);
  json["coarse"] = coarse_json(verdict);
  json["chain"] = chain_json(verdict);
  json["tokens"] = token_json(verdict.tokens);
  json["notes"] = notes_json(verdict);
  json["obligations"] = obligations_json(verdict);
  json["power"] = power_json(verdict.power);
  json["clean_up_to"] = verdict.clean_up_to < 0 ? Json(nullptr) : Json(verdict.clean_up_to);
  json["unjudged_steps"] = unjudged_json(verdict);
  json["reason"] = text_or_null(verdict.reason);
  json["next"] = text_or_null(verdict.next);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace assay::report
