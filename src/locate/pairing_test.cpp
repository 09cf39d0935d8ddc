// SPDX-License-Identifier: Apache-2.0
#include "locate/pairing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <chrono>
#include <set>

#include "locate/align.hpp"
#include "locate/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;
using test::Value;
using testing::ElementsAre;
using Numbers = std::vector<uint32_t>;
using Blocks = std::vector<MatchingBlock>;

// ---- sequences -----------------------------------------------------------------------------------

// Expected: Python 3.11, difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()[:-1]
TEST(MatchingBlocks, AreThoseOfDifflib) {
  EXPECT_EQ(matching_blocks(Numbers{0, 2, 2, 0, 1, 2, 1, 2}, Numbers{2, 0, 2, 0, 1, 1, 2, 0}),
            (Blocks{{0, 1, 1}, {2, 2, 3}, {6, 5, 2}}));
  EXPECT_EQ(matching_blocks(Numbers{1, 3, 3, 3, 1, 1, 1, 3, 0, 0, 1, 0},
                            Numbers{2, 0, 2, 3, 3, 3, 3, 3, 1}),
            (Blocks{{1, 5, 4}}));
  EXPECT_EQ(matching_blocks(Numbers{1, 0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0, 1},
                            Numbers{0, 1, 0, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 1, 0}),
            (Blocks{{3, 0, 4}, {7, 6, 2}, {11, 10, 4}}));
  EXPECT_EQ(matching_blocks(Numbers{}, Numbers{1}), Blocks{});
  EXPECT_EQ(matching_blocks(Numbers{1, 2}, Numbers{1, 2}), (Blocks{{0, 0, 2}}));
}

Blocks by_definition(const Numbers& a, const Numbers& b, size_t a_begin, size_t a_end,
                     size_t b_begin, size_t b_end) {
  MatchingBlock best;
  for (size_t i = a_begin; i < a_end; ++i) {
    for (size_t j = b_begin; j < b_end; ++j) {
      size_t size = 0;
      while (i + size < a_end && j + size < b_end && a[i + size] == b[j + size]) ++size;
      if (size > best.size) best = {i, j, size};
    }
  }
  if (best.size == 0) return {};
  Blocks blocks = by_definition(a, b, a_begin, best.a, b_begin, best.b);
  const auto add = [&](const MatchingBlock& block) {
    if (!blocks.empty() && blocks.back().a + blocks.back().size == block.a &&
        blocks.back().b + blocks.back().size == block.b) {
      blocks.back().size += block.size;
    } else {
      blocks.push_back(block);
    }
  };
  add(best);
  for (const MatchingBlock& block :
       by_definition(a, b, best.a + best.size, a_end, best.b + best.size, b_end)) {
    add(block);
  }
  return blocks;
}

RC_GTEST_PROP(MatchingBlocks, AreThoseOfTheDefinition, ()) {
  const auto numbers = rc::gen::container<Numbers>(rc::gen::inRange<uint32_t>(0, 4));
  const Numbers a = *numbers;
  const Numbers b = *numbers;
  RC_ASSERT(matching_blocks(a, b) == by_definition(a, b, 0, a.size(), 0, b.size()));
}

TEST(MatchingBlocks, AlignsTheEndsOfHugeSequences) {
  Numbers a(20'000, 1);
  Numbers b(20'000, 1);
  a[5'000] = 2;
  b[10'000] = 3;
  EXPECT_EQ(matching_blocks(a, b), (Blocks{{0, 0, 5'000}, {10'001, 10'001, 9'999}}));
}

// ---- programs ------------------------------------------------------------------------------------

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
