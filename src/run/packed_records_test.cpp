// SPDX-License-Identifier: Apache-2.0
#include "run/packed_records.hpp"
#include "run/coverage.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "run/load.hpp"
#include "run/open.hpp"
#include "run/records_index.hpp"
#include "run/test_folder.hpp"

namespace assay::run {
namespace {

using test::TestFolder;
using testing::HasSubstr;

/// A record in which everything is said that can be.
TensorRecord full_record() {
  TensorRecord record;
  record.rank = 3;
  record.call = 2;
  record.graph = 1;
  record.role = Role::Input;
  record.kind = RecordKind::WatchedAgain;
  record.moment = Moment::Before;
  record.step_name = "7";
  record.step = 7;
  record.node = "model.layers.0.mlp";
  record.op_type = "LlamaMLP";
  record.slot = "kwargs.mask";
  record.shape = Dims{2, 3};
  record.strides = Dims{3, 1};
  record.leaf = "model.layers.0.mlp.weight";
  record.memory_format = "q8_0";
  record.value = "True";
  record.problem = "the file is missing";
  record.not_captured = true;
  record.stats_file = "records.jsonl";
  record.dtype = DType::BFloat16;
  record.order = 12;
  record.bytes = ByteLocation{.file = "step.safetensors",
                              .member = "a",
                              .offset = uint64_t{1} << 40,
                              .size_bytes = 12,
                              .raw = true};
  stats::TensorStats stats{.count = 6, .nan_count = 1, .positive_inf_count = 2};
  stats.min = -1.5;
  stats.max = 2;
  stats.mean = 0.25;
  stats.l2_norm = 3;
  stats.sketch.emplace();
  (*stats.sketch)[5] = -2.5f;
  record.stats = stats;
  record.digest = stats::Digest{1, 2};
  record.value_id = 5;
  record.storage_id = 6;
  record.storage_offset = 7;
  record.storage_version = 8;
  record.producer = 4;
  return record;
}

void expect_same(const TensorRecord& a, const TensorRecord& b) {
  EXPECT_EQ(std::tie(a.rank, a.call, a.graph, a.role, a.kind, a.moment, a.not_captured),
            std::tie(b.rank, b.call, b.graph, b.role, b.kind, b.moment, b.not_captured));
  EXPECT_EQ(std::tie(a.step_name, a.node, a.op_type, a.slot, a.leaf, a.memory_format, a.value,
                     a.problem, a.stats_file),
            std::tie(b.step_name, b.node, b.op_type, b.slot, b.leaf, b.memory_format, b.value,
                     b.problem, b.stats_file));
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.strides, b.strides);
  EXPECT_EQ(a.dtype, b.dtype);
  EXPECT_EQ(std::tie(a.step, a.order, a.value_id, a.storage_id, a.storage_offset, a.storage_version,
                     a.producer),
            std::tie(b.step, b.order, b.value_id, b.storage_id, b.storage_offset, b.storage_version,
                     b.producer));
  EXPECT_EQ(a.stats, b.stats);
  EXPECT_EQ(a.digest, b.digest);
  ASSERT_EQ(a.bytes.has_value(), b.bytes.has_value());
  if (!a.bytes) return;
  EXPECT_EQ(
      std::tie(a.bytes->file, a.bytes->member, a.bytes->offset, a.bytes->size_bytes, a.bytes->raw),
      std::tie(b.bytes->file, b.bytes->member, b.bytes->offset, b.bytes->size_bytes, b.bytes->raw));
}

std::vector<TensorRecord> unpacked(const std::string& packed) {
  UnpackOptions options;
  options.checks = std::make_shared<PayloadChecks>(std::make_shared<FoundDamage>());
  std::vector<TensorRecord> records;
  const Status status = unpack_records(as_bytes(packed), options, &records);
  EXPECT_TRUE(status) << status.error().describe();
  return records;
}

TEST(PackedRecords, AreTheRecordsAgain) {
  std::vector<TensorRecord> records(3);
  records[0].order = INT64_MAX;
  records[0].step = -1;
  records[1] = full_record();
  records[2].shape = Dims{};  // a scalar, which is not the same as no shape
  records[2].node = "lm_head";

  const std::vector<TensorRecord> read = unpacked(pack_records(records));

  ASSERT_EQ(read.size(), records.size());
  for (size_t i = 0; i < read.size(); ++i) expect_same(read[i], records[i]);
  EXPECT_TRUE(read[2].shape);
  EXPECT_FALSE(read[0].shape);
}

TEST(PackedRecords, ShareTheChecksThatTheRecordsShare) {
  const auto checks = std::make_shared<PayloadChecks>(std::make_shared<FoundDamage>());
  std::vector<TensorRecord> records(3, full_record());
  for (size_t i = 0; i < records.size(); ++i) records[i].order = i;
  records[0].check = records[2].check = checks->add(true);
  records[1].check = checks->add(false);
  const std::vector<TensorRecord> read = unpacked(pack_records(records));
  EXPECT_EQ(read[0].check, read[2].check);
  EXPECT_NE(read[0].check, read[1].check);
  EXPECT_TRUE(read[0].check.is_rough());
  EXPECT_FALSE(read[1].check.is_rough());
}

TEST(PackedRecords, OfAnyCutLengthAreRefused) {
  const std::string packed = pack_records(std::vector<TensorRecord>{full_record()});
  for (size_t size = 0; size < packed.size(); ++size) {
    UnpackOptions options;
    options.checks = std::make_shared<PayloadChecks>(std::make_shared<FoundDamage>());
    std::vector<TensorRecord> records(1);
    EXPECT_FALSE(unpack_records(as_bytes(packed).first(size), options, &records)) << size;
    EXPECT_EQ(records.size(), 1u);
  }
}

// ---- the index beside records.jsonl ----

/// A run whose list is long enough for an index: two tensors of one payload, over and over.
class IndexedRun : public testing::Test {
 protected:
  IndexedRun() {
    folder_.put("run/manifest.json", R"({"format":"assay-run","version":1,"complete":true})");
    folder_.put("run/rank0/step-000000.safetensors", std::string(80, '\0'));
    std::string lines;
    int64_t n = 0;
    while (lines.size() < kLeastIndexedBytes) {
      lines +=
          R"({"n":)" + std::to_string(n++) +
          R"(,"step":0,"node":"m::aten.mul.Tensor.0","type":"aten.mul.Tensor","order":1,"kind":"operator",)"
          R"("module":"m","args":{"self":{"tensor":"self"},"other":2},"writes":["self"]})"
          "\n";
      const std::string tensor =
          R"(,"step":0,"node":"norm","type":"RMSNorm","role":"output","slot":"","dtype":"float32",)"
          R"("shape":[2],"file":"step-000000.safetensors","offset":64,"bytes":8,)"
          R"("stats":{"count":2,"min":0,"max":0,"mean":0,"l2":0,"sketch":")" +
          std::string(128, '0') + "\"}}\n";
      lines += R"({"n":)" + std::to_string(n++) + tensor;
      lines += R"({"n":)" + std::to_string(n++) + tensor;
    }
    folder_.put("run/rank0/records.jsonl", lines);
  }

  [[nodiscard]] std::string index() const { return folder_ / "run/rank0/records.index"; }
  [[nodiscard]] bool has_index() const { return std::ifstream(index()).good(); }
  [[nodiscard]] run::Run open(const std::string& name = "run") const {
    Result<run::Run> run = open_run(folder_ / name);
    EXPECT_TRUE(run) << run.error().describe();
    return *std::move(run);
  }
  static void expect_same_run(const run::Run& a, const run::Run& b) {
    ASSERT_EQ(a.records.size(), b.records.size());
    for (size_t i = 0; i < a.records.size(); i += 97) expect_same(a.records[i], b.records[i]);
    EXPECT_EQ(a.records.back().check == a.records.front().check,
              b.records.back().check == b.records.front().check);
    ASSERT_EQ(a.operations.size(), b.operations.size());
    for (size_t i = 0; i < a.operations.size(); i += 97) {
      EXPECT_EQ(a.operations[i].parameters, b.operations[i].parameters);
      EXPECT_EQ(a.operations[i].writes, b.operations[i].writes);
      EXPECT_EQ(a.operations[i].order, b.operations[i].order);
    }
    EXPECT_EQ(a.warnings, b.warnings);
    EXPECT_EQ(a.coverage.captured, b.coverage.captured);
  }

  const TestFolder folder_;
};

TEST_F(IndexedRun, IsTheSameTheSecondTime) {
  const run::Run first = open();
  ASSERT_TRUE(has_index());
  EXPECT_TRUE(first.records[0].check);
  expect_same_run(open(), first);
}

TEST_F(IndexedRun, IsTheSameInAnotherFolder) {
  (void)open();
  ASSERT_EQ(std::rename((folder_ / "run").c_str(), (folder_ / "moved").c_str()), 0);
  const run::Run moved = open("moved");
  EXPECT_EQ(moved.records[0].bytes->file, folder_ / "moved/rank0/step-000000.safetensors");
  EXPECT_TRUE(load_tensor(moved.records[0]));
}

TEST_F(IndexedRun, IsReadFromItsLinesWhenTheyChanged) {
  (void)open();
  // One digit: size and names stay.
  std::fstream lines(folder_ / "run/rank0/records.jsonl", std::ios::in | std::ios::out);
  std::string text(400, '\0');
  lines.read(text.data(), 400);
  lines.seekp(static_cast<std::streamoff>(text.find("norm")));
  lines.write("NORM", 4);
  lines.close();
  EXPECT_EQ(open().records[0].node, "NORM");
}

TEST_F(IndexedRun, IsReadFromItsLinesWhenTheIndexIsDamaged) {
  const run::Run first = open();
  for (const std::streamoff at : {3, 40, 200, 5000, 100000}) {
    std::fstream file(index(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const auto byte = static_cast<char>(file.get() ^ 0x40);
    file.seekp(at);
    file.put(byte);
    file.close();
    expect_same_run(open(), first);  // and makes a new index
  }
}

TEST_F(IndexedRun, SaysWhatHappenedToItsPayloads) {
  (void)open();
  folder_.put("run/rank0/step-000000.safetensors", std::string(70, '\0'));
  const run::Run shorter = open();
  EXPECT_THAT(shorter.records[0].problem, HasSubstr("the file ends at 70"));
  EXPECT_FALSE(shorter.damage.empty());
  ASSERT_EQ(std::remove((folder_ / "run/rank0/step-000000.safetensors").c_str()), 0);
  EXPECT_THAT(open().records[0].problem, HasSubstr("the file is missing"));
}

// The list is parsed in pieces, some at the same time.
TEST_F(IndexedRun, NamesTheLineThatIsWrongAnywhereInTheList) {
  std::ifstream file(folder_ / "run/rank0/records.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  std::vector<std::string> expected;
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    // An empty line and a wrong one in front of every 2000th: line numbers count from 1.
    if (i != 0 && i % 2000 == 0) {
      text += "\n[]\n";
      const size_t number = i + 2 * (i / 2000);
      expected.push_back((folder_ / "run/rank0/records.jsonl") + ": line " +
                         std::to_string(number) + ": the line is no JSON object");
    }
    text += lines[i] + "\n";
  }
  ASSERT_GT(expected.size(), 5u);
  ASSERT_LT(expected.size(), 10u);  // from the eleventh on they are counted
  const run::Run whole = open();
  folder_.put("run/rank0/records.jsonl", text);
  const run::Run broken = open();
  EXPECT_EQ(broken.warnings, expected);
  ASSERT_EQ(broken.records.size(), whole.records.size());
  for (size_t i = 0; i < whole.records.size(); ++i) {
    ASSERT_EQ(broken.records[i].order, whole.records[i].order);
    ASSERT_EQ(broken.records[i].check == broken.records[0].check,
              whole.records[i].check == whole.records[0].check);
  }
}

TEST_F(IndexedRun, LeavesNoIndexWhereItIsNotWantedOrSomethingIsWrong) {
  ::setenv("ASSAY_INDEX", "off", 1);
  (void)open();
  ::unsetenv("ASSAY_INDEX");
  EXPECT_FALSE(has_index());
  std::ofstream(folder_ / "run/rank0/records.jsonl", std::ios::app) << "{\"n\":1}\n{\"n\":";
  const run::Run damaged = open();
  EXPECT_FALSE(damaged.coverage.complete);
  EXPECT_THAT(damaged.warnings, testing::Contains(HasSubstr("occurs a second time")));
  EXPECT_FALSE(has_index());
}

}  // namespace
}  // namespace assay::run
