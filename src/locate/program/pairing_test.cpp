// SPDX-License-Identifier: Apache-2.0
#include "locate/program/pairing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;
using test::Value;
using testing::ElementsAre;

/// Adds operators of one input and output, by name, to a module.
void add_ops(TestRun* run, const std::string& module, const std::vector<std::string>& names) {
  Value x = run->value(DType::Float32, {1}, {1});
  for (const std::string& name : names) x = run->op(module, name, {{"self", x}}, "", x);
}

TEST(PairPrograms, PairsEqualStreamsOneToOne) {
  TestRun golden;
  add_ops(&golden, "mlp", {"aten.neg.default", "aten.exp.default"});
  TestRun mine;
  // Another module ran first in mine: modules are paired, not positions in the run
  add_ops(&mine, "norm", {"aten.neg.default"});
  add_ops(&mine, "mlp", {"aten.neg.default", "aten.exp.default"});
  const Program g = golden.program();
  const Program m = mine.program();
  const Pairing pairing = pair_programs(g, m);
  EXPECT_THAT(pairing.golden_of, ElementsAre(kNone, 0u, 1u));
  EXPECT_THAT(pairing.mine_of, ElementsAre(1u, 2u));
  EXPECT_THAT(pairing.equal_stream, ElementsAre(false, true, true));
  EXPECT_EQ(pairing.paired, 2u);
  EXPECT_EQ(pairing.unpaired, 1u);
}

TEST(PairPrograms, LeavesOutCastsAndClones) {
  TestRun golden;
  add_ops(&golden, "", {"aten.neg.default", "aten.exp.default"});
  TestRun mine;
  add_ops(&mine, "",
          {"aten._to_copy.default", "aten.neg.default", "aten.clone.default", "aten.exp.default"});
  const Pairing pairing = pair_programs(golden.program(), mine.program());
  EXPECT_THAT(pairing.golden_of, ElementsAre(kNone, 0u, kNone, 1u));
  EXPECT_THAT(pairing.equal_stream, ElementsAre(true, true, true, true));
  EXPECT_EQ(pairing.paired, 2u);
  EXPECT_EQ(pairing.unpaired, 0u);
}

TEST(PairPrograms, AlignsStreamsThatDiffer) {
  TestRun golden;
  add_ops(&golden, "", {"aten.mm.default", "aten.exp.default", "aten.neg.default"});
  TestRun mine;
  add_ops(&mine, "",
          {"aten.mm.default", "aten.mul.Tensor", "aten.exp.default", "aten.neg.default"});
  const Pairing pairing = pair_programs(golden.program(), mine.program());
  EXPECT_THAT(pairing.golden_of, ElementsAre(0u, kNone, 1u, 2u));
  EXPECT_THAT(pairing.equal_stream, ElementsAre(false, false, false, false));
  EXPECT_EQ(pairing.unpaired, 1u);
}

TEST(PairPrograms, TellsCallsAndStepsApart) {
  const auto fill = [](TestRun* run, const std::vector<int64_t>& steps) {
    for (const int64_t step : steps) {
      run->step = step;
      for (const uint32_t call : {0u, 1u}) {
        run->call = call;
        add_ops(run, "act", {"aten.neg.default"});
      }
    }
  };
  // Mine captured the second step only
  TestRun golden;
  fill(&golden, {0, 1});
  TestRun mine;
  fill(&mine, {1});
  const Pairing pairing = pair_programs(golden.program(), mine.program());
  EXPECT_THAT(pairing.golden_of, ElementsAre(2u, 3u));
  EXPECT_THAT(pairing.mine_of, ElementsAre(kNone, kNone, 0u, 1u));
  EXPECT_EQ(pairing.unpaired, 0u);
}

TEST(PairPrograms, PairsModuleCallsAndComparesTheirShapes) {
  const auto fill = [](TestRun* run, int64_t rows) {
    const std::vector<double> ones(static_cast<size_t>(rows), 1.0);
    const Value x = run->value(DType::Float32, {rows}, ones);
    run->module_input("norm", "0", x);
    run->module_output("norm", x);
    run->module_output("", x);
  };
  TestRun golden;
  fill(&golden, 2);
  TestRun same;
  fill(&same, 2);
  EXPECT_TRUE(pair_programs(golden.program(), same.program()).same_shapes);
  TestRun longer;
  fill(&longer, 3);
  longer.module_output("extra", longer.value(DType::Float32, {1}, {1}));
  const Pairing pairing = pair_programs(golden.program(), longer.program());
  EXPECT_FALSE(pairing.same_shapes);
  EXPECT_THAT(pairing.golden_call_of, ElementsAre(0u, 1u, kNone));
  EXPECT_THAT(pairing.mine_call_of, ElementsAre(0u, 1u));
}

TEST(PairPrograms, TellsProcessesApartByTheirNumbers) {
  TestRun golden;
  add_ops(&golden, "", {"aten.neg.default"});
  TestRun mine;
  mine.rank = 2;
  add_ops(&mine, "", {"aten.neg.default"});
  mine.rank = 0;
  add_ops(&mine, "", {"aten.neg.default"});
  const Pairing pairing = pair_programs(golden.program(), mine.program());
  EXPECT_EQ(pairing.paired, 1u);
  EXPECT_EQ(pairing.unpaired, 1u);
}

TEST(PairPrograms, TakesMillisecondsForAThousandOperators) {
  TestRun made;
  for (int layer = 0; layer < 20; ++layer) {
    add_ops(&made, "model.layers." + std::to_string(layer),
            std::vector<std::string>(50, "aten.neg.default"));
  }
  const run::Run& run = made.run();
  const auto begin = std::chrono::steady_clock::now();
  const Program program = make_program(run);
  const Pairing pairing = pair_programs(program, program);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_EQ(pairing.paired, 1000u);
  RecordProperty("milliseconds", std::to_string(seconds.count() * 1e3));
  EXPECT_LT(seconds.count(), 1.0);  // a few ms; the bound is for machines that are busy
}

}  // namespace
}  // namespace assay::locate
