// SPDX-License-Identifier: Apache-2.0
// Reports of one worked example and of what else a case may come to.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/text.hpp"
#include "formats/csv.hpp"
#include "reference/wide.hpp"
#include "report/html/opcheck_page.hpp"
#include "report/opcheck_files.hpp"
#include "report/opcheck_table.hpp"
#include "report/opcheck_terminal.hpp"
#include "report/terminal_text.hpp"
#include "vendor/ait/report.hpp"

namespace assay::report {
namespace {

using measure::Standard;
using opcheck::CaseResult;
using opcheck::CheckOutcome;
using opcheck::OutputRow;
using ::testing::HasSubstr;
using ::testing::Not;

Tensor wide(const std::vector<double>& values) {
  reference::Wide array(Dims{1, static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), array.data());
  return reference::to_tensor(std::move(array));
}

/// A row as the checker fills it.
OutputRow judged_row(const std::vector<double>& golden, const std::vector<double>& mine) {
  OutputRow row;
  const Tensor g = wide(golden);
  const Tensor m = reference::narrow(wide(mine).view, DType::Float16).value();
  row.accuracy = {opcheck::Precision::VectorFusion, 4};
  row.measures = measure::measures_of(g.view, m.view, {.atb_error = 0x1p-9}).value();
  for (size_t i = 0; i < opcheck::kStandardCount; ++i)
    row.judgements[i] =
        measure::judge(static_cast<Standard>(i), row.measures, row.accuracy, nullptr);
  row.compared = true;
  row.dtype = "float16";
  row.shape = m.view.shape;
  row.legacy = measure::legacy_limits(Standard::LegacyO4, DType::Float16);
  row.outcome = row.judgements[0].passed ? CheckOutcome::Pass : CheckOutcome::Failed;
  row.reason = row.judgements[0].reason;
  if (row.measures.worst_index >= 0)
    row.worst = measure::neighbourhood_of(g.view, m.view, row.measures.worst_index);
  return row;
}

OutputRow worked_row() {
  const double scale = 1 / std::sqrt(7.5 + 0.000009999999747378752);
  return judged_row({scale, 2 * scale, -3 * scale, 2 * scale},
                    {0.365234375, 0.73095703125, -1.0986328125, 0.73046875});
}

CaseResult case_of(const std::string& id, const std::string& type, std::vector<OutputRow> rows) {
  CaseResult result;
  result.description.id = id;
  result.description.op_type = type;
  result.description.folder = "dump/tensors/0_1/2/" + id + "_" + type;
  result.description.node = id + "_" + type;
  result.description.step = "2";
  result.description.parameters = R"({"layerType": 1})";
  result.variant = "norm";
  result.rows = std::move(rows);
  for (size_t i = 0; i < result.rows.size(); ++i) result.rows[i].index += i;
  result.outcome = CheckOutcome::Pass;
  for (const OutputRow& row : result.rows) {
    if (row.outcome != CheckOutcome::Pass) result.outcome = row.outcome;
  }
  return result;
}

CaseResult unjudged_case(const std::string& id, const std::string& type, CheckOutcome outcome,
                         const std::string& reason) {
  OutputRow row;
  row.outcome = outcome;
  row.reason = reason;
  return case_of(id, type, {row});
}

opcheck::Report example_report() {
  opcheck::Report report;
  report.path = "dump/tensors/0_1/2";
  report.cases.push_back(case_of("0_0", "RmsNormOperation", {worked_row()}));
  report.cases.push_back(
      case_of("0_2", "SplitOperation", {judged_row({1, 2}, {1, 2}), judged_row({3, 4}, {3, 4})}));
  report.cases.push_back(unjudged_case("0_10", "LinearOperation", CheckOutcome::NotSupported,
                                       "<b>linearType</b> 9 is unknown"));
  CaseResult unknown = unjudged_case("1", "FooOperation", CheckOutcome::NotSupported,
                                     "FooOperation is not in the table of operations");
  unknown.description.in_table = false;
  report.cases.push_back(unknown);
  report.unlisted = {{"Prefill_layer", 1}};
  return report;
}

/// Value of a column in a row, as csv shows it.
std::string value(const std::vector<std::string>& columns, const std::vector<Cell>& row,
                  const std::string& column) {
  const auto found = std::find(columns.begin(), columns.end(), column);
  EXPECT_NE(found, columns.end()) << column;
  return row.at(static_cast<size_t>(found - columns.begin())).csv_text();
}

TEST(OpcheckTable, TheOriginalsColumnsComeFirst) {
  const std::vector<std::string> columns = OpcheckTable({}).columns();
  EXPECT_EQ(
      std::vector<std::string>(columns.begin(), columns.begin() + 11),
      (std::vector<std::string>{"op_id", "op_name", "op_param", "tensor_path", "out_tensor_id",
                                "precision_standard", "precision_result", "rel_precision_rate(%)",
                                "max_rel_error", "fail_reason", "rank"}));
  const std::vector<std::string> all =
      OpcheckTable(
          {.absolute = true, .cosine = true, .kl = true, .optimization = true, .custom = {"mine"}})
          .columns();
  EXPECT_EQ(
      std::vector<std::string>(all.begin() + 9, all.begin() + 16),
      (std::vector<std::string>{"abs_precision_rate(%)", "max_abs_error", "cosine_similarity",
                                "kl_divergence", "mine", "fail_reason", "optimization_closed"}));
  const std::vector<std::string> o1 =
      OpcheckTable({.style = vendor::ait::opcheck_style()}).columns();
  EXPECT_EQ(o1[6], "excuted_information");
  EXPECT_EQ(o1[7], "precision_result(%)");
  EXPECT_EQ(o1[9], "rank");
}

TEST(OpcheckTable, WorkedExample) {
  const OpcheckTableOptions options{.cosine = true};
  const auto columns = OpcheckTable(options).columns();
  const auto rows = OpcheckTable(options).rows(case_of("0_0", "RmsNormOperation", {worked_row()}));
  ASSERT_EQ(rows.size(), 1u);
  ASSERT_EQ(rows[0].size(), columns.size());
  const auto at = [&](const char* column) { return value(columns, rows[0], column); };
  EXPECT_EQ(at("op_id"), "0_0");
  EXPECT_EQ(at("out_tensor_id"), "0");
  EXPECT_EQ(at("precision_standard"), "99.9%(error<0.0009765625)");
  EXPECT_EQ(at("precision_result"), "FAILED");
  EXPECT_EQ(at("rel_precision_rate(%)"), "75.0000000000000000");
  EXPECT_EQ(at("max_rel_error"), "0.0029296875000000");
  EXPECT_EQ(at("cosine_similarity"), "0.9999992685");
  EXPECT_EQ(at("fail_reason"), "relative pass rate: 75.0 not met standart: 99.9.");
  EXPECT_EQ(at("result"), "FAILED");
  EXPECT_EQ(at("standard"), "atb");
  EXPECT_EQ(at("atb_rate(%)"), "75.0");
  EXPECT_EQ(at("precision_type"), "VECTOR_FUSION");
  EXPECT_EQ(at("shape"), "[1, 4]");
  EXPECT_EQ(at("ulp_0"), "2");
  EXPECT_EQ(at("ulp_4"), "1");
  EXPECT_EQ(at("worst_index"), "[0, 2]");
  EXPECT_EQ(at("worst_mine"), "-1.0986328125");
  EXPECT_THAT(at("worst_neighbours"), HasSubstr("mine 0.3652344 0.730957 -1.098633 0.7304688"));
}

TEST(OpcheckTable, TheOldestVersionKnowsNoSmallGoldens) {
  // 0.002 where golden is 0: msit looks away, ait counts it (0.002 > 1e-3).
  const CaseResult result = case_of("0", "FillOperation", {judged_row({0, 1}, {0.002, 1})});
  OpcheckTableOptions options{.absolute = true};
  EXPECT_EQ(value(OpcheckTable(options).columns(), OpcheckTable(options).rows(result).at(0),
                  "abs_precision_rate(%)"),
            "100.0000000000000000");
  options.style = vendor::ait::opcheck_style();
  const auto columns = OpcheckTable(options).columns();
  const auto row = OpcheckTable(options).rows(result).at(0);
  EXPECT_EQ(value(columns, row, "abs_precision_result(%)"), "50.0000000000000000");
  EXPECT_EQ(value(columns, row, "max_abs_error").substr(0, 6), "0.0020");
  EXPECT_EQ(value(columns, row, "excuted_information"), "execution failed");
  EXPECT_EQ(value(columns, row, "precision_standard"), "99.9%(error<0.001)");
}

TEST(OpcheckTable, EachOutputHasItsOwnRowAndTheCaseItsVerdict) {
  const auto columns = OpcheckTable({}).columns();
  const auto rows =
      OpcheckTable({}).rows(case_of("3", "SplitOperation", {judged_row({1}, {1}), worked_row()}));
  ASSERT_EQ(rows.size(), 2u);
  for (const auto& row : rows) {
    EXPECT_EQ(value(columns, row, "precision_result"), "FAILED");
    EXPECT_EQ(value(columns, row, "fail_reason"),
              "relative pass rate: 75.0 not met standart: 99.9.");
  }
  EXPECT_EQ(value(columns, rows[0], "rel_precision_rate(%)"), "100.0000000000000000");
  EXPECT_EQ(value(columns, rows[0], "result"), "PASS");
  EXPECT_EQ(value(columns, rows[0], "worst_index"), "");
}

TEST(OpcheckTable, ARowWithoutResultSaysWhy) {
  const auto columns = OpcheckTable({}).columns();
  const auto rows = OpcheckTable({}).rows(
      unjudged_case("0_1", "SortOperation", CheckOutcome::Error, "intensor0 is not in the dump"));
  const auto at = [&](const char* column) { return value(columns, rows.at(0), column); };
  ASSERT_EQ(rows[0].size(), columns.size());
  for (const char* column : {"out_tensor_id", "precision_standard", "rel_precision_rate(%)"})
    EXPECT_EQ(at(column), "NaN");
  EXPECT_EQ(at("precision_result"), "FAILED");
  EXPECT_EQ(at("fail_reason"), "intensor0 is not in the dump");
  EXPECT_EQ(at("result"), "ERROR");
  EXPECT_EQ(at("atb_result"), "ERROR");
  EXPECT_EQ(at("max_abs"), "");
}

TEST(OpcheckTable, ResultsInPlaceAreNamedByTheirInput) {
  OutputRow first = judged_row({1}, {1});
  first.in_place = true;
  first.index = 2;
  const OutputRow second = first;
  const auto columns = OpcheckTable({}).columns();
  const auto rows =
      OpcheckTable({}).rows(case_of("0", "ReshapeAndCacheOperation", {first, second}));
  EXPECT_EQ(value(columns, rows[1], "output"), "intensor3 after");
  EXPECT_EQ(value(columns, rows[1], "out_tensor_id"), "1");
}

class TemporaryFolder : public ::testing::Test {
 protected:
  TemporaryFolder() {
    char pattern[] = "/tmp/assay-opcheck-XXXXXX";
    folder = ::mkdtemp(pattern);
  }
  ~TemporaryFolder() override { std::filesystem::remove_all(folder); }
  [[nodiscard]] static std::string content(const std::string& path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  [[nodiscard]] size_t file_count() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                             std::filesystem::directory_iterator()));
  }
  std::string folder;
};

using OpcheckFiles = TemporaryFolder;

TEST_F(OpcheckFiles, GrowWhileCasesFinishAndAreCompleteAtTheEnd) {
  const opcheck::Report report = example_report();
  auto writer =
      OpcheckWriter::open({folder, "20250102_030405", {"csv", "jsonl", "xlsx", "html"}}, {});
  ASSERT_TRUE(writer) << writer.error().describe();
  ASSERT_TRUE(writer->add(report.cases[0]));
  const std::string live = folder + "/opcheck_result_20250102_030405.csv.tmp";
  EXPECT_EQ(formats::read_csv(content(live)).rows.size(), 2u);  // names and one row

  for (size_t i = 1; i < report.cases.size(); ++i) ASSERT_TRUE(writer->add(report.cases[i]));
  const auto paths = writer->finish(report);
  ASSERT_TRUE(paths) << paths.error().describe();
  ASSERT_EQ(paths->size(), 4u);
  EXPECT_EQ((*paths)[0], folder + "/opcheck_result_20250102_030405.csv");
  EXPECT_EQ(file_count(), 4u);
  const auto table = formats::read_csv(content((*paths)[0]));
  ASSERT_EQ(table.rows.size(), 6u);
  EXPECT_EQ(table.rows[2][0], "0_2");
  EXPECT_EQ(table.rows[3][4], "1");
  for (const auto& row : table.rows) EXPECT_EQ(row.size(), table.rows[0].size());
  const std::string lines = content((*paths)[1]);
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 5);
  EXPECT_THAT(lines, HasSubstr("\"atb_rate(%)\": 75.0,"));
  struct stat info{};
  ASSERT_EQ(::stat((*paths)[2].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u & ~0640u, 0u);
}

TEST_F(OpcheckFiles, ATakenNameGetsANumber) {
  const opcheck::Report report = example_report();
  for (const char* expected : {"opcheck_result_t.csv", "opcheck_result_t_1.csv"}) {
    auto writer = OpcheckWriter::open({folder, "t", {"csv"}}, {});
    ASSERT_TRUE(writer);
    const auto paths = writer->finish(report);  // adds what was not added yet
    ASSERT_TRUE(paths);
    EXPECT_EQ(paths->front(), folder + "/" + expected);
  }
}

/// Files may have so many bytes until the object goes; a disk that is full answers in the same way.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    previous_ = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, previous_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*previous_)(int);
};

TEST_F(OpcheckFiles, AFullDiskLeavesNoTemporaryFiles) {
  const opcheck::Report report = example_report();
  auto writer = OpcheckWriter::open({folder, "t", {"csv", "jsonl", "xlsx"}}, {});
  ASSERT_TRUE(writer);
  {
    const FileSizeLimit full(100);
    EXPECT_FALSE(writer->add(report.cases[0]));
  }
  EXPECT_EQ(file_count(), 0u);
}

TEST_F(OpcheckFiles, AWorkbookThatDoesNotFitLeavesTheRowsUnderTheirName) {
  const opcheck::Report report = example_report();
  auto writer = OpcheckWriter::open({folder, "t", {"xlsx"}}, {});
  ASSERT_TRUE(writer);
  for (const auto& result : report.cases) ASSERT_TRUE(writer->add(result));
  {
    const FileSizeLimit full(100);
    EXPECT_FALSE(writer->finish(report));
  }
  EXPECT_EQ(file_count(), 1u);
  EXPECT_THAT(content(folder + "/opcheck_result_t.jsonl"), HasSubstr("RmsNormOperation"));
}

TEST_F(OpcheckFiles, AWorkbookAloneLeavesRowsBehindWhenTheRunDies) {
  const opcheck::Report report = example_report();
  {
    auto writer = OpcheckWriter::open({folder, "t", {"xlsx"}}, {});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->add(report.cases[0]));
  }  // without finish()
  EXPECT_THAT(content(folder + "/opcheck_result_t.jsonl.tmp"), HasSubstr("RmsNormOperation"));
  auto writer = OpcheckWriter::open({folder, "t", {"xlsx"}}, {});
  ASSERT_TRUE(writer) << writer.error().describe();
  ASSERT_TRUE(writer->finish(report));
  EXPECT_EQ(file_count(), 2u);  // the rows of the dead run, the workbook
}

TEST_F(OpcheckFiles, NothingIsWrittenWithoutCases) {
  auto writer = OpcheckWriter::open({folder, "t", {"csv", "xlsx"}}, {});
  ASSERT_TRUE(writer);
  EXPECT_TRUE(writer->finish({})->empty());
  EXPECT_EQ(file_count(), 0u);
}

TEST_F(OpcheckFiles, AFolderThatCannotBeWrittenIsNamed) {
  EXPECT_FALSE(OpcheckWriter::open({folder + "/x", "t", {"pdf"}}, {}));
  std::ofstream(folder + "/file") << "x";
  const auto writer = OpcheckWriter::open({folder + "/file", "t", {"csv"}}, {});
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().path, folder + "/file");
}

TEST(OpcheckPage, HoldsTheVerdictAndEveryOutput) {
  const opcheck::Report report = example_report();
  const html::Page page = html::opcheck_page(report, OpcheckTable({}));
  EXPECT_EQ(page.sentence, opcheck_verdict(report));
  EXPECT_EQ(page.content["tone"], "bad");
  EXPECT_EQ(page.content["table"]["rows"], report.counts().outputs);
  EXPECT_EQ(page.content["totals"]["rows"].back()[0], "Prefill_layer");
}

TEST(OpcheckTerminal, FitsTheWidthAndEndsWithTheVerdict) {
  opcheck::Report report = example_report();
  report.cases.push_back(
      unjudged_case("5", "ASurprisinglyLongOperationNameOperation", CheckOutcome::Error,
                    "a reason that does not fit into one line of sixty columns, "
                    "with a word_that_is_much_longer_than_the_whole_line_of_sixty_columns"));
  for (const int width : {60, 80, 140}) {
    const std::string text =
        opcheck_terminal_report(report, {.width = width, .files = {"a/report.xlsx"}});
    for (const std::string_view line : split(text, '\n'))
      EXPECT_LE(line.size(), static_cast<size_t>(width)) << line;
  }
  const std::string text =
      opcheck_terminal_report(report, {.width = 120, .files = {"a/report.xlsx"}});
  EXPECT_THAT(text, HasSubstr("  0_0  RmsNormOperation  outtensor0  FAILED\n"
                              "    1 of 4 elements is off by more than 2^-9 * max(1, |golden|)\n"
                              "    worst [0, 2]: golden -1.095444, mine -1.098633\n"));
  EXPECT_THAT(text, HasSubstr("LinearOperation 1: <b>linearType</b> 9 is unknown"));
  EXPECT_THAT(text, HasSubstr("not judged: Prefill_layer 1"));
  EXPECT_THAT(text, HasSubstr("report: a/report.xlsx\n"
                              "wrong: 1 FAILED and 1 ERROR of 5 operations, first 0_0 "
                              "RmsNormOperation\n"));
}

TEST(OpcheckTerminal, VerdictOfARightRun) {
  opcheck::Report report;
  EXPECT_EQ(opcheck_verdict(report), "nothing checked");
  report.cases.push_back(case_of("0", "FillOperation", {judged_row({1}, {1})}));
  EXPECT_EQ(opcheck_verdict(report), "right: 1 of 1 operation passes");
}

TEST(Wrapped, BreaksAtBlanks) {
  EXPECT_EQ(wrapped("one two three", 2, 10), "  one two\n  three\n");
  EXPECT_EQ(wrapped("abcdefghijkl", 0, 8), "ab...jkl\n");
}

}  // namespace
}  // namespace assay::report
