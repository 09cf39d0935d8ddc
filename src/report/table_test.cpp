// SPDX-License-Identifier: Apache-2.0
#include "report/table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace assay::report {
namespace {

/// Row i is (i, i / 2, "row i").
Table made_table(size_t size) {
  return {"t", {"n", "half", "text"}, TableRows(size, [](size_t row) {
            return Cells{Cell::of(row), Cell::of(static_cast<double>(row) / 2),
                         Cell::of("row " + std::to_string(row))};
          })};
}

TEST(Table, RowsThatAreMadeAreWrittenInOrderWhoeverMakesThem) {
  constexpr size_t kRows = 20'000;  // many times what one thread makes at once
  std::string expected = "n,half,text\n";
  for (size_t i = 0; i < kRows; ++i)
    expected += std::to_string(i) + "," + std::to_string(i / 2) + (i % 2 == 0 ? ".0" : ".5") +
                ",row " + std::to_string(i) + "\n";
  const Table table = made_table(kRows);
  size_t pieces = 0;
  std::string written;
  const Status status = write_csv({&table, 1}, true, [&](ByteSpan bytes) -> Status {
    ++pieces;
    written += as_text(bytes);
    return {};
  });
  EXPECT_TRUE(status);
  EXPECT_TRUE(written == expected);
  EXPECT_GT(pieces, 10u);
  EXPECT_TRUE(csv_text(table, true) == expected);
}

TEST(Table, AFailingSinkEndsTheWriting) {
  const Table table = made_table(20'000);
  size_t pieces = 0;
  const auto sink = [&](ByteSpan) -> Status {
    if (++pieces == 3) return fail(Errc::NoSpace, "full");
    return {};
  };
  EXPECT_EQ(write_csv({&table, 1}, true, sink).error().code, Errc::NoSpace);
  EXPECT_EQ(pieces, 3u);
  pieces = 0;
  EXPECT_EQ(write_jsonl(table, true, sink).error().code, Errc::NoSpace);
  EXPECT_EQ(pieces, 3u);
}

TEST(Table, ChangesReachRowsThatAreKeptAndRowsThatAreMade) {
  Table kept{"t", {"n"}, {{Cell::of(1)}, {Cell::of(2)}}};
  Table made{"t", {"n"}, TableRows(2, [](size_t row) { return Cells{Cell::of(row + 1)}; })};
  for (Table* table : {&kept, &made}) {
    table->rows.change([](Cells* cells) { cells->insert(cells->begin(), Cell::of("a")); });
    table->rows.change([](Cells* cells) { cells->push_back(Cell::of("z")); });
    table->columns = {"first", "n", "last"};
    EXPECT_EQ(csv_text(*table, true), "first,n,last\na,1,z\na,2,z\n");
  }
  EXPECT_EQ(jsonl_text(made),
            "{\"level\": \"t\", \"first\": \"a\", \"n\": 1, \"last\": \"z\"}\n"
            "{\"level\": \"t\", \"first\": \"a\", \"n\": 2, \"last\": \"z\"}\n");
}

TEST(Table, SeveralOfTheSameColumnsAreOneFile) {
  const std::vector<Table> tables = {made_table(1), made_table(2)};
  std::string written;
  ASSERT_TRUE(write_csv(tables, true, [&](ByteSpan bytes) -> Status {
    written += as_text(bytes);
    return {};
  }));
  EXPECT_EQ(written, "n,half,text\n0,0.0,row 0\n0,0.0,row 0\n1,0.5,row 1\n");
}

TEST(Table, ListsOnlyTheRowsThatAReportHas) {
  compare::Comparison comparison;
  compare::Sheet sheet;
  for (int i = 0; i < 4; ++i) {
    compare::Row row;
    row.token_id = i;
    row.filtered = i == 1;
    sheet.rows.push_back(row);
  }
  const Table table = build_table(comparison, sheet);
  ASSERT_EQ(table.rows.size(), 3u);
  EXPECT_EQ(table.rows[0][0].integer, 0);
  EXPECT_EQ(table.rows[1][0].integer, 2);
  EXPECT_EQ(table.rows[2][0].integer, 3);
  EXPECT_EQ(build_table(comparison, sheet, {.keep_filtered = true}).rows.size(), 4u);
}

}  // namespace
}  // namespace assay::report
