// SPDX-License-Identifier: Apache-2.0
#include "compare/parts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>

namespace assay::compare {
namespace {

TEST(PlanParts, HaveEveryPairOnceAndNoTwoPlaces) {
  std::vector<PairPlace> pairs;
  for (size_t i = 0; i < 1000; ++i)
    pairs.push_back({.sheet = i % 2,
                     .rank = static_cast<int>(i % 3),
                     .step = static_cast<int64_t>(i % 5),
                     .bytes = i * 10,
                     .crosses_ranks = i % 7 == 0});
  const std::vector<Part> parts = plan_parts(pairs, {.bytes = 20000, .pairs = 8});
  std::vector<size_t> met;
  for (const Part& part : parts) {
    EXPECT_LE(part.tasks.size(), 8u);
    EXPECT_LE(part.bytes, 20000u);
    const PairPlace& first = pairs[part.tasks.front()];
    uint64_t bytes = 0;
    for (const size_t task : part.tasks) {
      const PairPlace& pair = pairs[task];
      EXPECT_EQ(std::tuple(pair.sheet, pair.rank, pair.step, pair.crosses_ranks),
                std::tuple(first.sheet, first.rank, first.step, first.crosses_ranks));
      bytes += pair.bytes;
    }
    EXPECT_EQ(part.bytes, bytes);
    EXPECT_EQ(part.crosses_ranks, first.crosses_ranks);
    EXPECT_TRUE(std::ranges::is_sorted(part.tasks));
    met.insert(met.end(), part.tasks.begin(), part.tasks.end());
  }
  std::ranges::sort(met);
  std::vector<size_t> all(pairs.size());
  std::iota(all.begin(), all.end(), size_t{0});
  EXPECT_EQ(met, all);
  EXPECT_TRUE(std::ranges::is_sorted(parts, std::greater(), &Part::bytes));
}

TEST(PlanParts, GivesALargePairAPartOfItsOwn) {
  const std::vector<PairPlace> pairs = {{.bytes = 10}, {.bytes = 5000}, {.bytes = 10}};
  const std::vector<Part> parts = plan_parts(pairs, {.bytes = 100, .pairs = 8});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(parts[0].tasks, testing::ElementsAre(1));
}

/// Does parts in this process, or fails them.
class Here : public PartRunner {
 public:
  Status run(size_t count, const std::function<Request(size_t i)>& request,
             const std::function<void(size_t i, Outcome outcome)>& done) override {
    for (size_t i = count; i-- > 0;) {  // in another order than asked
      const Request asked = request(i);
      bodies.push_back(asked.body);
      files.insert(asked.part.files.begin(), asked.part.files.end());
      done(i, run_part(as_bytes(asked.body), {}));
    }
    return {};
  }
  std::vector<std::string> bodies;
  std::set<std::string> files;
};

run::Run run_of(const std::string& path, double factor) {
  run::Run run;
  run.path = path;
  run.layout = run::Layout::Native;
  for (size_t i = 0; i < 4; ++i) {
    run::TensorRecord record;
    record.rank = static_cast<int>(i / 2);
    record.step_name = "0";
    record.node = "layers." + std::to_string(i % 2);
    record.order = i;
    record.dtype = DType::Float32;
    record.shape = Dims{2};
    stats::TensorStats stats{.count = 2};
    stats.min = -1;
    stats.max = stats.mean = stats.l2_norm = factor * static_cast<double>(i + 1);
    record.stats = stats;
    run.records.push_back(record);
  }
  return run;
}

TEST(PairsElsewhere, GiveTheRowsOfThisProcess) {
  const run::Run golden = run_of("golden", 1);
  const run::Run mine = run_of("mine", 1.25);
  CompareOptions options;
  options.statistics = true;
  options.limits.fallback.rel_l2 = 0.1;
  const Result<Comparison> here = compare_runs(golden, mine, options);
  ASSERT_TRUE(here) << here.error().describe();
  Here runner;
  options.parts = &runner;
  const Result<Comparison> there = compare_runs(golden, mine, options);
  ASSERT_TRUE(there) << there.error().describe();

  EXPECT_EQ(runner.bodies.size(), 2u);  // one a rank
  ASSERT_EQ(there->sheets[0].rows.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const Row& a = here->sheets[0].rows[i];
    const Row& b = there->sheets[0].rows[i];
    EXPECT_EQ(a.label, b.label);
    EXPECT_EQ(a.data_id, b.data_id);
    EXPECT_EQ(a.golden.path, b.golden.path);
    EXPECT_EQ(a.summary->l2_norm.relative, b.summary->l2_norm.relative);
    EXPECT_EQ(a.exceeded, b.exceeded);
    EXPECT_EQ(b.outcome, Outcome::Fail);
  }
}

TEST(RunPart, RefusesWhatIsCutOrChanged) {
  Here runner;
  CompareOptions options;
  options.statistics = true;
  options.parts = &runner;
  ASSERT_TRUE(compare_runs(run_of("golden", 1), run_of("mine", 2), options));
  const std::string& body = runner.bodies.front();
  ASSERT_TRUE(run_part(as_bytes(body), {}));
  for (size_t size = 0; size < body.size(); ++size)
    EXPECT_FALSE(run_part(as_bytes(body).first(size), {})) << size;
  for (size_t at = 0; at < body.size(); ++at) {
    std::string changed = body;
    changed[at] = static_cast<char>(changed[at] ^ 0xff);
    (void)run_part(as_bytes(changed), {});  // an error or rows, under the sanitizers, too
  }
}

}  // namespace
}  // namespace assay::compare
