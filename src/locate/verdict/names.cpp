// SPDX-License-Identifier: Apache-2.0
// Names of the enumerations of a verdict.
#include <cstdio>

#include "locate/verdict/locate.hpp"

namespace assay::locate {

JudgedBy judged_by(CaptureLevel level) {
  constexpr JudgedBy kLevels[] = {
      JudgedBy::Operators,          JudgedBy::Leaves,  JudgedBy::Modules, JudgedBy::Layers,
      JudgedBy::MeasuredStatistics, JudgedBy::Identity};
  return kLevels[static_cast<size_t>(level)];
}

std::string_view floor_name(Floor floor) {
  constexpr std::string_view kNames[] = {"", "model", "measured", "exact"};
  return kNames[static_cast<size_t>(floor)];
}

std::string_view choice_name(ChoiceKind kind) {
  constexpr std::string_view kNames[] = {"near_tie", "chance", "unexplained"};
  return kNames[static_cast<size_t>(kind)];
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
  constexpr std::string_view kNames[] = {"high", "medium", "low"};
  return kNames[static_cast<size_t>(confidence)];
}

std::string_view outcome_name(VerdictOutcome outcome, bool order_known) {
  constexpr std::string_view kNames[] = {"first_wrong", "clean", "cannot_judge"};
  return outcome == VerdictOutcome::FirstWrong && !order_known
             ? "wrong"
             : kNames[static_cast<size_t>(outcome)];
}

std::string_view steps_of_name(StepsOf of) {
  constexpr std::string_view kNames[] = {"both", "golden", "mine"};
  return kNames[static_cast<size_t>(of)];
}

std::string amount_text(double value) {
  if (value > 1e6) return "more than a million";
  char text[32];
  std::snprintf(text, sizeof(text), value < 9.95 ? "%.1f" : "%.0f", value);
  return text;
}

std::string times_text(double ratio) { return amount_text(ratio) + (ratio > 1e6 ? " times" : "x"); }

std::string percent_text(double share) {
  char text[32];
  // No long numbers, and none that says no more than its first words: 310 %, 1.5 %, 0.0012 %.
  if (share >= 1e7) return "more than a billion %";
  if (share >= 1e4) return "more than a million %";
  if (share >= 10) return "more than 1000 %";
  std::snprintf(text, sizeof(text), share < 0.1 ? "%.2g %%" : "%.0f %%", 100 * share);
  return text;
}

}  // namespace assay::locate
