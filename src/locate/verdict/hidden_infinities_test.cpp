// SPDX-License-Identifier: Apache-2.0
#include "locate/verdict/hidden_infinities.hpp"

#include "base/numbers.hpp"
#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;

/// An activation, half of x (1 + tanh of x cubed), in front of another module.
void fill_activation(TestRun& run, double cube, double result, DType dtype) {
  const test::Value x = run.value(dtype, {2}, {1, 60});
  run.module_input("mlp.act", "0", x);
  run.op("mlp.act", "aten.pow.Tensor_Scalar", {{"self", x}}, R"({"exponent":3})",
         run.value(dtype, {2}, {1, cube}));
  run.module_output("mlp.act", run.value(dtype, {2}, {0.88, result}));
  run.module_output("mlp", run.value(dtype, {2}, {1, 2}));
}

struct Found {
  std::vector<Finding> hidden;
  NanOrigins origins;
};

/// change  of the step of the activation's output
Found search_around(double result, const std::function<void(Walk*)>& change) {
  TestRun golden;
  fill_activation(golden, 216000, 60, DType::Float32);
  TestRun run;
  fill_activation(run, kInfinity, result, DType::Float16);
  const Program mine = run.program();
  Walk walk;
  for (size_t i = 0; i < mine.calls.size(); ++i) {
    for (size_t use = 0; use < mine.calls[i].outputs.size(); ++use)
      walk.steps.push_back({.call = i, .use = use, .r = 1});
  }
  std::ranges::sort(walk.steps, {}, [&](const WalkStep& step) {
    return mine.calls[step.call].module != "mlp.act";  // it first
  });
  change(&walk);
  Found found;
  found.origins = find_nan_origins(golden.run(), run.run(), 1, nullptr).value();
  found.hidden = take_hidden_infinities(mine, walk, &found.origins);
  return found;
}

TEST(HiddenInfinities, AreThoseOfAModuleWhoseOutputIsGoldens) {
  const Found found = search_around(60, [](Walk*) {});
  ASSERT_EQ(found.hidden.size(), 1u);
  EXPECT_EQ(found.hidden[0].op_type, "aten.pow.Tensor_Scalar");
  EXPECT_TRUE(found.origins.findings.empty());
  EXPECT_TRUE(found.origins.inherited.empty());
}

TEST(HiddenInfinities, AreNoneWhereTheOutputIsWrongOrNotJudgedOrInfiniteItself) {
  const auto wrong = [](Walk* walk) { walk->steps[0].suspicious = true; };
  const auto unjudged = [](Walk* walk) { walk->steps[0].reason = "needs more memory"; };
  const auto missing = [](Walk* walk) { walk->steps.erase(walk->steps.begin()); };
  for (const Found& found : {search_around(60, wrong), search_around(60, unjudged),
                             search_around(60, missing), search_around(kInfinity, [](Walk*) {})}) {
    EXPECT_TRUE(found.hidden.empty());
    EXPECT_EQ(found.origins.findings.size(), 1u);
  }
}

TEST(HiddenInfinities, ANaNIsNever) {
  TestRun golden;
  fill_activation(golden, 216000, 60, DType::Float32);
  TestRun run;
  fill_activation(run, NAN, 60, DType::Float16);
  const Program mine = run.program();
  Walk walk;
  for (size_t i = 0; i < mine.calls.size(); ++i)
    walk.steps.push_back({.call = i, .use = 0, .r = 1});
  NanOrigins origins = find_nan_origins(golden.run(), run.run(), 1, nullptr).value();
  EXPECT_TRUE(take_hidden_infinities(mine, walk, &origins).empty());
  EXPECT_EQ(origins.findings.size(), 1u);
}

}  // namespace
}  // namespace assay::locate
