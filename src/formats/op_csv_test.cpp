// SPDX-License-Identifier: Apache-2.0
#include "formats/op_csv.hpp"

#include <gtest/gtest.h>

namespace assay::formats {
namespace {

const std::vector<OpCsvTensor> kLinearInputs = {{"float16", "nd", "1,4096", "/d/in0.bin"},
                                                {"float16", "nd", "4096,4096", "/d/in1.bin"}};
const std::vector<OpCsvTensor> kLinearOutputs = {{"float16", "nd", "1,4096", "/d/out0.bin"}};
constexpr std::string_view kLinearParam = R"({"hasBias":false,"transposeB":true})";
constexpr std::string_view kLinearRow =
    R"(1|LinearOperation_2_01|LinearOperation_2_0|{"hasBias":false,"transposeB":true}|2|)"
    "float16;float16|nd;nd|1,4096;4096,4096|1|float16|nd|1,4096|customize;customize| |"
    "/d/in0.bin;/d/in1.bin|/d/out0.bin| | | | |NO_ERROR";

TEST(OpCsvHeader, HasTheHistoricalColumns) {
  EXPECT_EQ(op_csv_header(),
            "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|"
            "OutFormat|OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|"
            "TestLevel|FromModel|SocVersion|ExpectedError");
}

TEST(OpCsvRow, IsTheHistoricalLineByteForByte) {
  EXPECT_EQ(op_csv_row(1, "LinearOperation_2_0", kLinearParam, kLinearInputs, kLinearOutputs),
            kLinearRow);
}

TEST(OpCsvRow, LeavesTheFileOfAnUnsavedTensorEmpty) {
  const std::vector<OpCsvTensor> inputs = {{"float", "nd", "", ""}, {"float", "nd", "2", "/b"}};
  EXPECT_EQ(op_csv_row(3, "Add_0", "{}", inputs, {}),
            "3|Add_03|Add_0|{}|2|float;float|nd;nd|;2|0||||customize;customize| |;/b|| | | | |"
            "NO_ERROR");
}

TEST(OpCsvRow, CountsToTenThousand) {
  const std::string row = op_csv_row(10001, "Add", "{}", {}, {});
  EXPECT_TRUE(row.starts_with("10000|Add10000|Add|")) << row;
}

TEST(OpCsvRow, IsEmptyWhenASpreadsheetWouldRunACell) {
  for (const char* name : {"=1+1", "+x", "@x", "%x", "-x"})
    EXPECT_EQ(op_csv_row(1, name, "{}", {}, {}), "") << name;
  EXPECT_EQ(op_csv_row(1, "Add", "=cmd", {}, {}), "");
  // A shape that is not known is written -1; the parameter may be a negative number.
  const std::vector<OpCsvTensor> unknown = {{"float", "nd", "-1,4", ""}};
  EXPECT_NE(op_csv_row(1, "Add", "-1", unknown, {}), "");
}

TEST(OpCsvRow, StaysOneLine) {
  const std::string row = op_csv_row(1, "Add", "a\nb\r\nc", {}, {});
  EXPECT_EQ(row.find_first_of("\r\n"), std::string::npos);
  EXPECT_NE(row.find("|a b  c|"), std::string::npos) << row;
}

TEST(ReadOpCsv, GivesBackWhatWasWritten) {
  const std::string text = std::string(op_csv_header()) + "\n" + std::string(kLinearRow) + "\n";
  const OpCsv table = read_op_csv(text);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.damaged_lines, 0u);
  const OpCsvRow& row = table.rows[0];
  EXPECT_EQ(row.case_num, 1u);
  EXPECT_EQ(row.op_name, "LinearOperation_2_0");
  EXPECT_EQ(row.op_param, kLinearParam);
  ASSERT_EQ(row.inputs.size(), 2u);
  EXPECT_EQ(row.inputs[1].dtype_text, "float16");
  EXPECT_EQ(row.inputs[1].format, "nd");
  EXPECT_EQ(row.inputs[1].shape, "4096,4096");
  EXPECT_EQ(row.inputs[1].file, "/d/in1.bin");
  ASSERT_EQ(row.outputs.size(), 1u);
  EXPECT_EQ(row.outputs[0].shape, "1,4096");
}

TEST(ReadOpCsv, ReadsTheFirstVersionWithoutFiles) {
  const OpCsv table = read_op_csv(
      "1|Add_01|Add_0|{}|1|float|nd|2,3|1|float|nd|2,3|customize| | | | | | | |NO_ERROR\n");
  ASSERT_EQ(table.rows.size(), 1u);
  ASSERT_EQ(table.rows[0].inputs.size(), 1u);
  EXPECT_EQ(table.rows[0].inputs[0].shape, "2,3");
  EXPECT_EQ(table.rows[0].inputs[0].file, "");
}

TEST(ReadOpCsv, TellsNoTensorFromAScalar) {
  const OpCsv table = read_op_csv("1|Add_01|Add_0|{}|0||||1|float|nd||| | | | | | | |NO_ERROR\n");
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_TRUE(table.rows[0].inputs.empty());
  ASSERT_EQ(table.rows[0].outputs.size(), 1u);
  EXPECT_EQ(table.rows[0].outputs[0].shape, "");
}

TEST(ReadOpCsv, GivesSeparatorsToTheParameter) {
  const std::string row = op_csv_row(1, "Kernel", "a|b|c", kLinearInputs, kLinearOutputs);
  const OpCsv table = read_op_csv(row);
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].op_param, "a|b|c");
  EXPECT_EQ(table.rows[0].inputs[0].file, "/d/in0.bin");
}

TEST(ReadOpCsv, SkipsEmptyLinesAndCountsBrokenOnes) {
  // An empty line is what the originals leave for a row with a formula; the last line was cut off.
  const std::string text = std::string(op_csv_header()) + "\r\n\n" + std::string(kLinearRow) +
                           "\r\n\n2|Add_12|Add_1|{}|1|flo";
  const OpCsv table = read_op_csv(text);
  EXPECT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.damaged_lines, 1u);
}

TEST(ReadOpCsv, DoesNotBelieveHugeCounts) {
  const OpCsv table = read_op_csv(
      "x|A|A|{}|18446744073709551615|float|nd|2|99999999999999999999|float|nd|2|customize| | | | "
      "| | | |NO_ERROR");
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0].case_num, 0u);
  EXPECT_EQ(table.rows[0].inputs.size(), 1u);
  EXPECT_EQ(table.rows[0].outputs.size(), 1u);
}

}  // namespace
}  // namespace assay::formats
