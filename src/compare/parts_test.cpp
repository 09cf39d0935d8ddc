// SPDX-License-Identifier: Apache-2.0
#include "compare/parts.hpp"

#include <gtest/gtest.h>

#include "run/test_parts.hpp"

namespace assay::compare {
namespace {

Result<std::string> do_part(ByteSpan body) { return run_part(body, {}); }

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
  run::test::PartsHere runner(do_part);
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

TEST(RunPart, TrustsNothing) {
  run::test::PartsHere runner(do_part);
  CompareOptions options;
  options.statistics = true;
  options.parts = &runner;
  ASSERT_TRUE(compare_runs(run_of("golden", 1), run_of("mine", 2), options));
  run::test::expect_trusts_nothing(runner.bodies.front(), do_part);
}

}  // namespace
}  // namespace assay::compare
