// SPDX-License-Identifier: Apache-2.0
// What needs no files: records that carry statistics and digests, arrays in memory.
#include "compare/compare.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <string>
#include <vector>

#include "base/atomic_file.hpp"
#include "base/mapped_file.hpp"
#include "compare/resident.hpp"

namespace assay::compare {
namespace {

// A record whose file does not exist: any attempt to read it becomes a row with a reason.
run::TensorRecord remembered(const std::string& node, uint64_t content, double l2_norm) {
  run::TensorRecord record;
  record.node = node;
  record.step_name = "0";
  record.dtype = DType::Float32;
  record.shape = Dims{2, 3};
  record.bytes.emplace();
  record.bytes->file = "/nowhere/" + node + ".pth";
  record.digest = stats::Digest{content, content};
  stats::TensorStats values;
  values.count = 6;
  values.min = -1;
  values.max = 2;
  values.mean = 0.5;
  values.l2_norm = l2_norm;
  record.stats = values;
  return record;
}

run::Run run_of(std::vector<run::TensorRecord> records) {
  run::Run run;
  run.path = "r";
  run.layout = run::Layout::Flat;
  run.records = std::move(records);
  for (size_t i = 0; i < run.records.size(); ++i) run.records[i].order = i;
  return run;
}

TEST(RecordPath, IsTheFileOrThePlaceInItOrThePlaceInTheRun) {
  run::TensorRecord record;
  record.step_name = "0";
  record.node = "root.model.norm";
  record.role = Role::Output;
  EXPECT_EQ(record_path(record), "0/root.model.norm/output");
  record.slot = "1";
  EXPECT_EQ(record_path(record), "0/root.model.norm/output_1");
  record.stats_file = "run/0/statistic.csv";  // of many nodes
  EXPECT_EQ(record_path(record), "run/0/statistic.csv:root.model.norm.output.1");
  record.stats_file = "run/0/root.model.norm.csv";  // of this one
  EXPECT_EQ(record_path(record), "run/0/root.model.norm.csv");
  run::ByteLocation location{.file = "run/a.safetensors", .member = "w"};
  record.bytes = location;
  EXPECT_EQ(record_path(record), "run/a.safetensors:w");
  location.member = {};
  record.bytes = location;
  EXPECT_EQ(record_path(record), "run/a.safetensors");
  location.raw = true;
  record.bytes = location;
  EXPECT_EQ(record_path(record), "run/a.safetensors:root.model.norm.output.1");
  const RecordPath known(record);
  EXPECT_EQ(known, RecordPath(record));
  EXPECT_EQ(known.hash(), RecordPath(record).hash());
  record.slot = "2";
  EXPECT_NE(known, RecordPath(record));
  record.bytes->file = "run/outtensor0.bin";
  EXPECT_EQ(record_path(record), "run/outtensor0.bin");
  EXPECT_LE(sizeof(Row), 400u);  // a report may have a million
}

TEST(CompareRuns, FillsTheRowOfEqualDigestsWithoutReading) {
  const run::Run golden = run_of({remembered("a", 7, 3), remembered("b", 7, 3)});
  const run::Run mine = run_of({remembered("a", 7, 3), remembered("b", 8, 3)});
  const auto comparison = compare_runs(golden, mine, {});
  ASSERT_TRUE(comparison);
  const Row& equal = comparison->sheets[0].rows[0];
  EXPECT_TRUE(equal.identical);
  EXPECT_EQ(equal.metrics->cosine_similarity, 1);
  EXPECT_EQ(equal.metrics->max_absolute_error, 0);
  EXPECT_EQ(equal.golden.max, 2);
  const Row& other = comparison->sheets[0].rows[1];
  EXPECT_FALSE(other.comparable);
  EXPECT_EQ(other.fail_reason,
            "golden_data_path: /nowhere/b.pth is not a file. my_data_path: /nowhere/b.pth is not a "
            "file.");
}

TEST(CompareRuns, DoesNotTrustDigestsOfOtherShapesOrTypes) {
  run::TensorRecord turned = remembered("a", 7, 3);
  turned.shape = Dims{3, 2};
  const auto comparison = compare_runs(run_of({remembered("a", 7, 3)}), run_of({turned}), {});
  ASSERT_TRUE(comparison);
  EXPECT_FALSE(comparison->sheets[0].rows[0].identical);
}

TEST(CompareRuns, ComparesStatisticsThatBothSidesRemember) {
  CompareOptions options;
  options.statistics = true;
  options.limits.fallback.rel_l2 = 0.1;
  const auto comparison =
      compare_runs(run_of({remembered("a", 1, 3)}), run_of({remembered("a", 2, 4)}), options);
  ASSERT_TRUE(comparison);
  const Row& row = comparison->sheets[0].rows[0];
  EXPECT_EQ(row.summary->l2_norm.absolute, 1);
  EXPECT_EQ(row.summary->max.absolute, 0);
  EXPECT_EQ(row.outcome,
            Outcome::Fail);  // norms that differ by a third differ by at least that much
}

TEST(CompareRuns, StopsWhenInterrupted) {
  const std::atomic<bool> interrupted{true};
  CompareOptions options;
  options.interrupted = &interrupted;
  const auto comparison =
      compare_runs(run_of({remembered("a", 1, 3)}), run_of({remembered("a", 1, 3)}), options);
  ASSERT_FALSE(comparison);
  EXPECT_EQ(comparison.error().code, Errc::Interrupted);
}

TEST(ComparePair, CountsTheElementsBeyondATolerance) {
  const std::array<float, 4> golden = {1, 2, 0, -4};
  const std::array<float, 4> mine = {1.25F, 2, 0.125F, -6};
  const auto view = [](const std::array<float, 4>& values) {
    return *make_view(DType::Float32, Dims{4}, std::as_bytes(std::span(values)));
  };
  CompareOptions options;
  options.limits.fallback.atol = 0.125;
  options.limits.fallback.rtol = 0.125;
  const Row row = compare_pair(view(golden), view(mine), options);
  // 0.25 <= 0.125 + 0.125; 0 <= 0.375; 0.125 <= 0.125; 2 > 0.625
  EXPECT_EQ(row.outside_tolerance, 1);
  EXPECT_EQ(row.outcome, Outcome::Fail);
  EXPECT_EQ(row.exceeded, "1 elements beyond atol + rtol * |golden|");
}

TEST(ResidentLimit, RefusesMemoryThatIsNoFile) {
  // Dropping the pages of a heap block would turn its values into zeros.
  const std::vector<std::byte> heap(size_t{16} << 20, std::byte{7});
  ResidentLimit limit(1);
  EXPECT_FALSE(limit.watch(heap).is_active());
}

TEST(ResidentLimit, TakesAMappedFileAndLeavesItsValuesAlone) {
  const std::string path = ::testing::TempDir() + "resident_limit_test.bin";
  const std::vector<std::byte> content(size_t{16} << 20, std::byte{7});
  ASSERT_TRUE(write_file_atomically(path, content));
  const MappedFile file = *MappedFile::open(path);
  {
    ResidentLimit limit(1);  // everything is too much, so pages are dropped all the time
    const auto watch = limit.watch(file.bytes());
    EXPECT_TRUE(watch.is_active());
    EXPECT_TRUE(std::equal(content.begin(), content.end(), file.bytes().begin()));
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace assay::compare
