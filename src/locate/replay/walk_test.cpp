// SPDX-License-Identifier: Apache-2.0
#include "locate/replay/walk.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "locate/program/test_program.hpp"

namespace assay::locate {
namespace {

using test::TestRun;
using test::Value;

constexpr int64_t kRows = 24;
constexpr int64_t kWidth = 32;
using Values = std::vector<double>;

Values random_values(size_t count, double scale, std::mt19937& random) {
  std::normal_distribution<double> normal(0, scale);
  Values values(count);
  for (double& value : values) value = normal(random);
  return values;
}

/// Rounds to bfloat16, the independent way: to 8 significant bits.
Values rounded(Values values) {
  for (double& value : values) {
    int exponent = 0;
    const double fraction = std::frexp(value, &exponent);
    value = std::ldexp(std::nearbyint(std::ldexp(fraction, 8)), exponent - 8);
  }
  return values;
}

/// a [rows, width] times the transpose of b [width, width]
Values product(const Values& a, const Values& b) {
  const size_t width = kWidth;
  Values result(a.size(), 0.0);
  for (size_t i = 0; i < a.size() / width; ++i) {
    for (size_t j = 0; j < width; ++j) {
      for (size_t k = 0; k < width; ++k)
        result[i * width + j] += a[i * width + k] * b[j * width + k];
    }
  }
  return result;
}

Values normalised(const Values& x, double epsilon) {
  const size_t width = kWidth;
  Values result(x.size());
  for (size_t i = 0; i < x.size() / width; ++i) {
    double energy = 0;
    for (size_t k = 0; k < width; ++k) energy += x[i * width + k] * x[i * width + k];
    const double factor = 1 / std::sqrt(energy / static_cast<double>(width) + epsilon);
    for (size_t k = 0; k < width; ++k) result[i * width + k] = x[i * width + k] * factor;
  }
  return result;
}

Values times_row(Values x, const Values& row) {
  for (size_t i = 0; i < x.size(); ++i) x[i] *= row[i % row.size()];
  return x;
}
Values plus(Values x, const Values& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  return x;
}
Values silu(Values x) {
  for (double& value : x) value /= 1 + std::exp(-value);
  return x;
}

/// block(x) = x + fc2(silu(fc1(norm(x)))), the same weights for golden and mine.
struct Network {
  explicit Network(unsigned seed) : random(seed) {
    x = random_values(kRows * kWidth, 1, random);
    gain = random_values(kWidth, 0.2, random);
    for (double& value : gain) value += 1;
    w1 = random_values(kWidth * kWidth, 0.18, random);
    w2 = random_values(kWidth * kWidth, 0.18, random);
  }
  std::mt19937 random;
  Values x, gain, w1, w2;
};

const Dims kShape{kRows, kWidth};
const Dims kSquare{kWidth, kWidth};

/// What the run under test's kernels do wrong: changes the exact result of a module before it is
/// rounded.
using Fault = std::function<void(const std::string& module, Values* result)>;

/// The modules' boundaries with what bf16 kernels compute that accumulate wide and round once.
void record_mine(const Network& network, const Fault& fault, TestRun* run,
                 bool wrong_input_of_fc2 = false) {
  const auto finish = [&](const std::string& module, Values exact) {
    if (fault) fault(module, &exact);
    return rounded(std::move(exact));
  };
  const auto bf16 = [&](const Values& values) {
    return run->value(DType::BFloat16, kShape, values);
  };
  const Values x = rounded(network.x);
  run->module_input("layers.0", "0", bf16(x));
  run->module_input("layers.0.norm", "0", bf16(x));
  const Values h =
      finish("layers.0.norm", times_row(rounded(normalised(x, 1e-6)), rounded(network.gain)));
  run->module_output("layers.0.norm", bf16(h));
  run->module_input("layers.0.fc1", "0", bf16(h));
  const Values a = finish("layers.0.fc1", product(h, rounded(network.w1)));
  run->module_output("layers.0.fc1", bf16(a));
  run->module_input("layers.0.act", "0", bf16(a));
  const Values b = finish("layers.0.act", silu(a));
  run->module_output("layers.0.act", bf16(b));
  const Values handed_over = wrong_input_of_fc2 ? a : b;
  run->module_input("layers.0.fc2", "0", bf16(handed_over));
  const Values c = finish("layers.0.fc2", product(handed_over, rounded(network.w2)));
  run->module_output("layers.0.fc2", bf16(c));
  run->module_output("layers.0", bf16(finish("layers.0", plus(x, c))));
}

/// The same as golden's operators in fp32.
void record_golden(const Network& network, TestRun* run) {
  const auto f32 = [&](const Values& values) { return run->value(DType::Float32, kShape, values); };
  const auto unary = R"({"self":{"tensor":"self"}})";
  const auto binary = R"({"self":{"tensor":"self"},"other":{"tensor":"other"}})";
  const Value x = f32(network.x);
  run->module_input("layers.0", "0", x);
  run->module_input("layers.0.norm", "0", x);
  Values statistics(kRows);
  Values squares = network.x;
  for (double& value : squares) value *= value;
  const Value square = run->op("layers.0.norm", "aten.pow.Tensor_Scalar", {{"self", x}},
                               R"({"self":{"tensor":"self"},"exponent":2})", f32(squares));
  for (size_t i = 0; i < squares.size(); ++i) statistics[i / kWidth] += squares[i] / kWidth;
  const Dims column{kRows, 1};
  const Value mean = run->op("layers.0.norm", "aten.mean.dim", {{"self", square}},
                             R"({"self":{"tensor":"self"},"dim":[-1],"keepdim":true})",
                             run->value(DType::Float32, column, statistics));
  for (double& value : statistics) value += 1e-6;
  const Value shifted = run->op("layers.0.norm", "aten.add.Tensor", {{"self", mean}},
                                R"({"self":{"tensor":"self"},"other":1e-06})",
                                run->value(DType::Float32, column, statistics));
  for (double& value : statistics) value = 1 / std::sqrt(value);
  const Value factor = run->op("layers.0.norm", "aten.rsqrt.default", {{"self", shifted}}, unary,
                               run->value(DType::Float32, column, statistics));
  const Values unit = normalised(network.x, 1e-6);
  const Value scaled = run->op("layers.0.norm", "aten.mul.Tensor", {{"self", x}, {"other", factor}},
                               binary, f32(unit));
  const Values h = times_row(unit, network.gain);
  const Value normed =
      run->op("layers.0.norm", "aten.mul.Tensor",
              {{"self", run->leaf("layers.0.norm.weight", DType::Float32, {kWidth}, network.gain)},
               {"other", scaled}},
              binary, f32(h));
  run->module_output("layers.0.norm", normed);

  const auto linear = [&](const std::string& module, const Value& input, const Values& weight,
                          const Values& result) {
    run->module_input(module, "0", input);
    const Value transposed =
        run->op(module, "aten.t.default",
                {{"self", run->leaf(module + ".weight", DType::Float32, kSquare, weight)}}, unary,
                run->value(DType::Float32, kSquare, weight));
    const Value output =
        run->op(module, "aten.mm.default", {{"self", input}, {"mat2", transposed}},
                R"({"self":{"tensor":"self"},"mat2":{"tensor":"mat2"}})", f32(result));
    run->module_output(module, output);
    return output;
  };
  const Values a = product(h, network.w1);
  const Value first = linear("layers.0.fc1", normed, network.w1, a);
  run->module_input("layers.0.act", "0", first);
  const Values b = silu(a);
  const Value active =
      run->op("layers.0.act", "aten.silu.default", {{"self", first}}, unary, f32(b));
  run->module_output("layers.0.act", active);
  const Values c = product(b, network.w2);
  const Value second = linear("layers.0.fc2", active, network.w2, c);
  run->module_output(
      "layers.0", run->op("layers.0", "aten.add.Tensor", {{"self", x}, {"other", second}}, binary,
                          f32(plus(network.x, c))));
}

/// Module calls of equal path, number and step; operators are not needed here.
Pairing pair_calls(const Program& golden, const Program& mine) {
  Pairing pairing;
  pairing.golden_call_of.assign(mine.calls.size(), kNone);
  for (size_t i = 0; i < mine.calls.size(); ++i) {
    for (size_t k = 0; k < golden.calls.size(); ++k) {
      if (golden.calls[k].module == mine.calls[i].module &&
          golden.calls[k].call == mine.calls[i].call && golden.calls[k].step == mine.calls[i].step)
        pairing.golden_call_of[i] = k;
    }
  }
  return pairing;
}

Walk walk_over(TestRun& golden, TestRun& mine, CaptureLevel level) {
  const Program theirs = golden.program();
  const Program ours = mine.program();
  WalkOptions options;
  options.level = level;
  options.jobs = 2;
  return walk(theirs, ours, pair_calls(theirs, ours), options).value();
}

TEST(Walk, FindsNothingInAHealthyRun) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    // Given  golden's operators in fp32 and a healthy bf16 run of the same network
    const Network network(seed);
    TestRun golden, mine;
    record_golden(network, &golden);
    record_mine(network, nullptr, &mine);
    for (const CaptureLevel level :
         {CaptureLevel::Leaves, CaptureLevel::Modules, CaptureLevel::Layers}) {
      // When
      const Walk walk = walk_over(golden, mine, level);
      // Then  everything is within its rounding: the limits are 2 and 3 (kLimit, kElementLimit)
      EXPECT_TRUE(walk.findings.empty()) << seed;
      EXPECT_EQ(walk.judged, walk.judgeable)
          << (walk.unjudged.empty() ? "" : walk.unjudged.begin()->first);
      for (const WalkStep& step : walk.steps) {
        EXPECT_LT(step.r, 1.5) << seed << " " << step.owner;
        EXPECT_LT(step.r_element, 1.7) << seed << " " << step.owner;
      }
    }
  }
}

TEST(Walk, CoversEveryOperatorBetweenTheBoundaries) {
  const Network network(1);
  TestRun golden, mine;
  record_golden(network, &golden);
  record_mine(network, nullptr, &mine);
  const Walk walk = walk_over(golden, mine, CaptureLevel::Leaves);
  EXPECT_EQ(walk.operators, 12u);  // pow mean add rsqrt mul mul, t mm, silu, t mm, add
  EXPECT_EQ(walk.operators_covered, 12u);
}

/// Multiplies every fourth column by 1.03: about 1.5 % of the tensor.
Fault scales_columns_of(const std::string& wrong) {
  return [wrong](const std::string& module, Values* result) {
    if (module != wrong) return;
    for (size_t i = 0; i < result->size(); i += 4) (*result)[i] *= 1.03;
  };
}

TEST(Walk, NamesTheModuleWhoseKernelIsWrongAndNothingBehindIt) {
  for (const std::string wrong :
       {"layers.0.norm", "layers.0.fc1", "layers.0.act", "layers.0.fc2"}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      for (const CaptureLevel level : {CaptureLevel::Leaves, CaptureLevel::Modules}) {
        const Network network(seed);
        TestRun golden, mine;
        record_golden(network, &golden);
        record_mine(network, scales_columns_of(wrong), &mine);
        if (level == CaptureLevel::Modules && wrong == "layers.0.norm") continue;  // next test
        const Walk walk = walk_over(golden, mine, level);
        ASSERT_EQ(walk.findings.size(), 1u) << wrong << " " << seed;
        const Finding& finding = walk.findings[0];
        EXPECT_EQ(finding.kind, FindingKind::Gap);
        EXPECT_EQ(finding.module, wrong);
        EXPECT_TRUE(finding.hard);
        EXPECT_GT(finding.ratio, 2);
      }
    }
  }
}

/// y = x * (a * b) with one number a * b for all: 9 is a bfloat16, so its rounding in the
/// simulation is lucky to err nothing, and the floor would be that of the last rounding alone.
/// `off` is by how much of half a ULP the run under test's number is.
Walk walk_over_one_scale(double off) {
  const auto binary = R"({"self":{"tensor":"self"},"other":{"tensor":"other"}})";
  std::mt19937 random(5);
  const Values x = rounded(random_values(kWidth, 1, random));
  const double half_ulp = 0.03125;  // of 9: 2^3 / 2^7 / 2
  const Dims row{1, kWidth}, one{1};
  TestRun golden, mine;
  const auto times = [&](double factor) {
    Values result = x;
    for (double& value : result) value *= factor;
    return result;
  };
  const Value gx = golden.value(DType::Float32, row, x);
  const Value ga = golden.value(DType::Float32, one, {3});
  const Value gb = golden.value(DType::Float32, one, {3});
  golden.module_input("scale", "0", gx);
  golden.module_input("scale", "1", ga);
  golden.module_input("scale", "2", gb);
  const Value factor = golden.op("scale", "aten.mul.Tensor", {{"self", ga}, {"other", gb}}, binary,
                                 golden.value(DType::Float32, one, {9}));
  golden.module_output(
      "scale", golden.op("scale", "aten.mul.Tensor", {{"self", gx}, {"other", factor}}, binary,
                         golden.value(DType::Float32, row, times(9))));
  mine.module_input("scale", "0", mine.value(DType::BFloat16, row, x));
  mine.module_input("scale", "1", mine.value(DType::BFloat16, one, {3}));
  mine.module_input("scale", "2", mine.value(DType::BFloat16, one, {3}));
  mine.module_output("scale", mine.value(DType::BFloat16, row, rounded(times(9 + off * half_ulp))));
  return walk_over(golden, mine, CaptureLevel::Leaves);
}

TEST(Walk, ALuckyDrawOfNoiseMakesNoFault) {
  // A number that was rounded twice on its way.
  EXPECT_TRUE(walk_over_one_scale(1.5).findings.empty());
  // What no rounding of the number explains still is one.
  EXPECT_EQ(walk_over_one_scale(8).findings.size(), 1u);
}

}  // namespace
}  // namespace assay::locate
