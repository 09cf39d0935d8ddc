// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "locate/verdict/sentence.hpp"
#include "report/table.hpp"
#include "report/verdict_json.hpp"
#include "report/verdict_terminal.hpp"

namespace assay::report {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

locate::Verdict wrong_weight() {
  locate::Verdict verdict;
  verdict.outcome = locate::VerdictOutcome::FirstWrong;
  verdict.level = locate::JudgedBy::Operators;
  verdict.floor = locate::Floor::Model;
  verdict.confidence = locate::Confidence::High;
  locate::Finding finding;
  finding.kind = locate::FindingKind::Weight;
  finding.module = "model.layers.5.input_layernorm";
  finding.module_type = "LlamaRMSNorm";
  finding.slot = "weight";
  finding.ratio = 15.36;
  finding.err_in = 1e-3;
  finding.err_out = 3e-2;
  finding.hypothesis = "weight differs from golden by a constant factor 1.03";
  finding.mine_record = 7;
  verdict.candidates = {finding};
  verdict.coverage.judged = verdict.coverage.judgeable = 512;
  verdict.records[7].own_source = locate::OwnSource::Exact;
  return verdict;
}

TEST(VerdictJson, HasTheKeysOfTheDocument) {
  const auto json = nlohmann::json::parse(verdict_json(wrong_weight()));
  EXPECT_EQ(json["version"], 1);
  EXPECT_EQ(json["outcome"], "first_wrong");
  EXPECT_EQ(json["token"], 0);
  EXPECT_EQ(json["level"], "O");
  EXPECT_EQ(json["coverage"]["judged"], 512);
  EXPECT_EQ(json["first_bad"]["module"], "model.layers.5.input_layernorm");
  EXPECT_EQ(json["first_bad"]["verdict"], "weight");
  EXPECT_EQ(json["first_bad"]["own_source"], "exact");
  EXPECT_NEAR(json["first_bad"]["amplification"].get<double>(), 30, 1e-9);
  EXPECT_TRUE(json["first_bad"]["e_own"].is_null());
  EXPECT_EQ(json["candidates"].size(), 1u);
  EXPECT_TRUE(json["tokens"].is_null());
}

TEST(VerdictJson, SaysInfinityAsAWordAndNeverBreaksOnBytes) {
  locate::Verdict verdict = wrong_weight();
  verdict.candidates[0].ratio = INFINITY;
  verdict.candidates[0].module = "bad\xFFname";
  const auto json = nlohmann::json::parse(verdict_json(verdict));
  EXPECT_EQ(json["first_bad"]["ratio"], "Infinity");
}

TEST(VerdictText, EndsWithTheSentenceAndFitsSixtyColumns) {
  const std::string text = verdict_text(wrong_weight(), {.width = 60, .files = {}});
  EXPECT_THAT(text, StartsWith("first bad: model.layers.5.input_layernorm (LlamaRMSNorm,"));
  EXPECT_THAT(text, EndsWith("confidence high\n"));
  for (const std::string_view line : split(text, '\n')) EXPECT_LE(line.size(), 60u) << line;
}

locate::Verdict clean_with_a_tie() {
  locate::Verdict verdict;
  verdict.outcome = locate::VerdictOutcome::Clean;
  verdict.level = locate::JudgedBy::Operators;
  locate::TokenChoices& tokens = verdict.tokens;
  tokens.positions = 96;
  tokens.near_ties = 1;
  tokens.largest_near_tie = 0.4;
  tokens.kl_mean = 1e-5;
  tokens.choices = {{.step = 2,
                     .sequence = 1,
                     .position = 7,
                     .golden_token = 31999,
                     .mine_token = 5,
                     .margin = 0.02,
                     .gap = 0.02,
                     .noise = 0.05,
                     .divergence = 3e-4,
                     .kind = locate::ChoiceKind::NearTie}};
  return verdict;
}

TEST(VerdictText, ListsTheTokensOnRequest) {
  const locate::Verdict verdict = clean_with_a_tie();
  const std::string text = verdict_text(verdict, {.width = 60, .tokens = true, .files = {}});
  EXPECT_THAT(text, StartsWith("tokens: 1 of 96 positions chose another token: 1 by a near"));
  EXPECT_THAT(text, HasSubstr("\n    2    1      7   31999       5    0.4  0.0003 near_tie\n"));
  for (const std::string_view line : split(text, '\n')) EXPECT_LE(line.size(), 60u) << line;
  EXPECT_THAT(verdict_text(verdict, {.width = 60, .files = {}}), StartsWith("clean:"));
}

TEST(VerdictText, SaysFromWhereOnRunsAreNotTeacherForced) {
  locate::Verdict verdict = clean_with_a_tie();
  verdict.tokens.other_inputs_from = 3;
  verdict.tokens.padding = 5;
  const std::string text = verdict_text(verdict, {.width = 200, .tokens = true, .files = {}});
  EXPECT_THAT(text, HasSubstr("tokens: 5 positions of padding left out\n"));
  EXPECT_THAT(text, HasSubstr("tokens: from step 3 on mine was given other inputs than golden (not "
                              "teacher-forced, or another prompt), so what they choose there is "
                              "not compared\n"));
}

TEST(VerdictJson, CountsChoicesWhereNoneOfGenerationDiffers) {
  const auto tokens = nlohmann::json::parse(verdict_json(clean_with_a_tie()))["tokens"];
  EXPECT_TRUE(tokens["step"].is_null());
  EXPECT_EQ(tokens["positions"], 96);
  EXPECT_EQ(tokens["other_choices"], 1);
  EXPECT_EQ(tokens["near_ties"], 1);
  EXPECT_EQ(tokens["largest_margin_of_noise"], 0.4);
  EXPECT_EQ(tokens["kl_mean"], 1e-5);
  EXPECT_TRUE(tokens["kl_max"].is_null());
  EXPECT_EQ(tokens["choices"][0]["kind"], "near_tie");
  EXPECT_EQ(tokens["choices"][0]["golden_token"], 31999);
}

TEST(VerdictText, LeavesTheNextCommandToTheCommand) {
  locate::Verdict verdict;
  verdict.reason =
      "golden was captured without operators, and how far healthy runs differ was not measured";
  verdict.next = "assay dump --level operator -o golden-operators -- python run.py";
  EXPECT_EQ(verdict_text(verdict, {.width = 200, .files = {}}),
            "cannot judge: " + verdict.reason + "\n");
  EXPECT_EQ(nlohmann::json::parse(verdict_json(verdict))["next"], verdict.next);
  EXPECT_EQ(nlohmann::json::parse(verdict_json(verdict))["sentence"],
            "cannot judge: " + verdict.reason);
}

TEST(VerdictText, HasNoNumberThatNobodyCanRead) {
  locate::Verdict verdict;
  verdict.outcome = locate::VerdictOutcome::Clean;
  verdict.level = locate::JudgedBy::Operators;
  verdict.power = {.error = 4.37e47, .module = "model.norm", .step = 3};
  const std::string clean = locate::sentence(verdict);
  EXPECT_NE(clean.find("an error as large as the values would not have been seen in model.norm, "
                       "step 3"),
            std::string::npos)
      << clean;
  EXPECT_EQ(locate::percent_text(85456147187.77), "more than a billion %");
  EXPECT_EQ(locate::percent_text(12.3), "more than 1000 %");
  EXPECT_EQ(locate::percent_text(9.9), "990 %");
  EXPECT_EQ(locate::percent_text(3.1), "310 %");
  EXPECT_EQ(locate::times_text(8.64), "8.6x");
  EXPECT_EQ(locate::times_text(1e6), "1000000x");
  EXPECT_EQ(locate::times_text(4.2e15), "more than a million times");
  locate::Verdict wrong;
  wrong.outcome = locate::VerdictOutcome::FirstWrong;
  locate::Finding finding;
  finding.ratio = 4.2e15;
  finding.worst_ulp = 5.5e6;
  finding.allowed_ulp = 4;
  wrong.candidates = {finding};
  EXPECT_NE(locate::sentence(wrong).find("its own error is more than a million times what rounding "
                                         "explains, largest element more than a million ULP where "
                                         "4.0 is allowed"),
            std::string::npos)
      << locate::sentence(wrong);
  // Programs get the number itself.
  EXPECT_EQ(nlohmann::json::parse(verdict_json(wrong))["first_bad"]["ratio"], 4.2e15);
  // Beyond what its type may have: 16 bits 5 %, 32 bits 0.5 %.
  verdict.power = {.error = 0.07, .module = "model.norm", .step = 3, .allowed = 0.05};
  EXPECT_NE(locate::sentence(verdict).find("errors up to 7 % of a value would not have been seen "
                                           "in model.norm, step 3"),
            std::string::npos);
  verdict.power.error = 0.004;
  EXPECT_NE(locate::sentence(verdict).find("errors above 0.4 % of a value"), std::string::npos);
}

TEST(VerdictText, ControlCharactersOfNamesDoNotReachTheTerminal) {
  locate::Verdict verdict = wrong_weight();
  verdict.candidates[0].module = "evil\x1b[2J";
  EXPECT_EQ(verdict_text(verdict, {.files = {}}).find('\x1b'), std::string::npos);
}

TEST(VerdictColumns, StandAtTheRightEndAndOnlyOnRequest) {
  compare::Comparison comparison;
  compare::Row row;
  compare::Sheet sheet;
  sheet.rows = {row};
  const auto verdicts = std::make_shared<std::vector<RowVerdict>>(
      1, RowVerdict{.err_own = 0.25, .verdict = locate::RowJudgement::OwnError});
  EXPECT_EQ(build_table(comparison, sheet).columns.back(), "exceeded");
  const Table table = build_table(comparison, sheet, {.verdicts = verdicts});
  ASSERT_EQ(table.columns.size(), table.rows[0].size());
  EXPECT_EQ(table.columns.back(), "verdict_confidence");
  EXPECT_EQ(table.columns[table.columns.size() - 2], "verdict");
  EXPECT_EQ(table.rows[0][table.columns.size() - 2].text, "own_error");
  EXPECT_EQ(table.columns[table.columns.size() - 6], "err_own");
  EXPECT_EQ(table.rows[0][table.columns.size() - 6].number, 0.25);
}

}  // namespace
}  // namespace assay::report
