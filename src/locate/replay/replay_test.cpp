// SPDX-License-Identifier: Apache-2.0
#include "locate/replay/replay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <limits>

#include "locate/noise/gap.hpp"
#include "locate/noise/kernel_rounding.hpp"
#include "locate/program/owner.hpp"
#include "locate/program/test_program.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using test::TestRun;
using test::Value;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

std::vector<double> values_of(const Tensor& tensor) {
  std::vector<double> values(static_cast<size_t>(tensor.view.element_count()));
  read_values(tensor.view, 0, tensor.view.element_count(), values);
  return values;
}

Tensor tensor_of(const Dims& shape, const std::vector<double>& values, DType dtype) {
  reference::Wide wide(shape);
  std::copy(values.begin(), values.end(), wide.values.begin());
  return reference::narrow(reference::to_tensor(std::move(wide)).view, dtype).value();
}

/// Where the records of a value lie.
void place(TestRun& run, const Value& value, int64_t storage, int64_t offset, const Dims& strides,
           int64_t version) {
  for (run::TensorRecord& record : run.run().records) {
    if (record.value_id != value.id) continue;
    record.storage_id = storage;
    record.storage_offset = offset;
    record.strides = strides;
    record.storage_version = version;
  }
}

/// Boundaries of mine by module call and direction, golden's record of the same place beside each.
std::vector<Boundary> boundaries_of(const Program& golden, const Program& mine) {
  std::vector<Boundary> boundaries;
  for (size_t call = 0; call < mine.calls.size(); ++call) {
    for (const bool input : {true, false}) {
      const auto& uses = input ? mine.calls[call].inputs : mine.calls[call].outputs;
      for (size_t i = 0; i < uses.size(); ++i) {
        const auto& theirs = input ? golden.calls[call].inputs : golden.calls[call].outputs;
        boundaries.push_back({theirs[i].value, theirs[i].record, call, i, input, uses[i].time});
      }
    }
  }
  return boundaries;
}

constexpr std::string_view kMm = R"({"self":{"tensor":"self"},"mat2":{"tensor":"mat2"}})";
constexpr std::string_view kCopy = R"({"self":{"tensor":"self"},"src":{"tensor":"src"}})";

/// Runs copy_(self, src) of torch and gives the value that self has afterwards.
Value copy_into(TestRun& run, const std::string& module, const Value& self, const Value& source,
                Value after) {
  after = run.op(module, "aten.copy_.default", {{"self", self}, {"src", source}},
                 std::string(kCopy), after);
  run.run().operations.back().writes = {"self"};
  return after;
}

TEST(Replay, SeesWhatWasWrittenThroughAView) {
  // Given  h = x w; h[1] = b through a view of it; y = h w, in which h is a value that no operator
  //        returned
  const auto record = [](TestRun* run, const std::vector<double>& x_values, DType dtype) {
    const Value x = run->value(dtype, {2, 2}, x_values);
    const Value b = run->value(dtype, {2}, {x_values[0] + 10, 20});
    run->module_input("m", "0", x);
    run->module_input("m", "1", b);
    const Value w = run->leaf("w", DType::Float32, {2, 2}, {0, 1, 1, 0});
    const Value h = run->op("m", "aten.mm.default", {{"self", x}, {"mat2", w}}, std::string(kMm),
                            run->value(DType::Float32, {2, 2}, {0, 0, 0, 0}));
    const Value row = run->op("m", "aten.select.int", {{"self", h}},
                              R"({"self":{"tensor":"self"},"dim":0,"index":1})",
                              run->value(DType::Float32, {2}, {0, 0}));
    const Value written = copy_into(*run, "m", row, b, run->value(DType::Float32, {2}, {0, 0}));
    const Value after = run->value(DType::Float32, {2, 2}, {0, 0, 0, 0});
    const Value y = run->op("m", "aten.mm.default", {{"self", after}, {"mat2", w}},
                            std::string(kMm), run->value(dtype, {2, 2}, {0, 0, 0, 0}));
    run->module_output("m", y);
    place(*run, h, 1, 0, {2, 1}, 0);
    place(*run, row, 1, 2, {1}, 0);
    place(*run, written, 1, 2, {1}, 1);
    place(*run, after, 1, 0, {2, 1}, 1);
  };
  TestRun golden_run, mine_run;
  record(&golden_run, {1, 2, 3, 4}, DType::Float32);
  record(&mine_run, {5, 6, 7, 8}, DType::BFloat16);
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  const Replay replay(golden, mine, boundaries_of(golden, mine), 1 << 20);

  // When  golden's program runs on the run under test's x = [5 6; 7 8] and b = [15 20]
  const Region region = replay.plan(2).value();
  const Replayed replayed = replay.run(region, {LeafRounding::OwnType}).value();

  // Then  x w = [6 5; 8 7], its second row becomes [15 20], and times w again columns change places
  EXPECT_THAT(values_of(replayed.reference), ElementsAre(5, 6, 20, 15));
  EXPECT_EQ(region.operators.size(), 4u);
  EXPECT_EQ(region.dtype, DType::BFloat16);
}

TEST(Replay, RoundsAFactorAsKernelsDo) {
  // Given  y = 0.1 x, whose factor a kernel of float32 has as 0.1f
  TestRun golden_run, mine_run;
  for (TestRun* run : {&golden_run, &mine_run}) {
    const Value x = run->value(DType::Float32, {3}, {9, 13, 8});
    run->module_input("m", "0", x);
    run->module_output("m", run->op("m", "aten.mul.Tensor", {{"self", x}},
                                    R"({"self":{"tensor":"self"},"other":0.1})",
                                    run->value(DType::Float32, {3}, {0.9, 1.3, 0.8})));
  }
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  const Replay replay(golden, mine, boundaries_of(golden, mine), 1 << 20);

  // Then  9 and 13 times 0.1f are one float32 above what rounding 0.9 and 1.3 once would give
  const Replayed replayed = replay.run(replay.plan(1).value(), {LeafRounding::OwnType}).value();
  EXPECT_THAT(values_of(replayed.reference),
              Pointwise(testing::DoubleEq(), {9 * 0.1, 13 * 0.1, 8 * 0.1}));
  EXPECT_THAT(values_of(replayed.simulated), ElementsAre(9 * 0.1f, 13 * 0.1f, 8 * 0.1f));
}

/// y = (x a) b with the weights a and b in `weights` and x and y in float32; x a, too, where it is
/// recorded.
DType type_of_two_products(DType weights, bool between) {
  TestRun golden_run, mine_run;
  for (TestRun* run : {&golden_run, &mine_run}) {
    const DType type = run == &mine_run ? weights : DType::Float32;
    const Value x = run->value(DType::Float32, {1, 2}, {1, 2});
    run->module_input("m", "0", x);
    const Value a = run->leaf("m.a", type, {2, 2}, {1, 0, 0, 1});
    const Value b = run->leaf("m.b", type, {2, 2}, {1, 0, 0, 1});
    const Value h = run->op("m", "aten.mm.default", {{"self", x}, {"mat2", a}}, std::string(kMm),
                            run->value(DType::Float32, {1, 2}, {1, 2}));
    if (between) run->module_output("m.inner", h);
    const Value y = run->op("m", "aten.mm.default", {{"self", h}, {"mat2", b}}, std::string(kMm),
                            run->value(DType::Float32, {1, 2}, {1, 2}));
    run->module_output("m", y);
  }
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  const Replay replay(golden, mine, boundaries_of(golden, mine), 1 << 20);
  return replay.plan(replay.boundaries().size() - 1).value().dtype;
}

TEST(Replay, RoundsWhatNobodySawInTheTypeOfTheWeightsThatItMeets) {
  // A layer that keeps its residual in float32 and computes in bfloat16: x a was not captured and
  // is multiplied by b.
  EXPECT_EQ(type_of_two_products(DType::BFloat16, /*between=*/false), DType::BFloat16);
  EXPECT_EQ(type_of_two_products(DType::Float32, /*between=*/false), DType::Float32);
  // Captured in float32 it was cast by the module, and so may the weight have been.
  EXPECT_EQ(type_of_two_products(DType::BFloat16, /*between=*/true), DType::Float32);
}

TEST(Replay, DrawsTheNoiseOfAFirstLayerWhoseInputWasNotCaptured) {
  // Given  y = a b of weights alone, as a layer makes of its tokens when nothing in front of it was
  //        recorded
  TestRun golden_run, mine_run;
  for (TestRun* run : {&golden_run, &mine_run}) {
    const DType type = run == &mine_run ? DType::BFloat16 : DType::Float32;
    const Value a = run->leaf("a", type, {1, 2}, {1, 2});
    const Value b = run->leaf("b", type, {2, 2}, {1, 3, 5, 7});
    for (const auto& [name, weight] : {std::pair("a", a), {"b", b}}) run->weight("", name, weight);
    run->module_output("m", run->op("m", "aten.mm.default", {{"self", a}, {"mat2", b}},
                                    std::string(kMm), run->value(type, {1, 2}, {11, 17})));
  }
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  const Replay replay(golden, mine, boundaries_of(golden, mine), 1 << 20);
  const Region region = replay.plan(0).value();

  // Then  11 and 17 are bfloat16 and stay, and each draw moves them otherwise, none by more than
  //       half a step of 2^-4 or 2^-3
  const auto drawn = [&](uint32_t draw) {
    return values_of(replay.run(region, {.draw = draw}).value().simulated);
  };
  EXPECT_THAT(drawn(0), ElementsAre(11, 17));
  EXPECT_NE(drawn(1), drawn(2));
  EXPECT_NEAR(drawn(1)[0], 11, 0x1p-5);
  EXPECT_NEAR(drawn(1)[1], 17, 0x1p-4);
}

/// Two steps that each write a row of a cache and then multiply all of it.
void record_cached_steps(TestRun* run, double first, double second, int64_t second_version) {
  const Value cache = run->leaf("cache", DType::Float32, {2, 2}, {0, 0, 0, 0});
  const Value w = run->leaf("w", DType::Float32, {2, 1}, {1, 1});
  const Dims strides{2, 1};
  int64_t version = 0;
  for (int64_t step = 0; step < 2; ++step) {
    run->step = step;
    const double values = step == 0 ? first : second;
    const Value k = run->value(DType::Float32, {1, 2}, {values, 2 * values});
    run->module_input("m", "0", k);
    Value whole = cache;
    if (step == 1) {
      whole = run->value(DType::Float32, {2, 2}, {0, 0, 0, 0});
    }
    const Value slot =
        run->op("m", "aten.slice.Tensor", {{"self", whole}},
                R"({"self":{"tensor":"self"},"dim":0,"start":)" + std::to_string(step) +
                    R"(,"end":)" + std::to_string(step + 1) + "}",
                run->value(DType::Float32, {1, 2}, {0, 0}));
    const Value written = copy_into(*run, "m", slot, k, run->value(DType::Float32, {1, 2}, {0, 0}));
    const Value full = run->value(DType::Float32, {2, 2}, {0, 0, 0, 0});
    const Value y = run->op("m", "aten.mm.default", {{"self", full}, {"mat2", w}}, std::string(kMm),
                            run->value(DType::Float32, {2, 1}, {0, 0}));
    run->module_output("m", y);
    place(*run, whole, 1, 0, strides, version);
    place(*run, slot, 1, 2 * step, strides, version);
    version = step == 0 ? 1 : second_version;
    place(*run, written, 1, 2 * step, strides, version);
    place(*run, full, 1, 0, strides, version);
  }
}

TEST(Replay, PutsACacheTogetherFromTheStepsThatWroteIt) {
  // Given  a cache of two rows of which step 0 writes the first and step 1 the second
  TestRun golden_run, mine_run;
  record_cached_steps(&golden_run, 100, 200, 2);
  record_cached_steps(&mine_run, 1, 2, 2);
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  const Replay replay(golden, mine, boundaries_of(golden, mine), 1 << 20);
  // When
  const Replayed first = replay.run(replay.plan(1).value(), {LeafRounding::OwnType}).value();
  const Replayed second = replay.run(replay.plan(3).value(), {LeafRounding::OwnType}).value();
  // Then  sums over rows of the run under test's cache [1 2; 0 0] and [1 2; 2 4]
  EXPECT_THAT(values_of(first.reference), ElementsAre(3, 0));
  EXPECT_THAT(values_of(second.reference), ElementsAre(3, 6));
}

/// Steps that each append a row k w to a cache and multiply all of it, as a decoder does with its
/// keys.
void record_growing_cache(TestRun* run, int64_t steps, double scale, DType dtype) {
  const Value w = run->leaf("w", DType::Float32, {2, 2}, {0, 1, 1, 0});
  const Value ones = run->leaf("ones", DType::Float32, {2, 1}, {1, 1});
  Value cache;
  for (int64_t step = 0; step < steps; ++step) {
    run->step = step;
    const double x = scale * static_cast<double>(step + 1);
    const Value k = run->value(dtype, {1, 2}, {x, 2 * x});
    run->module_input("m", "0", k);
    Value row = run->op("m", "aten.mm.default", {{"self", k}, {"mat2", w}}, std::string(kMm),
                        run->value(dtype, {1, 2}, {2 * x, x}));
    if (step > 0) {
      const auto count = static_cast<size_t>(2 * (step + 1));
      row = run->op("m", "aten.cat.default", {{"tensors.0", cache}, {"tensors.1", row}},
                    R"({"tensors":[{"tensor":"tensors.0"},{"tensor":"tensors.1"}],"dim":0})",
                    run->value(dtype, {step + 1, 2}, std::vector<double>(count)));
    }
    cache = row;
    const Value y = run->op(
        "m", "aten.mm.default", {{"self", cache}, {"mat2", ones}}, std::string(kMm),
        run->value(dtype, {step + 1, 1}, std::vector<double>(static_cast<size_t>(step + 1))));
    run->module_output("m", y);
  }
}

TEST(Replay, RunsEachStepOfALongDecodeOnce) {
  // Given  40 steps with a growing cache; of mine only inputs and outputs of the module
  constexpr int64_t kSteps = 40;
  TestRun golden_run, mine_run;
  record_growing_cache(&golden_run, kSteps, 100, DType::Float32);
  record_growing_cache(&mine_run, kSteps, 1, DType::BFloat16);
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  // One that can keep what it made, and one that keeps nothing and has to make all of it again.
  for (const uint64_t cache_bytes : {uint64_t{1} << 20, uint64_t{0}}) {
    const Replay replay(golden, mine, boundaries_of(golden, mine), cache_bytes);
    for (size_t step = 0; step < kSteps; ++step) {
      // When
      const Region region = replay.plan(2 * step + 1).value();
      const Replayed replayed = replay.run(region, {LeafRounding::OwnType}).value();
      // Then  the program of the step itself runs, and row i of the result is the sum of the run
      //       under test's k_i: 3 (i + 1)
      EXPECT_LE(region.operators.size(), 3u);
      EXPECT_EQ(region.carried.size(), step > 0 ? 1u : 0u);
      EXPECT_EQ(region.dtype, DType::BFloat16);
      EXPECT_TRUE(region.values[0].floating);
      std::vector<double> expected;
      for (size_t i = 0; i <= step; ++i) expected.push_back(3.0 * static_cast<double>(i + 1));
      EXPECT_EQ(values_of(replayed.reference), expected);
      // Then  nothing is different from running the program of all steps for this one
      const Region whole = replay.plan(2 * step + 1, {}, Carry::No).value();
      EXPECT_EQ(whole.operators.size(), 2 * (step + 1));
      const Replayed again = replay.run(whole, {LeafRounding::OwnType}).value();
      EXPECT_EQ(values_of(again.reference), expected);
      EXPECT_EQ(values_of(again.simulated), values_of(replayed.simulated));
    }
  }
}

TEST(Replay, ReadsAStepWhoseEarlierOnesMineDidNotCapture) {
  // Given  the run under test's inputs of the first 30 of 40 steps are missing
  constexpr int64_t kSteps = 40;
  TestRun golden_run, mine_run;
  record_growing_cache(&golden_run, kSteps, 64, DType::Float32);
  record_growing_cache(&mine_run, kSteps, 1, DType::BFloat16);
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  std::vector<Boundary> boundaries = boundaries_of(golden, mine);
  boundaries.erase(boundaries.begin(), boundaries.begin() + 60);
  const Replay replay(golden, mine, std::move(boundaries), 0);
  // When  the last step is replayed first
  const Replayed replayed = replay.run(replay.plan(19).value(), {LeafRounding::OwnType}).value();
  // Then  the first rows come from golden's own inputs, the others from those of the run under test
  std::vector<double> expected;
  for (int i = 0; i < kSteps; ++i) expected.push_back((i < 30 ? 192.0 : 3.0) * (i + 1));
  EXPECT_EQ(values_of(replayed.reference), expected);
}

TEST(Replay, RefusesAStorageThatSomebodyElseWrote) {
  // Given  a cache whose version says that three writes happened where two were seen
  TestRun golden_run, mine_run;
  record_cached_steps(&golden_run, 100, 200, 3);
  for (run::TensorRecord& record : golden_run.run().records) {
    if (record.step == 1 && record.storage_id == 1 && record.storage_version == 1)
      record.storage_version = 2;
  }
  record_cached_steps(&mine_run, 1, 2, 3);
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  const Replay replay(golden, mine, boundaries_of(golden, mine), 1 << 20);
  // When
  const Result<Region> region = replay.plan(3);
  // Then  the first row of the cache is not known to be a function of the run under test's values
  ASSERT_FALSE(region);
  EXPECT_THAT(region.error().message, HasSubstr("written outside the capture"));
}

TEST(Replay, PrefersWhatEnteredTheCallAroundToTheFirstRecord) {
  // Given  mine hands another tensor to `a.b` than the one that entered `a`
  const auto record = [](TestRun* run, bool changed) {
    const Value x = run->value(DType::Float32, {1, 1}, {3});
    const Value other = run->value(DType::Float32, {1, 1}, {5});
    const Value w = run->leaf("w", DType::Float32, {1, 1}, {2});
    run->module_input("a", "0", x);
    run->module_input("a.b", "0", changed ? other : x);
    const Value y = run->op("a.b", "aten.mm.default", {{"self", x}, {"mat2", w}}, std::string(kMm),
                            run->value(DType::Float32, {1, 1}, {6}));
    run->module_output("a.b", y);
    const Value z = run->op("a", "aten.mm.default", {{"self", x}, {"mat2", y}}, std::string(kMm),
                            run->value(DType::Float32, {1, 1}, {18}));
    run->module_output("a", z);
  };
  TestRun golden_run, mine_run;
  record(&golden_run, false);
  record(&mine_run, true);
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  std::vector<Boundary> boundaries = boundaries_of(golden, mine);
  const Replay replay(golden, mine, boundaries, 1 << 20);
  for (size_t i = 0; i < boundaries.size(); ++i) {
    if (boundaries[i].input) continue;
    const Replayed replayed = replay.run(replay.plan(i).value(), {LeafRounding::OwnType}).value();
    // Then  b is judged on what it got, a on what a got: 5 times 2, and 3 times b's recorded 6
    const bool inner = mine.calls[boundaries[i].call].module == "a.b";
    EXPECT_THAT(values_of(replayed.reference), ElementsAre(inner ? 10 : 18));
  }
}

TEST(Replay, SaysWhichOperatorItDoesNotKnow) {
  TestRun golden_run, mine_run;
  for (TestRun* run : {&golden_run, &mine_run}) {
    const Value x = run->value(DType::Float32, {1}, {3});
    run->module_input("m", "0", x);
    run->module_output(
        "m", run->op("m", "vendor.secret.default", {{"self", x}}, R"({"self":{"tensor":"self"}})",
                     run->value(DType::Float32, {1}, {6})));
  }
  const Program golden = golden_run.program();
  const Program mine = mine_run.program();
  const Replay replay(golden, mine, boundaries_of(golden, mine), 1 << 20);
  const Result<Replayed> replayed = replay.run(replay.plan(1).value(), {LeafRounding::OwnType});
  ASSERT_FALSE(replayed);
  EXPECT_THAT(replayed.error().message, HasSubstr("vendor.secret.default"));
}

// --- owners -------------------------------------------------------------------------------------

TEST(Owner, IsTheInnermostModuleAroundTheCodeBetween) {
  EXPECT_EQ(common_module({"layers.1.attn", "layers.1.attn.rope"}), "layers.1.attn");
  EXPECT_EQ(common_module({"layers.1", "layers.10"}), "layers");  // whole components
  EXPECT_EQ(common_module({"layers.1", ""}), "");
  EXPECT_EQ(name_owner("layers.1.attn.o", true, {"layers.1.attn"}).module, "layers.1.attn");
  EXPECT_EQ(name_owner("layers.1.attn.o", true, {}).module, "layers.1.attn.o");
}

TEST(Owner, OfAnOutputIsTheModuleWithTheCodeBeforeItAsSecondPlace) {
  const Owner owner = name_owner("l.attn.o", false, {"l.attn", "l.attn.o"});
  EXPECT_EQ(owner.module, "l.attn.o");
  EXPECT_EQ(owner.also, "l.attn");
  EXPECT_EQ(name_owner("l.attn.o", false, {"l.attn.o"}).also, "");
}

// --- the measure --------------------------------------------------------------------------------

RC_GTEST_PROP(MeasureGap, AllowsOneRoundingOfAnything, ()) {
  // Given  values of any size, and golden's function without noise of its own
  const auto type = *rc::gen::element(DType::BFloat16, DType::Float16, DType::Float32);
  const auto count = *rc::gen::inRange<int64_t>(1, 40);
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(
        std::ldexp(*rc::gen::inRange(-100000, 100000) / 65536.0, *rc::gen::inRange(-30, 12)));
  const Tensor reference = tensor_of({count}, values, DType::Float64);
  const Tensor mine = reference::narrow(reference.view, type).value();
  // When
  const Gap gap = measure_gap(mine.view, reference.view, reference.view, type, false).value();
  // Then  an error of half a unit: sqrt(1/4 / (1/12)) = 1.73 at most
  RC_ASSERT(gap.r <= std::sqrt(3.0) + 1e-9);
  RC_ASSERT(gap.r_element <= 1.0);
}

TEST(MeasureGap, SeesOneElementThatRoundingDoesNotExplain) {
  // Given  256 ones, of which one is off by 4 units of bf16 (2^-7): limits are half a unit
  std::vector<double> values(256, 1.0);
  const Tensor reference = tensor_of({16, 16}, values, DType::Float64);
  values[40] += 4.0 / 128;
  const Tensor mine = tensor_of({16, 16}, values, DType::BFloat16);
  const Gap gap =
      measure_gap(mine.view, reference.view, reference.view, DType::BFloat16, false).value();
  EXPECT_NEAR(gap.r_element, 8, 0.01);
  // 4 units against sqrt(256 / 12) of them
  EXPECT_NEAR(gap.r, 4 / std::sqrt(256.0 / 12), 0.01);
}

TEST(MeasureGap, ScalesTheElementLimitWithTheNoiseOfItsRowOrColumn) {
  // Given  one noisy column: 0.25 in each of four rows, where mine is off by 0.5 twice
  const Tensor reference = tensor_of({4, 2}, {1, 1, 1, 1, 1, 1, 1, 1}, DType::Float64);
  const Tensor simulated = tensor_of({4, 2}, {1.25, 1, 1.25, 1, 0.75, 1, 0.75, 1}, DType::Float64);
  const Tensor mine = tensor_of({4, 2}, {1.5, 1, 1, 1, 1, 1.5, 1, 1}, DType::BFloat16);
  const Gap gap =
      measure_gap(mine.view, reference.view, simulated.view, DType::BFloat16, false).value();
  // In the quiet column the row's rms counts: sqrt(0.0625 / 2) = 0.177, times 4, and half a unit of
  // 1.5
  EXPECT_NEAR(gap.r_element, 0.5 / (4 * std::sqrt(0.0625 / 2) + 1.0 / 256), 1e-6);
  EXPECT_NEAR(gap.r, std::sqrt(0.5) / 0.5, 1e-6);  // noise 4 times 0.25^2
}

TEST(MeasureGap, TakesTheLowestValueOfAnyTypeForTheSame) {
  const double lowest = -3.4028234663852886e38;
  const Tensor reference = tensor_of({3}, {0, lowest, lowest}, DType::Float64);
  const Tensor mine = tensor_of({3}, {0, -INFINITY, -3.3895313892515355e38}, DType::BFloat16);
  const Gap gap =
      measure_gap(mine.view, reference.view, reference.view, DType::BFloat16, false).value();
  EXPECT_EQ(gap.r, 0);
}

TEST(MeasureGap, FillOfAMaskIsAMatterOfTaste) {
  const Tensor reference = tensor_of({2}, {0, -3.4e38}, DType::Float64);
  const Tensor mine = tensor_of({2}, {0, -1e9}, DType::Float32);
  EXPECT_EQ(measure_gap(mine.view, reference.view, reference.view, DType::Float32, true)->r, 0);
  EXPECT_GT(measure_gap(mine.view, reference.view, reference.view, DType::Float32, false)->r, 1e6);
}

TEST(MeasureGap, NanOnOneSideIsBeyondEveryLimit) {
  const Tensor reference = tensor_of({2}, {1, 2}, DType::Float64);
  const Tensor mine = tensor_of({2}, {1, NAN}, DType::Float16);
  const Gap gap =
      measure_gap(mine.view, reference.view, reference.view, DType::Float16, false).value();
  EXPECT_TRUE(std::isinf(gap.r));
  const Gap both = measure_gap(mine.view, mine.view, mine.view, DType::Float16, false).value();
  EXPECT_EQ(both.r, 0);
}

TEST(MeasureGap, DoesNotJudgeAnotherShapeOrKindOfType) {
  const Tensor two = tensor_of({2}, {1, 2}, DType::Float32);
  const Tensor row = tensor_of({1, 2}, {1, 2}, DType::Float32);
  const Tensor integers = tensor_of({2}, {1, 2}, DType::Int64);
  const Tensor wide = tensor_of({2}, {1, 2}, DType::Float64);
  EXPECT_THAT(measure_gap(row.view, two.view, two.view, DType::Float32, false).error().message,
              HasSubstr("program differs here, cannot judge"));
  EXPECT_FALSE(measure_gap(integers.view, two.view, two.view, DType::Float32, false));
  EXPECT_FALSE(measure_gap(wide.view, wide.view, wide.view, DType::Float64, false));
}

// --- the simulation -----------------------------------------------------------------------------

TEST(SimRounding, KeepsWideWhatModelsKeepWide) {
  using reference::aten::Argument;
  using reference::aten::Call;
  const Tensor x = tensor_of({1}, {1.001}, DType::Float64);
  const auto call = [&](const std::string& name, Argument other) {
    return Call{name, {{"self", Argument{x}}, {"other", std::move(other)}}};
  };
  EXPECT_TRUE(keeps_wide(call("aten.mul.Tensor", Argument{2.5})));
  EXPECT_TRUE(keeps_wide(call("aten.add_.Tensor", Argument{int64_t{1}})));
  EXPECT_FALSE(keeps_wide(call("aten.mul.Tensor", Argument{x})));
  EXPECT_FALSE(keeps_wide(call("aten.add.Tensor", Argument{x})));
  EXPECT_TRUE(keeps_wide(call("aten.sub.Tensor", Argument{x})));
  EXPECT_TRUE(keeps_wide(call("aten.neg.default", {})));
  EXPECT_TRUE(keeps_wide(call("aten.view.default", {})));
  EXPECT_FALSE(keeps_wide(call("aten.mm.default", {})));
}

TEST(SimRounding, RoundsAndNeverOverflows) {
  const Tensor wide = tensor_of({3}, {1.001, -3.4028234663852886e38, INFINITY}, DType::Float64);
  const Tensor rounded = round_within(wide, DType::BFloat16).value();
  EXPECT_THAT(values_of(rounded), ElementsAre(1.0, -0x1.FEp127, INFINITY));
}

}  // namespace
}  // namespace assay::locate
