// SPDX-License-Identifier: Apache-2.0
#include "report/xlsx.hpp"

#include <gtest/gtest.h>

#include "formats/zip.hpp"
#include "report/mark.hpp"

namespace assay::report {
namespace {

std::string part_of(const std::string& book, const std::string& name) {
  const auto archive = formats::read_zip(as_bytes(book));
  return std::string(as_text(formats::read_zip_entry(*archive, *archive->find(name))->bytes));
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Table numbers(int64_t count) {
  Table table{"numbers", {"n"}, {}};
  for (int64_t i = 0; i < count; ++i) table.rows.push_back({Cell::of(i)});
  return table;
}

TEST(Xlsx, ALinkFindsTheSheetOnWhichALongTableGoesOn) {
  Table summary{"summary", {"n"}, {{Cell::of("a")}, {Cell::of("b")}, {Cell::of("c")}}};
  summary.title = Cell::of("sentence");
  summary.links = {{.row = 0, .column = 0, .table = 0, .target = 2},
                   {.row = 1, .column = 0, .table = 0, .target = 3},
                   {.row = 2, .column = 0, .table = 0}};
  const Table tables[] = {numbers(5), summary};

  // A header and three rows: 0 1 2, then 3 4. The summary's sentence and header leave room for two.
  const std::string book = *xlsx_bytes(tables, {.opens_on = 1, .max_sheet_rows = 4});

  const std::string names = part_of(book, "xl/workbook.xml");
  EXPECT_TRUE(holds(names, "\"numbers (2)\"") && holds(names, "\"summary (2)\"")) << names;
  EXPECT_TRUE(holds(names, "activeTab=\"2\"")) << names;
  const std::string first = part_of(book, "xl/worksheets/sheet3.xml");
  EXPECT_TRUE(holds(first, "<hyperlink ref=\"A3\" location=\"'numbers'!A4\"/>")) << first;
  EXPECT_TRUE(holds(first, "<hyperlink ref=\"A4\" location=\"'numbers (2)'!A2\"/>")) << first;
  const std::string second = part_of(book, "xl/worksheets/sheet4.xml");
  EXPECT_TRUE(holds(second, "<hyperlink ref=\"A3\" location=\"'numbers'!A1\"/>")) << second;
}

TEST(Xlsx, APlainWorkbookHasNeitherMarksNorFormatsNorLinks) {
  Table table{"t", {"result", "x"}, {{Cell::of("fail"), Cell::of(1e-9)}}};
  mark_cells(&table);
  table.title = Cell::of("sentence");
  table.links = {{.row = 0, .column = 0, .table = 0}};
  const Table tables[] = {table};

  const std::string plain =
      part_of(*xlsx_bytes(tables, {.plain = true}), "xl/worksheets/sheet1.xml");
  const std::string rich = part_of(*xlsx_bytes(tables), "xl/worksheets/sheet1.xml");

  EXPECT_TRUE(holds(plain, "<c r=\"B2\"><v>1e-09</v></c>")) << plain;
  EXPECT_FALSE(holds(plain, "sentence") || holds(plain, "hyperlink")) << plain;
  EXPECT_TRUE(holds(rich, "<v>1e-09</v>") && holds(rich, "sentence") && holds(rich, "hyperlink"))
      << rich;
}

TEST(Xlsx, ALongCellIsCutBetweenCharacters) {
  // 32767 bytes end inside the last of the two-byte characters.
  std::string text;
  for (int i = 0; i < 16384; ++i) text += "\xC3\xA4";
  const Table tables[] = {{"t", {"x"}, {{Cell::of(text)}}}};

  const std::string sheet = part_of(*xlsx_bytes(tables), "xl/worksheets/sheet1.xml");

  EXPECT_TRUE(holds(sheet, text.substr(0, 32766) + "\xEF\xBF\xBD</t>"));
}

TEST(Marks, FollowTheColumnsThatJudge) {
  Table table{
      "t",
      {"result", "note", "verdict", "other"},
      {{Cell::of("fail"), Cell::of("dtype differs"), Cell::of("own_error"), Cell::of("fail")},
       {Cell::of("ERROR"), Cell{}, Cell::of("noise"), Cell{}},
       {Cell::of("pass").marked(Mark::Good), Cell{}, Cell::of("drift"), Cell{}}}};

  mark_cells(&table);

  const auto marks = [&](size_t row) {
    std::vector<Mark> found;
    for (const Cell& cell : table.rows[row]) found.push_back(cell.mark);
    return found;
  };
  EXPECT_EQ(marks(0), (std::vector{Mark::Bad, Mark::Doubt, Mark::Bad, Mark::None}));
  EXPECT_EQ(marks(1), (std::vector{Mark::Doubt, Mark::None, Mark::None, Mark::None}));
  EXPECT_EQ(marks(2), (std::vector{Mark::Good, Mark::None, Mark::Doubt, Mark::None}));
}

}  // namespace
}  // namespace assay::report
