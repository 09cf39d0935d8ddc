// SPDX-License-Identifier: Apache-2.0
#include "formats/csv.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace assay::formats {
namespace {

using testing::ElementsAre;
using Row = std::vector<std::string>;

std::string row_text(const Row& cells, const CsvOptions& options = {}) {
  std::string out;
  append_csv_row(cells, options, &out);
  return out;
}

TEST(WriteCsv, QuotesAsPythonDoes) {
  // Oracle: csv.writer(f).writerow(...) of Python 3.11 with its default dialect.
  EXPECT_EQ(row_text({"a", "b"}), "a,b\r\n");
  EXPECT_EQ(row_text({"(1, 5)", "()"}), "\"(1, 5)\",()\r\n");
  EXPECT_EQ(row_text({"say \"hi\"", "x"}), "\"say \"\"hi\"\"\",x\r\n");
  EXPECT_EQ(row_text({"two\nlines", "cr\rhere"}), "\"two\nlines\",\"cr\rhere\"\r\n");
  EXPECT_EQ(row_text({""}), "\"\"\r\n");
  EXPECT_EQ(row_text({"", ""}), ",\r\n");
  EXPECT_EQ(row_text({}), "\r\n");
  EXPECT_EQ(row_text({" a ", "'b'"}), " a ,'b'\r\n");
}

TEST(WriteCsv, GivesTheStatisticsRowOfTheOriginal) {
  std::string out;
  append_csv_row({"root.model.norm", "LlamaRMSNorm", "Output", "0", "torch.float16", "(2, 2)",
                  "4.0", "-2.0", "1.5", "5.4772257804870605"},
                 {}, &out);
  EXPECT_EQ(out,
            "root.model.norm,LlamaRMSNorm,Output,0,torch.float16,\"(2, "
            "2)\",4.0,-2.0,1.5,5.4772257804870605\r\n");
}

TEST(WriteCsv, DefusesFormulasButNotNumbers) {
  const CsvOptions options{.line_end = "\n", .defuse_formulas = true};
  EXPECT_EQ(row_text({"=1+1", "@x", "+a", "-b"}, options), "'=1+1,'@x,'+a,'-b\n");
  EXPECT_EQ(row_text({"-1.5e-3", "+2", "-inf", "nan"}, options), "-1.5e-3,+2,-inf,nan\n");
  EXPECT_EQ(row_text({"=HYPERLINK(\"x\",1)", ""}, options), "\"'=HYPERLINK(\"\"x\"\",1)\",\n");
  EXPECT_EQ(row_text({"=1+1"}), "=1+1\r\n");
}

TEST(CsvNumber, KnowsNumbers) {
  for (const char* text : {"1", "-1", "+1", "1.5", "1e400", "-1e-05", "inf", "-inf", "nan"}) {
    EXPECT_TRUE(is_csv_number(text)) << text;
  }
  for (const char* text : {"", "+", "-", "+-1", "1x", "1,5", " 1", "-1+1", "0x10"}) {
    EXPECT_FALSE(is_csv_number(text)) << text;
  }
}

TEST(ReadCsv, AcceptsEveryLineEnd) {
  EXPECT_THAT(read_csv("a,b\r\nc,d\ne,f\rg").rows,
              ElementsAre(Row{"a", "b"}, Row{"c", "d"}, Row{"e", "f"}, Row{"g"}));
}

TEST(ReadCsv, KeepsWhatQuotesProtect) {
  EXPECT_THAT(read_csv("\"a,\"\"b\"\"\r\nc\",\"\"\n").rows, ElementsAre(Row{"a,\"b\"\r\nc", ""}));
  EXPECT_THAT(read_csv("\"a\"b,c\"d\"\n").rows, ElementsAre(Row{"ab", "c\"d\""}));
}

TEST(ReadCsv, AcceptsMarksRaggedRowsAndEmptyCells) {
  EXPECT_THAT(read_csv("\xef\xbb\xbf"
                       "a\n\n1,2,\n,")
                  .rows,
              ElementsAre(Row{"a"}, Row{"1", "2", ""}, Row{"", ""}));
  EXPECT_TRUE(read_csv("").rows.empty());
  EXPECT_TRUE(read_csv("\r\n\r\n").rows.empty());
  EXPECT_THAT(read_csv("a;b,c", ';').rows, ElementsAre(Row{"a", "b,c"}));
}

TEST(ReadCsv, SaysWhenTheFileWasCutInsideAQuote) {
  const CsvTable table = read_csv("a,\"b\nc");
  EXPECT_TRUE(table.unterminated_quote);
  EXPECT_THAT(table.rows, ElementsAre(Row{"a", "b\nc"}));
  EXPECT_FALSE(read_csv("a,\"b\"").unterminated_quote);
}

RC_GTEST_PROP(WriteCsv, ThenReadCsvIsTheIdentity,
              (const std::vector<std::vector<std::string>>& rows)) {
  std::string text;
  std::vector<Row> expected;
  for (const Row& row : rows) {
    if (row.empty()) continue;  // a row without cells is an empty line, which the reader drops
    append_csv_row(row, {}, &text);
    expected.push_back(row);
  }
  // A cell that begins with the byte order mark's bytes would lose them at the very start.
  RC_PRE(!text.starts_with("\xef\xbb\xbf"));
  RC_ASSERT(read_csv(text).rows == expected);
}

}  // namespace
}  // namespace assay::formats
