// SPDX-License-Identifier: Apache-2.0
// Names of the enumerations and of places.
#include <algorithm>
#include <array>
#include <cstdio>

#include "base/numbers.hpp"
#include "locate/locate.hpp"

namespace assay::locate {

std::string_view level_name(CaptureLevel level) {
  switch (level) {
    case CaptureLevel::Operators:
      return "operators";
    case CaptureLevel::Leaves:
      return "leaf modules";
    case CaptureLevel::Modules:
      return "module outputs";
    case CaptureLevel::Layers:
      return "layer outputs";
    case CaptureLevel::Statistics:
      return "statistics";
    case CaptureLevel::Nothing:
      break;
  }
  return "nothing";
}

JudgedBy judged_by(CaptureLevel level) {
  switch (level) {
    case CaptureLevel::Operators:
      return JudgedBy::Operators;
    case CaptureLevel::Leaves:
      return JudgedBy::Leaves;
    case CaptureLevel::Modules:
      return JudgedBy::Modules;
    case CaptureLevel::Layers:
      return JudgedBy::Layers;
    case CaptureLevel::Statistics:
      return JudgedBy::MeasuredStatistics;
    case CaptureLevel::Nothing:
      break;
  }
  return JudgedBy::Identity;
}

std::string_view floor_name(Floor floor) {
  constexpr std::string_view kNames[] = {"", "model", "measured", "exact"};
  return kNames[static_cast<size_t>(floor)];
}

RowJudgement judgement_of(FindingKind kind) {
  // Findings are the first judgements behind None, in the same order.
  static_assert(static_cast<int>(RowJudgement::OwnError) ==
                static_cast<int>(FindingKind::OwnError) + 1);
  static_assert(static_cast<int>(RowJudgement::RankDivergence) ==
                static_cast<int>(FindingKind::RankDivergence) + 1);
  return static_cast<RowJudgement>(static_cast<uint8_t>(kind) + 1);
}

std::string_view kind_name(FindingKind kind) { return judgement_name(judgement_of(kind)); }

std::string_view confidence_name(Confidence confidence) {
  switch (confidence) {
    case Confidence::High:
      return "high";
    case Confidence::Medium:
      return "medium";
    case Confidence::Low:
      break;
  }
  return "low";
}

std::string_view outcome_name(Outcome outcome, bool order_known) {
  switch (outcome) {
    case Outcome::FirstWrong:
      return order_known ? "first_wrong" : "wrong";
    case Outcome::Clean:
      return "clean";
    case Outcome::CannotJudge:
      break;
  }
  return "cannot_judge";
}

bool is_transparent(std::string_view name) {
  constexpr std::array<std::string_view, 8> kTransparent = {
      "aten._to_copy.", "aten.to.",         "aten.clone.", "aten.alias.",
      "aten.detach.",   "aten.lift_fresh.", "aten.empty.", "aten.contiguous."};
  return std::ranges::any_of(kTransparent,
                             [name](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string percent_text(double share) {
  char text[32];
  // No exponents: 310 %, 12 %, 1.5 %, 0.0012 %.
  std::snprintf(text, sizeof(text), share < 0.1 ? "%.2g %%" : "%.0f %%", 100 * share);
  return text;
}

std::string operator_text(const Operator& one) {
  std::string text = one.name;
  const size_t dot = one.node.rfind('.');
  const std::optional<uint32_t> number =
      dot == std::string::npos ? std::nullopt : parse_number<uint32_t>(one.node.substr(dot + 1));
  if (number && *number > 0) text += " (" + std::to_string(*number + 1) + ")";
  return one.module.empty() ? text : text + " in " + one.module;
}

}  // namespace assay::locate
