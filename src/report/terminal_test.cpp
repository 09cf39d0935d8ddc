// SPDX-License-Identifier: Apache-2.0
#include "report/terminal.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/display.hpp"
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

TEST(Shorten, KeepsTheNumberOfTheLayerAndTheLastPart) {
  const std::string name = "model.layers.17.self_attn.rotary.q_proj output";
  EXPECT_EQ(shorten(name, 80), name);
  EXPECT_EQ(shorten(name, 45), "model.layers.17...rotary.q_proj output");
  EXPECT_EQ(shorten(name, 37), "model.layers.17...q_proj output");
  EXPECT_EQ(shorten(name, 30), "...layers.17...q_proj output");
  EXPECT_EQ(shorten(name, 22), "...17...q_proj output");
  EXPECT_EQ(shorten("model.layers.5.mlp", 9), "...5.mlp");
}

TEST(Shorten, KeepsTheNumberWhereTheLastPartMustBeCut) {
  EXPECT_EQ(shorten("model.layers.5.self_attn input kwargs.hidden_states", 23),
            "5.self_attn...en_states");
  EXPECT_EQ(shorten("17_Decoder_layer/4_Mlp/3_ElewiseOperation/0_MulF16Kernel output 0", 40),
            "17/4_Mlp...0_MulF16Kernel output 0");
  const std::string name = "h.123.attn::aten._scaled_dot_product_flash_attention.default.0 output";
  for (size_t width = 16; width < name.size(); ++width) {
    EXPECT_NE(shorten(name, width).find("123"), std::string::npos) << shorten(name, width);
    EXPECT_LE(shorten(name, width).size(), width);
  }
}

TEST(Shorten, KeepsBothEndsOfAPath) {
  EXPECT_EQ(shorten("/data/user/runs/yesterday/golden", 24), "/data...yesterday/golden");
  EXPECT_EQ(shorten(std::string(100, 'x'), 11), "xxxx...xxxx");
}

TEST(Shorten, NeverCutsACharacter) {
  const std::string wide = "\xE5\xB1\x82";  // one character, two columns
  std::string name;
  for (int i = 0; i < 20; ++i) name += wide;
  for (size_t width = 1; width < 40; ++width) {
    const std::string text = shorten(name, width);
    EXPECT_EQ(repair_utf8(text), text) << width;
    EXPECT_LE(display_columns(text), width);
  }
  EXPECT_EQ(shorten("abc\xC3\xA9zzz", 7), "abc\xC3\xA9zzz");  // seven columns
}

TEST(PadRight, CountsColumnsNotBytes) {
  EXPECT_EQ(pad_right("\xC3\xA9", 3), "\xC3\xA9  ");
  EXPECT_EQ(pad_left("\xE5\xB1\x82", 3), " \xE5\xB1\x82");
}

TEST(Hanging, IndentsWhatFollowsAndCutsNoWord) {
  EXPECT_EQ(hanging("one two three", 2, 9), "one two\n  three");
  EXPECT_EQ(hanging("  indented averyveryverylongword", 4, 14),
            "  indented\n    averyveryverylongword");
}

Comparison twenty_layers() {
  std::vector<Row> rows;
  for (int i = 0; i < 20; ++i) {
    rows.push_back(make_row(
        i % 2, "model.layers." + std::to_string(i) + ".self_attn.rotary_emb.inner output 0", i));
  }
  rows[3].comparable = false;
  rows[3].fail_reason = "shapes [4, 64] and [4, 65] differ, and nothing of golden fits into them";
  Comparison comparison = make_comparison(std::move(rows));
  comparison.notes = {
      "golden stores step 0 in two parts, and they are put together, which takes "
      "a sentence that is longer than most terminals are wide"};
  comparison.gaps = {"golden is incomplete", "mine has no partner for 12 tensors of golden"};
  comparison.judged = true;
  for (Row& row : comparison.sheets[0].rows) row.outcome = Outcome::Fail;
  comparison.sheets[0].rows[0].exceeded = "rel_l2 0.014037944033486235 > 0.01";
  return comparison;
}

TEST(TerminalReport, FitsEveryWidth) {
  for (const int width : {60, 80, 120, 200}) {
    const std::string text = terminal_report(twenty_layers(), {.width = width, .files = {}});
    for (const std::string_view line : split(text, '\n'))
      EXPECT_LE(display_columns(line), static_cast<size_t>(width)) << line;
    EXPECT_EQ(text.find('\033'), std::string::npos);
    // Nothing essential is lost.
    for (int i = 11; i < 20; ++i) {
      const std::string number = width > 60 ? "layers." + std::to_string(i) : std::to_string(i);
      EXPECT_NE(text.find(number), std::string::npos) << width << text;
    }
    EXPECT_NE(text.find("0.014037944033486235"), std::string::npos);
    EXPECT_NE(text.find("[4, 65] differ"), std::string::npos) << text;
  }
}

TEST(TerminalReport, ShowsWholeNamesWhereThereIsRoom) {
  const std::string text = terminal_report(twenty_layers(), {.width = 120, .files = {}});
  EXPECT_NE(text.find("model.layers.19.self_attn.rotary_emb.inner output 0 "), std::string::npos);
  EXPECT_EQ(text.find("..."), std::string::npos);
}

TEST(TerminalReport, DrawsTheErrorByLayer) {
  const std::string text = terminal_report(
      twenty_layers(), {.blocks = false, .first_bad = "model.layers.7.mlp", .files = {}});
  // Level of layer n: 8 log(n) / log(19), rounded down; layer 0 is equal, 3 has no number.
  EXPECT_NE(text.find("error by layer (relative L2, 1 to 2e+1)\n"
                      "  model.layers.0-2,4-19  _.:=++***%%%%######\n" +
                      std::string(31, ' ') + "^ 7\n"),
            std::string::npos)
      << text;
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
  EXPECT_NE(text.find("\n11 model.x"), std::string::npos) << text;
  EXPECT_NE(text.find("\n2 model.x"), std::string::npos) << text;
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
