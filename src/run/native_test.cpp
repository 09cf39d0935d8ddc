// SPDX-License-Identifier: Apache-2.0
// Native runs, written by hand from docs/formats/native.md.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "run/load.hpp"
#include "run/open.hpp"
#include "run/record_name.hpp"
#include "run/test_folder.hpp"
#include "tensor/convert.hpp"

namespace assay::run {
namespace {

using test::floats_of;
using test::TestFolder;
using testing::ElementsAre;
using testing::HasSubstr;

// Two float32 values, 1.5 and -2.0, behind a header region of 64 zero bytes: a step whose writer
// was killed.
const std::string kStepFile = std::string(64, '\0') + std::string("\0\0\xC0\x3F\0\0\0\xC0", 8);

std::string record_line(int number, const std::string& keys) {
  return "{\"n\":" + std::to_string(number) + ",\"step\":0," + keys + "}\n";
}
const std::string kTensorKeys =
    R"("node":"norm","type":"RMSNorm","order":1,"role":"output","slot":"","dtype":"float32","shape":[2],"strides":[1],)"
    R"("file":"step-000000.safetensors","offset":64,"bytes":8)";
constexpr const char* kFinishedManifest =
    R"({"format":"assay-run","version":1,"tool":"assay 0.1.0","complete":true,"host":{"torch":"2.13.0+cpu"},)"
    R"("config":{"level":"module"},"coverage":{"planned":3,"captured":2,"missed":[{"node":"a","reason":"compiled","count":2}]}})";

TEST(ModuleOfNode, StandsInFrontOfTheOperator) {
  EXPECT_EQ(module_of_node("model.norm::aten.mul.Tensor.1"), "model.norm");
  EXPECT_EQ(module_of_node("model.norm"), "model.norm");
  EXPECT_EQ(module_of_node("::aten.add.Tensor.0"), "");
}

TEST(OpenNativeRun, ReadsRecordsManifestAndTopology) {
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank0/topology.json",
             R"({"name":"","type":"Model","children":[{"name":"norm","type":"RMSNorm"}]})");
  folder.put("golden/rank0/step-000000.safetensors", kStepFile);
  folder.put(
      "golden/rank0/records.jsonl",
      record_line(
          0,
          R"("node":"","type":"Model","order":0,"role":"input","slot":"kwargs.use_cache","kind":"value","value":true)") +
          record_line(1, kTensorKeys));

  const auto run = open_run(folder / "golden");

  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_EQ(run->layout, Layout::Native);
  EXPECT_TRUE(run->coverage.complete);
  EXPECT_EQ(run->coverage.planned, 3u);
  EXPECT_EQ(run->coverage.captured, 2u);
  ASSERT_EQ(run->coverage.missed.size(), 1u);
  EXPECT_EQ(run->coverage.missed[0].reason, "compiled");
  EXPECT_EQ(run->properties.at("host.torch"), "2.13.0+cpu");
  EXPECT_EQ(run->topology->children[0].type, "RMSNorm");
  EXPECT_THAT(run->warnings, ElementsAre());
  ASSERT_EQ(run->records.size(), 2u);
  EXPECT_EQ(run->records[0].value, "True");
  EXPECT_EQ(run->records[1].order, 1u);
  EXPECT_THAT(floats_of(load_tensor(run->records[1]).value()), ElementsAre(1.5f, -2.0f));
}

TEST(OpenNativeRun, OpensTheFolderOfOneRank) {
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank3/step-000000.safetensors", kStepFile);
  folder.put("golden/rank3/records.jsonl", record_line(0, kTensorKeys));
  const auto run = open_run(folder / "golden/rank3");
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 1u);
  EXPECT_EQ(run->records[0].rank, 3);
  EXPECT_TRUE(run->coverage.complete);
}

TEST(OpenNativeRun, LeavesOutTheIncompleteLastLineOfAKilledRun) {
  const TestFolder folder;
  folder.put("golden/manifest.json", R"({"format":"assay-run","version":1,"complete":false})");
  folder.put("golden/rank0/step-000000.safetensors", kStepFile);
  folder.put("golden/rank0/records.jsonl", record_line(0, kTensorKeys) + R"({"n":1,"step":0,"no)");

  const auto run = open_run(folder / "golden");

  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_FALSE(run->coverage.complete);
  ASSERT_EQ(run->records.size(), 1u);
  EXPECT_THAT(floats_of(load_tensor(run->records[0]).value()), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(run->warnings, ElementsAre(HasSubstr("line 2: the last line is incomplete"),
                                         HasSubstr("1 records are complete")));
}

TEST(OpenNativeRun, OpensWithoutOrWithHalfAManifest) {
  for (const char* manifest : {"", R"({"format":"assay-run","ver)"}) {
    const TestFolder folder;
    if (*manifest != '\0') folder.put("golden/manifest.json", manifest);
    folder.put("golden/rank0/step-000000.safetensors", kStepFile);
    folder.put("golden/rank0/records.jsonl", record_line(0, kTensorKeys));
    const auto run = open_run(folder / "golden");
    ASSERT_TRUE(run) << run.error().describe();
    EXPECT_FALSE(run->coverage.complete);
    EXPECT_EQ(run->records.size(), 1u);
  }
}

TEST(OpenNativeRun, OpensACaptureThatHasNoRecordYet) {
  const TestFolder folder;
  folder.put("golden/manifest.json", R"({"format":"assay-run","version":1,"complete":false})");
  const auto run = open_run(folder.path() + "/golden");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_EQ(run->layout, Layout::Native);
  EXPECT_TRUE(run->records.empty());
  EXPECT_FALSE(run->coverage.complete);
}

TEST(OpenNativeRun, HoldsOffsetsAgainstTheFile) {
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank0/step-000000.safetensors", kStepFile);
  folder.put(
      "golden/rank0/records.jsonl",
      record_line(
          0,
          R"("node":"a","dtype":"float32","shape":[2],"file":"step-000000.safetensors","offset":68,"bytes":8)") +
          record_line(
              1,
              R"("node":"b","dtype":"float32","shape":[2],"file":"step-000000.safetensors","offset":9223372036854775807,"bytes":8)") +
          record_line(
              2,
              R"("node":"c","dtype":"float32","shape":[2],"file":"gone.safetensors","offset":0,"bytes":8)"));
  const auto run = open_run(folder / "golden");
  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 3u);
  EXPECT_THAT(run->records[0].problem,
              HasSubstr("at byte 68: the record says 8 bytes, the file ends at 72"));
  EXPECT_EQ(load_tensor(run->records[0]).error().code, Errc::Truncated);
  EXPECT_EQ(load_tensor(run->records[1]).error().code, Errc::Truncated);
  EXPECT_THAT(run->records[2].problem, HasSubstr("the file is missing"));
  EXPECT_EQ(load_tensor(run->records[2]).error().code, Errc::NotFound);
}

TEST(OpenNativeRun, ResolvesRecordsThatRepeatAnEarlierOne) {
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank0/step-000000.safetensors", kStepFile);
  folder.put(
      "golden/rank0/records.jsonl",
      record_line(0, kTensorKeys) +
          record_line(
              1,
              R"("node":"z","order":2,"role":"input","slot":"0","dtype":"float32","shape":[2],"same_as":0)") +
          record_line(
              2,
              R"("node":"z","order":2,"role":"input","slot":"1","dtype":"float32","shape":[2],"same_as":9)"));
  const auto run = open_run(folder / "golden");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(floats_of(load_tensor(run->records[1]).value()), ElementsAre(1.5f, -2.0f));
  EXPECT_THAT(run->records[2].problem, HasSubstr("record 9"));
}

TEST(OpenNativeRun, CompletesLinesByTheOnesTheyAreLike) {
  // A step of an operator, its input and its output, which are one value; the next step says the
  // same of them. The last three lines are like one that is not there, like a value, and like
  // nothing before them.
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank0/step-000000.safetensors", kStepFile);
  const std::string operation = R"("node":"m::op.0","type":"op","order":1,)";
  const std::string place = R"("file":"step-000000.safetensors","offset":64,"bytes":8)";
  // sqrt(1.5 ^ 2 + 2 ^ 2) = 2.5
  const std::string stats = R"("stats":{"count":2,"min":-2,"max":1.5,"mean":-0.25,"l2":2.5})";
  const std::string tensor = R"("dtype":"float32","shape":[2],"strides":[1],)";
  const auto like = [](int number, const std::string& keys) {
    return "{\"n\":" + std::to_string(number) + ",\"step\":1," + keys + "}\n";
  };
  folder.put(
      "golden/rank0/records.jsonl",
      record_line(0, operation + R"("kind":"operator","module":"m","args":{"a":1})") +
          record_line(1, operation + R"("role":"input","slot":"a",)" + tensor + place + "," +
                             stats + R"(,"vid":4,"storage":1,"leaf":"m.w")") +
          record_line(2, operation + R"("slot":"",)" + tensor + place + R"(,"same_as":1,)" + stats +
                             R"(,"vid":4,"storage":1)") +
          record_line(3, R"("node":"m","role":"input","slot":"0","kind":"value","value":true)") +
          like(4, R"("like":0)") + like(5, R"("like":1,)" + place + "," + stats + R"(,"vid":6)") +
          like(6, R"("like":2,"same_as":5,"vid":7,"from":2)") + like(7, R"("like":9)") +
          like(8, R"("like":3)") + like(9, R"("like":9)"));

  const auto run = open_run(folder / "golden");

  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(run->warnings,
              ElementsAre(HasSubstr("is like record 9, which does not stand before it"),
                          HasSubstr("is like a line that is no tensor"),
                          HasSubstr("is like record 9, which does not stand before it")));
  ASSERT_EQ(run->operations.size(), 2u);
  EXPECT_EQ(run->operations[1].step, 1);
  EXPECT_EQ(run->operations[1].node, "m::op.0");
  EXPECT_EQ(run->operations[1].parameters, R"({"a":1})");
  ASSERT_EQ(run->records.size(), 5u);
  const TensorRecord& input = run->records[3];
  EXPECT_EQ(input.leaf, "m.w");
  EXPECT_EQ(input.role, Role::Input);
  EXPECT_EQ(input.value_id, 6);
  EXPECT_EQ(input.storage_id, -1);
  const TensorRecord& output = run->records[4];
  EXPECT_EQ(output.step, 1);
  EXPECT_EQ(output.slot, "");
  EXPECT_EQ(output.role, Role::Output);
  const TensorRecord& first = run->records[1];  // of step 0
  EXPECT_EQ(first.role, Role::Output);
  EXPECT_EQ(output.producer, static_cast<int64_t>(first.order));
  EXPECT_EQ(output.stats->l2_norm, 2.5);
  EXPECT_THAT(floats_of(load_tensor(output).value()), ElementsAre(1.5f, -2.0f));
}

TEST(OpenNativeRun, ReadsViewsOfWhatIsStored) {
  // 0 ... 5, and what lies in them: as [3, 2], its transpose, its second column, its last row, and
  // the transpose of another shape at the same place.
  const TestFolder folder;
  std::string payload;
  for (const float value : {0.f, 1.f, 2.f, 3.f, 4.f, 5.f})
    payload += std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank0/s.safetensors", std::string(64, '\0') + payload);
  const auto view = [](int number, const char* shape, const char* strides, int offset, int bytes,
                       const char* more = "") {
    return record_line(
        number, R"("node":"z","role":"output","slot":"0","dtype":"float32","shape":)" +
                    std::string(shape) + R"(,"strides":)" + strides +
                    R"(,"view":{"of":0,"file":"s.safetensors","offset":)" + std::to_string(offset) +
                    R"(,"bytes":)" + std::to_string(bytes) + "}" + more);
  };
  // sum of squares of 1, 3, 5: 35
  const char* column = R"(,"stats":{"count":3,"min":1,"max":5,"mean":3,"l2":5.916079783099616})";
  folder.put(
      "golden/rank0/records.jsonl",
      record_line(
          0,
          R"("node":"z","role":"input","slot":"0","dtype":"float32","shape":[3,2],"strides":[2,1],"file":"s.safetensors","offset":64,"bytes":24,"stats":{"count":6,"min":0,"max":5,"mean":2.5,"l2":7.416198487095663})") +
          view(1, "[2,3]", "[1,2]", 64, 24,
               R"(,"stats":{"count":6,"min":0,"max":5,"mean":2.5,"l2":7.416198487095663})") +
          view(2, "[3]", "[2]", 68, 20, column) + view(3, "[2]", "[1]", 80, 8) +
          view(4, "[3,2]", "[1,3]", 64, 24) + view(5, "[3]", "[2]", 64, 20, column));

  const auto run = open_run(folder / "golden");

  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(run->warnings, ElementsAre());
  ASSERT_EQ(run->records.size(), 6u);
  const auto floats = [&](size_t i) { return floats_of(load_tensor(run->records[i]).value()); };
  EXPECT_THAT(floats(0), ElementsAre(0.f, 1.f, 2.f, 3.f, 4.f, 5.f));
  EXPECT_THAT(floats(1), ElementsAre(0.f, 2.f, 4.f, 1.f, 3.f, 5.f));
  EXPECT_THAT(floats(2), ElementsAre(1.f, 3.f, 5.f));
  EXPECT_THAT(floats(3), ElementsAre(4.f, 5.f));
  EXPECT_THAT(floats(4), ElementsAre(0.f, 3.f, 1.f, 4.f, 2.f, 5.f));
  // As it lies: the same values, found by their strides.
  const Tensor transpose = load_as_stored(run->records[1]).value();
  EXPECT_EQ(transpose.view.strides, (Dims{1, 2}));
  std::vector<double> values(6);
  read_values(transpose.view, 0, 6, values);
  EXPECT_THAT(values, ElementsAre(0, 2, 4, 1, 3, 5));
  // The statistics of a view are held against what lies there: 0, 2, 4.
  const auto other = load_tensor(run->records[5]);
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("minimum 0.0 against 1.0"));
  EXPECT_FALSE(load_as_stored(run->records[5]));
  EXPECT_THAT(run->found_damage->list(), testing::SizeIs(1));
}

TEST(OpenNativeRun, ReportsDamagedAndRepeatedLines) {
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank0/step-000000.safetensors", kStepFile);
  std::string lines = record_line(0, kTensorKeys) + record_line(0, kTensorKeys);
  for (int i = 0; i < 20; ++i) lines += "not json\n";
  folder.put("golden/rank0/records.jsonl", lines);
  const auto run = open_run(folder / "golden");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_EQ(run->records.size(), 2u);
  ASSERT_EQ(run->warnings.size(), 11u);  // ten lines and the number of the others
  EXPECT_THAT(run->warnings[0], HasSubstr("line 2: record number 0 occurs a second time"));
  EXPECT_THAT(run->warnings[1], HasSubstr("line 3: the line is no JSON object"));
  EXPECT_THAT(run->warnings[10], HasSubstr("11 more lines"));
}

TEST(OpenNativeRun, GivesASecondProcessOfARankItsOwnNumber) {
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  for (const char* rank : {"rank0", "rank1", "rank10", "rank2", "rank0-4711"}) {
    folder.put(std::string("golden/") + rank + "/step-000000.safetensors", kStepFile);
    folder.put(std::string("golden/") + rank + "/records.jsonl", record_line(0, kTensorKeys));
  }
  const auto run = open_run(folder / "golden");
  ASSERT_TRUE(run) << run.error().describe();
  std::vector<int> ranks;
  for (const TensorRecord& record : run->records) ranks.push_back(record.rank);
  EXPECT_THAT(ranks, ElementsAre(0, 1, 2, 10, 11));
  EXPECT_THAT(
      run->warnings,
      ElementsAre(HasSubstr("rank0-4711: a second process of the same rank, listed as rank 11")));
}

TEST(OpenNativeRun, DoesNotFollowLinksOutOfTheRun) {
  const TestFolder folder;
  folder.put("secret.bin", std::string(100, 'x'));
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank0/records.jsonl", record_line(0, kTensorKeys));
  folder.put_link("golden/rank0/step-000000.safetensors", "../../secret.bin");
  const auto run = open_run(folder / "golden");
  ASSERT_TRUE(run) << run.error().describe();
  EXPECT_THAT(run->records[0].problem, HasSubstr("leaves the run"));
  EXPECT_FALSE(load_tensor(run->records[0]));
}

TEST(OpenNativeRun, ReadsOperatorsAndWhoMadeWhichValue) {
  // Given weights behind a step in the file, so that every record gets another number
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put(
      "golden/rank0/records.jsonl",
      record_line(
          0,
          R"("node":"::aten.neg.default.0","type":"aten.neg.default","kind":"operator","module":"","args":{"self":{"tensor":"self"}})") +
          record_line(1, R"("node":"::aten.neg.default.0","role":"input","slot":"self","vid":0)") +
          record_line(2, R"("node":"::aten.neg.default.0","role":"output","slot":"","vid":1)") +
          record_line(
              3,
              R"("node":"::aten.exp.default.0","type":"aten.exp.default","kind":"operator","module":"")") +
          record_line(
              4, R"("node":"::aten.exp.default.0","role":"input","slot":"self","vid":1,"from":2)") +
          record_line(5, R"("node":"::aten.exp.default.0","role":"output","slot":"","vid":2)") +
          // An input made nothing, and nothing was made by a record that is still to come.
          record_line(6, R"("node":"a","role":"input","slot":"0","vid":1,"from":4)") +
          record_line(7, R"("node":"a","role":"input","slot":"1","vid":2,"from":9)") +
          R"({"n":8,"step":-1,"node":"a","role":"weight","slot":"weight","leaf":"a.weight"})"
          "\n");

  const auto run = open_run(folder / "golden");

  ASSERT_TRUE(run) << run.error().describe();
  ASSERT_EQ(run->records.size(), 7u);
  EXPECT_EQ(run->records[0].leaf, "a.weight");
  ASSERT_EQ(run->operations.size(), 2u);
  EXPECT_EQ(run->operations[0].op_type, "aten.neg.default");
  EXPECT_EQ(run->operations[0].parameters, R"({"self":{"tensor":"self"}})");
  EXPECT_EQ(run->operations[0].order, 1u);
  EXPECT_EQ(run->operations[1].order, 3u);
  EXPECT_EQ(run->records[3].slot, "self");
  EXPECT_EQ(run->records[3].producer, 2);  // the output of neg
  EXPECT_EQ(run->records[5].producer, -1);
  EXPECT_EQ(run->records[6].producer, -1);
  EXPECT_THAT(run->warnings,
              ElementsAre(HasSubstr("line 7: the value is said to be from record 4"),
                          HasSubstr("line 8: the value is said to be from record 9")));
}

TEST(RecordsNamed, MeansANodeThenTensors) {
  const TestFolder folder;
  folder.put("golden/manifest.json", kFinishedManifest);
  folder.put("golden/rank0/records.jsonl",
             record_line(0, R"("node":"a","role":"input","slot":"0")") +
                 record_line(1, R"("node":"a","role":"input","slot":"01")") +
                 record_line(2, R"("node":"a","role":"output","slot":"")") +
                 record_line(3, R"("node":"a.input","role":"output","slot":"")") +
                 record_line(4, R"("node":"b","role":"input","slot":"kwargs.x")") +
                 record_line(5, R"("node":"","role":"output","slot":"")") +
                 R"({"n":6,"step":-1,"node":"b","role":"weight","slot":"weight"})"
                 "\n");
  const auto run = open_run(folder / "golden");
  ASSERT_TRUE(run) << run.error().describe();
  const auto named = [&](const std::string& name) {
    std::vector<std::string> names;
    for (const size_t index : records_named(*run, name))
      names.push_back(record_name(run->records[index]));
    return names;
  };

  EXPECT_THAT(named("a"), ElementsAre("a.input.0", "a.input.01", "a.output"));
  EXPECT_THAT(named(""), ElementsAre("output"));
  EXPECT_THAT(named("a.input"), ElementsAre("a.input.output"));  // a node wins over a role
  EXPECT_THAT(named("a.input.0"), ElementsAre("a.input.0"));     // not the slot that begins so
  EXPECT_THAT(named("b.input"), ElementsAre("b.input.kwargs.x"));
  EXPECT_THAT(named("b.weight"), ElementsAre("b.weight"));
  EXPECT_THAT(named("output"), ElementsAre("output"));
  EXPECT_THAT(named("weight"), ElementsAre());  // only files are opened by their members
}

}  // namespace
}  // namespace assay::run
