// SPDX-License-Identifier: Apache-2.0
#include "report/terminal.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/text.hpp"
#include "report/table.hpp"
#include "report/terminal_text.hpp"

namespace assay::report {
namespace {

using compare::Comparison;
using compare::Outcome;
using compare::Row;

Row make_row(int64_t token, const std::string& label, double distance) {
  Row row;
  row.token_id = token;
  row.label = label;
  row.golden.path = "g/" + label;
  row.mine.path = "m/" + label;
  row.comparable = true;
  row.metrics.emplace();
  row.metrics->state = measure::PairState::Compared;
  row.metrics->relative_euclidean_distance = distance;
  row.metrics->cosine_similarity = 1;
  row.metrics->max_absolute_error = distance;
  row.identical = distance == 0;
  return row;
}

Comparison make_comparison(std::vector<Row> rows) {
  Comparison comparison;
  comparison.golden_path = "/a/long/path/to/the/golden/run/of/yesterday";
  comparison.golden_layout = comparison.mine_layout = run::Layout::TorchTree;
  comparison.mine_path = "mine";
  compare::Sheet sheet;
  sheet.name = "api";
  for (size_t i = 0; i < rows.size(); ++i) rows[i].order = i;
  sheet.rows = std::move(rows);
  comparison.sheets.push_back(std::move(sheet));
  return comparison;
}

TEST(Shorten, KeepsTheEndOfAName) {
  EXPECT_EQ(shorten("model.layers.5.mlp", 18), "model.layers.5.mlp");
  EXPECT_EQ(shorten("model.layers.5.mlp", 9), "....5.mlp");
  EXPECT_EQ(shorten("abc\xC3\xA9zzz", 7), "...zzz");  // not in the middle of a character
}

TEST(TerminalReport, FitsSixtyColumns) {
  std::vector<Row> rows;
  for (int i = 0; i < 20; ++i) {
    rows.push_back(make_row(
        i % 2, "model.layers." + std::to_string(i) + ".self_attn.rotary_emb.inner output 0", i));
  }
  const std::string text = terminal_report(make_comparison(rows), {.width = 60, .files = {}});
  for (const std::string_view line : split(text, '\n')) EXPECT_LE(line.size(), 60u) << line;
  EXPECT_EQ(text.find('\033'), std::string::npos);
}

TEST(TerminalReport, SortsByErrorAndLeavesEqualRowsOut) {
  const std::string text =
      terminal_report(make_comparison({make_row(0, "equal", 0), make_row(0, "small", 0.1),
                                       make_row(0, "large", 0.9)}),
                      {.worst_count = 10, .files = {}});
  EXPECT_LT(text.find("large"), text.find("small"));
  EXPECT_EQ(text.find("equal "), std::string::npos);
}

TEST(TerminalReport, NeverCutsTheTokenOff) {
  const std::string label = "model." + std::string(80, 'x') + " output";
  const std::string text = terminal_report(
      make_comparison({make_row(11, label, 0.5), make_row(2, label + "2", 0.4)}), {.files = {}});
  EXPECT_NE(text.find("\n11 ...x"), std::string::npos) << text;
  EXPECT_NE(text.find("\n2 ...x"), std::string::npos) << text;
}

TEST(Verdict, CountsAPairOfSeveralSheetsOnce) {
  Comparison comparison = make_comparison({make_row(0, "a", 0.5)});
  comparison.sheets.push_back(comparison.sheets[0]);
  EXPECT_EQ(verdict(comparison), "1 of 1 pairs differ; no limit was given, so none is judged");
  comparison.judged = true;
  for (compare::Sheet& sheet : comparison.sheets) sheet.rows[0].outcome = Outcome::Fail;
  EXPECT_EQ(verdict(comparison), "differs: 1 of 1 pair beyond the limits");
}

TEST(Verdict, SaysWhenNothingWasCompared) {
  EXPECT_EQ(verdict(make_comparison({})),
            "nothing compared: no tensor of golden has a partner in mine");
}

TEST(FirstFailedRow, IsTheFirstInExecutionOrderNotTheWorst) {
  Comparison comparison = make_comparison({make_row(1, "late", 0.9), make_row(0, "early", 0.2)});
  for (Row& row : comparison.sheets[0].rows) row.outcome = Outcome::Fail;
  ASSERT_NE(comparison.first_failed_row(), nullptr);
  EXPECT_EQ(comparison.first_failed_row()->label, "early");
}

TEST(CsvText, PrintsNumbersAsPandasDoes) {
  EXPECT_EQ(Cell::of(1e-5).csv_text(), "1e-05");
  EXPECT_EQ(Cell::of(2.0).csv_text(), "2.0");
  EXPECT_EQ(Cell::of(HUGE_VAL).csv_text(), "inf");
  EXPECT_EQ(Cell::of(std::nan("")).csv_text(), "");
}

}  // namespace
}  // namespace assay::report
