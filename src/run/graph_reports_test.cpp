// SPDX-License-Identifier: Apache-2.0
// What lies beside the operands in a dump of graph mode: statistics, reports of overflows and
// failures, watched outputs, graphs.json, names that were too long; and values of captured graphs.
#include <gtest/gtest.h>

#include <cmath>

#include "run/ge_names.hpp"
#include "run/load.hpp"
#include "run/open.hpp"
#include "run/run.hpp"
#include "run/sources/graphs_json.hpp"
#include "run/test_dump.hpp"
#include "run/test_folder.hpp"

namespace assay::run {
namespace {

using test::dump_bytes;
using test::dump_file;
using test::field;
using test::floats_of;
using test::Lines;
using test::number_field;
using test::open;
using test::summary;
using test::TestFolder;
using test::varint;

const std::string kToken = "worldsize1_global_rank0/20250102030405/0/graph_1/1/0/";
const std::string kHeader =
    "Input/Output,Index,Data Size,Data Type,Format,Shape,Max Value,Min Value,Avg Value,Count,"
    "Nan Count,Negative Inf Count,Positive Inf Count\n";

bool any_has(const std::vector<std::string>& lines, const std::string& part) {
  return std::any_of(lines.begin(), lines.end(), [&part](const std::string& line) {
    return line.find(part) != std::string::npos;
  });
}

// ---- names --------------------------------------------------------------------------------------

struct NameCase {
  const char* name;
  const char* op_type;
  const char* op_name;
  int64_t task;    // -1: none
  int64_t stream;  // -1: none
};

TEST(GeFileName, IsCountedFromItsTime) {
  for (const NameCase& c : std::vector<NameCase>{
           {"Add.Add_1.12.3.1735786845123456", "Add", "Add_1", 12, 3},
           {"Add.A.12.1735786845123456", "Add", "A", 12, -1},                    // no stream
           {"Add.A.7.12.3.1735786845123456", "Add", "A", 12, 3},                 // dump number
           {"Add.A.12.3.1735786845123456.4.1.2.0", "Add", "A", 12, 3},           // fused task
           {"Add.A.7.12.3.1735786845123456.FFTSPLUS.1.2.0", "Add", "A", 12, 3},  // the same, direct
           {"Add.A.12.3.1735786845123456.csv", "Add", "A", 12, 3},               // statistics
           {"Add.A_lxslice2.12.3.1735786845123456", "Add", "A_lxslice2", 12, 3}}) {  // slicing
    const auto parsed = parse_ge_file_name(c.name);
    ASSERT_TRUE(parsed.has_value()) << c.name;
    EXPECT_EQ(parsed->op_type, c.op_type) << c.name;
    EXPECT_EQ(parsed->op_name, c.op_name) << c.name;
    EXPECT_EQ(parsed->task ? static_cast<int64_t>(*parsed->task) : -1, c.task) << c.name;
    EXPECT_EQ(parsed->stream ? static_cast<int64_t>(*parsed->stream) : -1, c.stream) << c.name;
    EXPECT_EQ(parsed->time, "1735786845123456") << c.name;
  }
}

TEST(GeFileName, KnowsExceptions) {
  const auto brief = parse_ge_file_name("exception_info.3.12.1735786845123456");
  ASSERT_TRUE(brief.has_value());
  EXPECT_EQ(brief->kind, GeFileKind::Exception);
  EXPECT_EQ(brief->stream, 3u);
  EXPECT_EQ(brief->task, 12u);
  const auto kernel = parse_ge_file_name("te_add.fp16.3.12.0.5.1735786845123456", true);
  ASSERT_TRUE(kernel.has_value());
  EXPECT_EQ(kernel->op_name, "te_add.fp16");
  EXPECT_EQ(kernel->task, 12u);
}

TEST(GeFileName, LeavesOtherFilesAlone) {
  for (const char* name : {"graphs.json", "mapping.csv", "statistic.csv", "a.npy", "stray", "x.pt",
                           "Add.A.1.1.1735786845000001.tmp77", "kernel.o"})
    EXPECT_FALSE(is_ge_dump_name(name)) << name;
}

TEST(LongNames, AreReadWithAndWithoutAHeader) {
  using Names = std::map<std::string, std::string>;
  // Of the vendor: everything behind the first comma is the name.
  EXPECT_EQ(read_long_names("123,Add.a,b.1.1.1735786845000001\r\n"),
            (Names{{"123", "Add.a,b.1.1.1735786845000001"}}));
  EXPECT_EQ(read_long_names("file,name\nab12,\"Add.a,\"\"b.1.1.1735786845000001\"\ncd,Add.c\n"),
            (Names{{"ab12", "Add.a,\"b.1.1.1735786845000001"}, {"cd", "Add.c"}}));
}

TEST(LongNames, LeaveOutALineThatWasCut) {
  const std::string whole = "1,Add.a.1.1.1735786845000001\n2,Add.b.1.1.1735786845000002";
  EXPECT_EQ(read_long_names(whole).size(), 2u);  // only the line's end is missing
  for (size_t length = 30; length < whole.size(); ++length)
    EXPECT_FALSE(read_long_names(whole.substr(0, length)).contains("2")) << length;
  EXPECT_EQ(read_long_names("file,name\n1,\"Add.a.1.1.17357").size(), 0u);
}

// ---- statistics ---------------------------------------------------------------------------------

TEST(ReadGeTree, ReadsStatisticsWithoutTensors) {
  TestFolder folder;
  folder.put(kToken + "Add.Add_1.12.3.1735786845000010.csv",
             kHeader + "Input,0,8,DT_FLOAT,ND,2,1,-2,-0.5,2,0,0,0\n" +
                 "Output,1,12,DT_BF16,ND,2x3,3,1,2,6,1,0,2\n");
  const auto run = open(folder.path());
  EXPECT_EQ(run.layout, Layout::GeTree);
  EXPECT_EQ(summary(run), (Lines{"0/0/0 Add_1 input 0", "0/0/0 Add_1 output 1"}));
  const TensorRecord& output = run.records[1];
  EXPECT_FALSE(output.bytes.has_value());
  EXPECT_TRUE(output.problem.empty());
  EXPECT_EQ(output.dtype, DType::BFloat16);
  EXPECT_EQ(output.shape, (Dims{2, 3}));
  ASSERT_TRUE(output.stats.has_value());
  EXPECT_EQ(output.stats->count, 6);
  EXPECT_EQ(output.stats->max, 3);
  EXPECT_EQ(output.stats->mean, 2);
  EXPECT_EQ(output.stats->nan_count, 1);
  EXPECT_EQ(output.stats->positive_inf_count, 2);
  EXPECT_TRUE(std::isnan(output.stats->l2_norm));  // the table does not have it
  EXPECT_TRUE(output.stats_file.ends_with(".csv"));
}

TEST(ReadGeTree, GivesTensorsTheStatisticsBesideThem) {
  TestFolder folder;
  folder.put(kToken + "Add.A.1.1.1735786845000001", dump_file("A", {{1}, {2, 3}}, {{4}}));
  folder.put(kToken + "Add.A.1.1.1735786845000002.csv",
             kHeader + "Input,0,4,DT_FLOAT,ND,1,1,1,1,1,0,0,0\n" +
                 "Input,1,8,DT_FLOAT,ND,2,3,2,2.5,2,0,0,0\n" +
                 "Output,0,4,DT_FLOAT,ND,1,4,4,4,1,0,0,0\n");
  const auto run = open(folder.path());
  ASSERT_EQ(run.records.size(), 3u);
  EXPECT_TRUE(run.warnings.empty());
  EXPECT_EQ(run.coverage.captured, 1u);
  EXPECT_EQ(run.records[1].stats->mean, 2.5);
  EXPECT_EQ(floats_of(load_tensor(run.records[1]).value()), (std::vector<float>{2, 3}));
  EXPECT_EQ(run.records[2].stats->max, 4);
}

TEST(ReadGeTree, GoesOnPastATableThatCannotBeRead) {
  TestFolder folder;
  folder.put(kToken + "Add.A.1.1.1735786845000001.csv", "no table at all");
  folder.put(kToken + "Add.B.1.1.1735786845000002.csv",
             kHeader + "Input,x,8,DT_FLOAT,ND,2,1,-2,-0.5,2,0,0,0\n" +
                 "Output,0,8,DT_FLOAT,ND,2,1,-2,-0.5,2,0,0,0\n");
  const auto run = open(folder.path());
  ASSERT_EQ(run.records.size(), 2u);
  EXPECT_NE(run.records[0].problem.find("Add.A.1.1.1735786845000001.csv"), std::string::npos);
  EXPECT_EQ(run.records[1].node, "B");
  EXPECT_TRUE(any_has(run.warnings, "Add.B.1.1.1735786845000002.csv: row 1"));
}

// ---- operands that were left out ----------------------------------------------------------------

TEST(ReadGeTree, KeepsTheIndicesOfOperandsWhenOthersWereLeftOut) {
  // Two inputs, the file's second being operand 3 (arg_index, field 10), and the attribute that
  // says so.
  const auto input = [](uint64_t index) {
    return field(4, "\x08\x01\x10\x02" + field(3, field(1, varint(1))) + number_field(5, 4) +
                        number_field(10, index));
  };
  const std::string attribute = field(7, field(1, "assay_operand_index") + field(2, "arg_index"));
  TestFolder folder;
  folder.put(kToken + "Add.A.1.1.1735786845000001",
             dump_bytes(field(1, "2.0") + input(1) + input(3) + field(6, "A") + attribute,
                        std::string(8, '\0')));
  EXPECT_EQ(summary(open(folder.path())), (Lines{"0/0/0 A input 1", "0/0/0 A input 3"}));
}

// ---- reports ------------------------------------------------------------------------------------

/// u32 magic, version, then the block of an AI Core: valid, kind, reserved, length, eleven u64.
std::string overflow_payload(uint64_t stream, uint64_t task, uint64_t status) {
  std::string bytes;
  for (const uint32_t word : {0x5a5a5a5au, 0u, 1u, 0u, 0u, 88u}) append(bytes, word);
  for (const uint64_t word : {uint64_t{1}, stream, task, uint64_t{0}, uint64_t{0}, uint64_t{0},
                              uint64_t{0}, uint64_t{0}, uint64_t{0}, uint64_t{0}, status})
    append(bytes, word);
  bytes.resize(2048, '\0');
  return bytes;
}
std::string overflow_file(uint64_t stream, uint64_t task, uint64_t status) {
  // One output, uint8 [2048].
  const std::string output =
      field(3, "\x08\x04\x10\x02" + field(3, field(1, varint(2048))) + number_field(6, 2048));
  return dump_bytes(field(1, "2.0") + output + field(6, "Node_OpDebug"),
                    overflow_payload(stream, task, status));
}

TEST(ReadGeTree, NamesTheOperatorThatOverflowed) {
  TestFolder folder;
  folder.put(kToken + "Mul.Mul_3.7.2.1735786845000001", dump_file("Mul_3", {{1}}, {{2}}));
  folder.put(kToken + "Add.Add_1.7.3.1735786845000002", dump_file("Add_1", {{1}}, {{2}}));
  folder.put(kToken + "Opdebug.Node_OpDebug.90.5.1735786845000003", overflow_file(3, 7, 0x20));
  folder.put(kToken + "Opdebug.Node_OpDebug.91.5.1735786845000004", overflow_file(9, 99, 0x8));
  folder.put(kToken + "Opdebug.Node_OpDebug.92.5.1735786845000005", "cut off");
  const auto run = open(folder.path());
  ASSERT_EQ(run.findings.size(), 2u);
  EXPECT_NE(run.findings[0].find("Add_1 (AI Core, task 7, stream 3)"), std::string::npos);
  EXPECT_NE(run.findings[0].find("graph_1 step 0"), std::string::npos);
  EXPECT_NE(run.findings[1].find("an operator without a file"), std::string::npos);
  EXPECT_TRUE(any_has(run.warnings, "Node_OpDebug.92"));
  // The report stays a record, but none that is compared.
  const auto is_report = [](const TensorRecord& record) {
    return record.kind == RecordKind::OverflowReport;
  };
  EXPECT_EQ(std::count_if(run.records.begin(), run.records.end(), is_report), 3);
  EXPECT_EQ(run.coverage.captured, 2u);
}

TEST(ReadGeTree, NamesTheOperatorThatFailed) {
  TestFolder folder;
  folder.put("extra-info/data-dump/1/te_add.3.12.0.5.1735786845000001",
             dump_file("block/Add_1", {{1}}, {{2}}, field(9, "address is not aligned")));
  folder.put("extra-info/data-dump/1/te_add.o", "object code");
  const auto run = open(folder.path());
  EXPECT_EQ(summary(run), (Lines{"0/0/0 block/Add_1 input 0", "0/0/0 block/Add_1 output 0"}));
  EXPECT_EQ(run.records[0].kind, RecordKind::Exception);
  EXPECT_EQ(run.findings, (Lines{"block/Add_1 failed: address is not aligned"}));
  EXPECT_TRUE(run.warnings.empty());
}

TEST(ReadGeTree, NamesTheOperatorThatChangedAWatchedOutput) {
  TestFolder folder;
  folder.put(kToken + "Add.Add_1.1.0.1735786845000001", dump_file("Add_1", {}, {{1, 2}}));
  folder.put(kToken + "Add.Mul_To_Add_1.2.0.1735786845000002", dump_file("Add_1", {}, {{1, 2}}));
  folder.put(kToken + "Add.Sub_To_Add_1.3.0.1735786845000003", dump_file("Add_1", {}, {{1, 9}}));
  folder.put(kToken + "Add.Neg_To_Add_1.4.0.1735786845000004", dump_file("Add_1", {}, {{1, 9}}));
  const auto run = open(folder.path());
  EXPECT_EQ(run.findings,
            (Lines{"graph_1 step 0: output 0 of Add_1 was changed by Sub (Sub_To_Add_1)"}));
  EXPECT_EQ(run.records.size(), 4u);
  EXPECT_EQ(run.records[0].kind, RecordKind::Operand);
  EXPECT_EQ(run.records[1].kind, RecordKind::WatchedAgain);
  EXPECT_EQ(run.coverage.captured, 1u);
}

TEST(ReadGeTree, ComparesWatchedOutputsByStatisticsToo) {
  TestFolder folder;
  const auto table = [](const std::string& max) {
    return kHeader + "Output,0,8,DT_FLOAT,ND,2," + max + ",-2,-0.5,2,0,0,0\n";
  };
  folder.put(kToken + "Add.A.1.0.1735786845000001.csv", table("1"));
  folder.put(kToken + "Add.L_To_A.2.0.1735786845000002.csv", table("5"));
  EXPECT_EQ(open(folder.path()).findings,
            (Lines{"graph_1 step 0: output 0 of A was changed by L (L_To_A)"}));
}

TEST(ReadGeTree, TakesNamesWithToInThemForOperatorsWhenNothingIsWatched) {
  TestFolder folder;
  folder.put(kToken + "Cast.Cast_To_Float.1.0.1735786845000001", dump_file("", {}, {{1}}));
  folder.put(kToken + "Add.Float.2.0.1735786845000002", dump_file("", {}, {{1}}));  // other type
  const auto run = open(folder.path());
  EXPECT_EQ(run.records[0].kind, RecordKind::Operand);
  EXPECT_EQ(run.coverage.captured, 2u);
}

// ---- folders ------------------------------------------------------------------------------------

TEST(ReadGeTree, ReadsTheNewestOfSeveralRunsIntoOneFolder) {
  TestFolder folder;
  for (const std::string time : {"20250102030405", "20250102030500"})
    folder.put("worldsize1_global_rank0/" + time + "/0/graph_1/1/0/Add.A.1.1.1735786845000001",
               dump_file("A", {}, {{time == "20250102030405" ? 1.0F : 2.0F}}));
  const auto run = open(folder.path());
  ASSERT_EQ(run.records.size(), 1u);
  EXPECT_EQ(floats_of(load_tensor(run.records[0]).value()), std::vector<float>{2});
  EXPECT_TRUE(any_has(run.warnings, "20250102030405 is of an earlier run"));
  // By itself the older one is read.
  const auto old = open(folder / "worldsize1_global_rank0/20250102030405");
  EXPECT_EQ(floats_of(load_tensor(old.records.at(0)).value()), std::vector<float>{1});
}

TEST(ReadGeTree, CountsCallsOfOperatorsLaunchedOneByOne) {
  TestFolder folder;
  folder.put("20250102030405/0/Add.Add.1.0.1735786845000002", dump_file("Add", {}, {{2}}));
  folder.put("20250102030405/0/Add.Add.1.0.1735786845000001", dump_file("Add", {}, {{1}}));
  const auto run = open(folder.path());
  ASSERT_EQ(run.records.size(), 2u);
  EXPECT_TRUE(run.warnings.empty());
  EXPECT_EQ(run.records[0].call, 0u);
  EXPECT_EQ(floats_of(load_tensor(run.records[0]).value()), std::vector<float>{1});
  EXPECT_EQ(run.records[1].call, 1u);
}

TEST(ReadGeTree, ReadsTheDirectFormWithoutATime) {
  TestFolder folder;
  folder.put("3/Add.Add.1.12.5.1735786845000001", dump_file("Add", {}, {{1}}));
  folder.put("3/Add.Add.2.12.5.1735786845000002", dump_file("Add", {}, {{2}}));
  const auto run = open(folder.path());
  // The folder is the device's number, not a token.
  EXPECT_EQ(summary(run), (Lines{"0/0/0 Add output 0", "0/0/0 Add output 0"}));
  EXPECT_EQ(run.records[1].call, 1u);
}

TEST(ReadGeTree, PutsOperatorsOutsideOfGraphsBehindTheGraphs) {
  TestFolder folder;
  folder.put(kToken + "Add.A.1.1.1735786845000002", dump_file("A", {}, {{1}}));
  folder.put("worldsize1_global_rank0/20250102030405/0/Mul.B.1.1.1735786845000001",
             dump_file("B", {}, {{1}}));
  folder.put("dynamo_original_graph_1_rank_0_pid_7_ts_2.txt", "");
  const auto run = open(folder.path());
  EXPECT_EQ(summary(run), (Lines{"0/1/0 B output 0", "0/0/0 A output 0"}));
  ASSERT_EQ(run.graph_files.size(), 1u);
  EXPECT_EQ(run.graph_files[0].graph, 0u);
}

TEST(ReadGeTree, SaysThatADumpIsStillBeingWritten) {
  TestFolder folder;
  folder.put(kToken + "Add.A.1.1.1735786845000001", dump_file("A", {}, {{1}}));
  folder.put(kToken + "Add.B.1.1.1735786845000002.tmp4711", "half of a f");
  const auto run = open(folder.path());
  EXPECT_EQ(run.records.size(), 1u);
  EXPECT_FALSE(run.coverage.complete);
  EXPECT_TRUE(any_has(run.warnings, "1 files are still being written"));
}

// ---- texts --------------------------------------------------------------------------------------

TEST(ReadGeTree, HasTheOperatorsOfTheTextsAsTopology) {
  TestFolder folder;
  folder.put(kToken + "Add.Add_1.1.1.1735786845000001", dump_file("Add_1", {}, {{1}}));
  folder.put("dynamo_original_graph_1_rank_0_pid_7_ts_1.txt", "op { name: \"old\" type: \"Old\" }");
  folder.put("dynamo_original_graph_1_rank_0_pid_9_ts_2.txt",
             "op { name: \"x_1\" type: \"Data\" } op { name: \"Add_1\" type: \"Add\" }");
  folder.put("dynamo_optimized_graph_1_rank_0_pid_9_ts_3.txt",
             "op { name: \"F\" type: \"Fused\" }");
  const auto run = open(folder.path());
  ASSERT_EQ(run.graph_files.size(), 2u);  // of two original texts the newer
  ASSERT_TRUE(run.topology.has_value());
  ASSERT_EQ(run.topology->children.size(), 1u);
  const TopologyNode& graph = run.topology->children[0];
  EXPECT_EQ(graph.name, "graph_1");
  ASSERT_EQ(graph.children.size(), 2u);
  EXPECT_EQ(graph.children[1].name, "Add_1");
  EXPECT_EQ(graph.children[1].type, "Add");
  EXPECT_EQ(graph.children[1].exec_order, 1);
}

TEST(ReadGeTree, GoesOnPastATextThatCannotBeRead) {
  TestFolder folder;
  folder.put(kToken + "Add.Add_1.1.1.1735786845000001", dump_file("Add_1", {}, {{1}}));
  folder.put("dynamo_original_graph_1_rank_0_pid_7_ts_1.txt", "op { name: \"Add");
  const auto run = open(folder.path());
  EXPECT_EQ(run.records.size(), 1u);
  EXPECT_FALSE(run.topology.has_value());
  EXPECT_TRUE(any_has(run.warnings, "dynamo_original_graph_1"));
}

// ---- graphs.json --------------------------------------------------------------------------------

const std::string kGraphs = R"({"assay": "0.1.0", "torch": "2.13.0", "time": "20250102030405",
  "rank": 0, "world_size": 1, "device": "cpu", "engine": "interpreter", "decomposition_level": 1,
  "complete": true, "graphs": [{"graph": 1, "name": "graph_1", "kind": "inference", "parent": null,
  "operators": 120, "planned": 2, "dumped": 2, "steps": [0, 3],
  "break_reason": "Unsupported: print", "break_place": "net.py:12",
  "missed": [{"node": "Sub_1", "reason": "sparse tensor", "count": 2}]}]})";

TEST(GraphsJson, TellsPlannedCapturedAndMissed) {
  TestFolder folder;
  folder.put(kToken + "Add.A.1.1.1735786845000001", dump_file("A", {}, {{1}}));
  folder.put(kToken + "Add.B.2.1.1735786845000002", dump_file("B", {}, {{1}}));
  folder.put("worldsize1_global_rank0/20250102030405/0/graph_1/1/3/Add.A.1.1.1735786846000001",
             dump_file("A", {}, {{1}}));
  folder.put("worldsize1_global_rank0/20250102030405/graphs.json", kGraphs);
  const auto run = open(folder.path());
  EXPECT_TRUE(run.coverage.complete);
  EXPECT_EQ(run.coverage.planned, 2u);
  EXPECT_EQ(run.coverage.captured, 2u);  // operators, not files
  ASSERT_EQ(run.coverage.missed.size(), 2u);
  EXPECT_EQ(run.coverage.missed[0].node, "graph_1 Sub_1");
  EXPECT_EQ(run.coverage.missed[0].reason, "sparse tensor");
  EXPECT_EQ(run.coverage.missed[0].count, 2u);
  EXPECT_EQ(run.coverage.missed[1].node, "B");  // step 3 does not have it
  EXPECT_EQ(run.findings, (Lines{"graph break at graph_1, net.py:12: Unsupported: print"}));
  EXPECT_EQ(run.properties.at("tool"), "assay 0.1.0");
  EXPECT_EQ(run.properties.at("host.torch"), "2.13.0");
  EXPECT_EQ(run.properties.at("config.engine"), "interpreter");
  EXPECT_EQ(run.properties.at("config.decomposition_level"), "1");
  EXPECT_EQ(run.properties.at("graphs.graph_1"),
            "inference, 120 operators, 2 of 2 planned, steps 0, 3");
}

TEST(GraphsJson, NamesBreaksWarningsAndWhatTheWriterLost) {
  run::Run run;
  const char* text = R"({"assay": "1", "complete": true, "world_size": 2, "rank": 1,
    "breaks": [{"reason": "print", "count": 3}],
    "writer": {"dropped": 4, "failed": 1, "first_error": "disk full"},
    "graphs": [{"name": "graph_2", "kind": "backward", "parent": 1, "operators": 9, "planned": 9,
                "dumped": 0, "steps": [], "warnings": ["no operator is called Add_9"]}]})";
  EXPECT_TRUE(sources::read_graphs_json(text, &run).value());
  EXPECT_EQ(run.findings, (Lines{"graph break (3 times): print"}));
  EXPECT_EQ(run.properties.at("graphs.rank 1 graph_2"),
            "backward, of graph_1, 9 operators, 0 of 9 planned, never dumped");
  EXPECT_EQ(run.warnings, (Lines{"the capture dropped 4 files because writing was too slow",
                                 "1 files could not be written; the first: disk full",
                                 "rank 1 graph_2: no operator is called Add_9"}));
}

TEST(GraphsJson, SaysThatTheCaptureDidNotEnd) {
  run::Run run;
  EXPECT_TRUE(sources::read_graphs_json(R"({"assay": "1", "graphs": [], "complete": false})", &run)
                  .value());
  EXPECT_FALSE(run.coverage.complete);
}

TEST(GraphsJson, LeavesJsonOfOthersAlone) {
  run::Run run;
  for (const char* text : {R"({"graphs": []})", R"({"assay": "1"})", "{}"})
    EXPECT_FALSE(sources::read_graphs_json(text, &run).value()) << text;
  EXPECT_TRUE(run.coverage.complete);
}

TEST(GraphsJson, IsARunByItselfUntilTheFirstFileIsThere) {
  // The program was killed between the compiling of a graph and its first operator.
  for (const auto& [time, layout] :
       {std::pair("20250102030405", Layout::GeTree), {"", Layout::FxTree}}) {
    TestFolder folder;
    const std::string rank = std::string("worldsize1_global_rank0/") + time + "/";
    folder.put(rank + "graphs.json", std::string(R"({"assay": "1", "time": ")") + time +
                                         R"(", "complete": false, "graphs":)" +
                                         R"( [{"graph": 1, "name": "graph_1", "planned": 5}]})");
    folder.put(rank + "graph_1/0/.1735786845123456.77.tmp", "half a tensor");
    const auto run = open(folder.path());
    EXPECT_EQ(run.layout, layout);
    EXPECT_TRUE(run.records.empty());
    EXPECT_EQ(run.coverage.planned, 5u);
    EXPECT_FALSE(run.coverage.complete);
  }
}

TEST(GraphsJson, OfOthersIsNoRun) {
  TestFolder folder;
  folder.put("graphs.json", R"({"graphs": []})");
  EXPECT_EQ(open_run(folder.path()).error().code, Errc::Unsupported);
}

TEST(GraphsJson, RefusesWhatIsCutOffOrNestedTooDeep) {
  for (size_t length = 0; length < kGraphs.size(); length += 7) {
    run::Run run;
    EXPECT_EQ(sources::read_graphs_json(kGraphs.substr(0, length), &run).error().code,
              Errc::Invalid)
        << length;
  }
  run::Run run;
  EXPECT_EQ(sources::read_graphs_json(std::string(1000, '['), &run).error().code, Errc::TooLarge);
}

TEST(GraphsJson, LeavesOutValuesOfOtherTypes) {
  run::Run run;
  const char* text = R"({"assay": 7, "torch": ["2"], "world_size": -1, "complete": true,
    "graphs": [7, {"name": 3, "planned": -5, "steps": {}, "missed": [1, {"node": 2, "count": "x"}]}]})";
  EXPECT_TRUE(sources::read_graphs_json(text, &run).value());
  EXPECT_EQ(run.coverage.planned, 0u);
  ASSERT_EQ(run.coverage.missed.size(), 1u);
  EXPECT_EQ(run.coverage.missed[0].count, 0u);
  EXPECT_FALSE(run.properties.contains("host.torch"));
}

// ---- FX -----------------------------------------------------------------------------------------

TEST(ReadFxTree, ReadsKeywordArgumentsAndTypesThatNumPyDoesNotHave) {
  TestFolder folder;
  const std::string node = "worldsize1_global_rank0/graph_2/5/add_1-aten.add.Tensor.";
  folder.put_npy(node + "INPUT.0.20240125031118787351.npy", {1});
  folder.put_npy(node + "INPUT.alpha.20240125031118787351.npy", {2});
  folder.put_pth(node + "OUTPUT.0.20240125031118787351.pth", {3});
  folder.put("worldsize1_global_rank0/graphs.json", kGraphs);
  const auto run = open(folder.path());
  EXPECT_EQ(run.layout, Layout::FxTree);
  EXPECT_EQ(summary(run), (Lines{"0/1/5 add_1-aten.add.Tensor input 0",
                                 "0/1/5 add_1-aten.add.Tensor input kwargs.alpha",
                                 "0/1/5 add_1-aten.add.Tensor output 0"}));
  EXPECT_EQ(floats_of(load_tensor(run.records[2]).value()), std::vector<float>{3});
  EXPECT_EQ(run.coverage.planned, 2u);
  EXPECT_EQ(run.coverage.captured, 1u);
}

// ---- captured graphs ----------------------------------------------------------------------------

TEST(ReadCapturedGraph, TakesNodeDeviceAndCountFromTheName) {
  TestFolder folder;
  folder.put_pth("worldsize2_global_rank1/add_1_device_1_0.pt", {1, 2});
  folder.put_pth("worldsize2_global_rank1/to_device_1_device_1_10.pt", {3});
  const auto run = open(folder.path());
  EXPECT_EQ(run.layout, Layout::CapturedGraph);
  EXPECT_EQ(summary(run), (Lines{"1/0/0 add_1 output ", "1/0/10 to_device_1 output "}));
  EXPECT_EQ(floats_of(load_tensor(run.records[0]).value()), (std::vector<float>{1, 2}));
}

TEST(ReadCapturedGraph, TakesDevicesForRanksWhereThereAreNone) {
  TestFolder folder;
  folder.put_pth("t_device_0_0.pt", {1});
  folder.put_pth("t_device_3_0.pt", {1});
  EXPECT_EQ(summary(open(folder.path())), (Lines{"0/0/0 t output ", "3/0/0 t output "}));
}

TEST(ReadCapturedGraph, LeavesOtherTensorFilesToOtherLayouts) {
  TestFolder folder;
  folder.put_pth("device_0.pt", {1});
  folder.put_pth("x_device_a_0.pt", {1});
  EXPECT_EQ(open(folder.path()).layout, Layout::Flat);
}

}  // namespace
}  // namespace assay::run
