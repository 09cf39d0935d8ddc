// SPDX-License-Identifier: Apache-2.0
#include "locate/judge/own_error.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "base/numbers.hpp"
#include "locate/judge/judge_exact.hpp"
#include "locate/judge/judge_output.hpp"
#include "locate/noise/error_classes.hpp"
#include "locate/program/test_program.hpp"
#include "tensor/convert.hpp"

namespace assay::locate {
namespace {

using reference::Wide;
using reference::aten::Argument;
using reference::aten::Call;
using State = OwnError::State;

constexpr double kSqrt3 = 1.7320508075688772;
const std::array<DType, 3> kStorageTypes = {DType::BFloat16, DType::Float16, DType::Float32};

Tensor tensor_of(DType dtype, const Dims& shape, const std::function<double(int64_t)>& value) {
  Wide wide(shape);
  for (int64_t i = 0; i < wide.size(); ++i) wide.values[static_cast<size_t>(i)] = value(i);
  return reference::narrow(reference::to_tensor(std::move(wide)).view, dtype).value();
}
std::vector<double> values_of(const TensorView& view) {
  std::vector<double> values(static_cast<size_t>(view.element_count()));
  read_values(view, 0, view.element_count(), values);
  return values;
}
Tensor with_values(DType dtype, const Dims& shape, const std::vector<double>& values) {
  return tensor_of(dtype, shape, [&](int64_t i) { return values[static_cast<size_t>(i)]; });
}
std::string text(const OwnError& error) {
  return "z " + std::to_string(error.z) + " e " + std::to_string(error.e) + " at " +
         std::to_string(error.worst) + " " + error.reason;
}

/// Operands of many sizes of values: what a model computes with, and what stands at the ends of a
/// type.
struct Values {
  const char* name;
  std::function<double(std::mt19937&, const FloatGrid&)> draw;
};
const std::vector<Values>& kinds_of_values() {
  static const std::vector<Values> kinds = {
      {"normal", [](std::mt19937& random,
                    const FloatGrid&) { return std::normal_distribution<double>()(random); }},
      {"constant", [](std::mt19937&, const FloatGrid&) { return 0.7; }},
      {"powers of two",
       [](std::mt19937& random, const FloatGrid&) {
         return std::ldexp(random() % 2 == 0 ? 1 : -1, static_cast<int>(random() % 9) - 4);
       }},
      {"subnormals",
       [](std::mt19937& random, const FloatGrid& grid) {
         return grid.smallest_normal() * std::ldexp(static_cast<double>(random() % 64), -5);
       }},
      {"largest",
       [](std::mt19937& random, const FloatGrid& grid) {
         return random() % 3 == 0 ? grid.largest : random() % 2 == 0 ? -grid.largest : 1.5;
       }},
      {"masked",
       [](std::mt19937& random, const FloatGrid&) {
         return random() % 4 == 0 ? -kInfinity : std::normal_distribution<double>()(random);
       }},
      {"zero", [](std::mt19937&, const FloatGrid&) { return 0.0; }},
  };
  return kinds;
}

using Operand = std::function<Tensor(const Dims&)>;

/// One argument after the other: with("dim", int64_t{0}).with(...)
struct CallOf : Call {
  explicit CallOf(std::string operation) { name = std::move(operation); }
  template <typename T>
  CallOf& with(const char* argument, T value) {
    arguments[argument].value = std::move(value);
    return *this;
  }
  CallOf& with(const char* argument, std::initializer_list<int64_t> values) {
    reference::aten::ArgumentList list(values.size());
    std::transform(values.begin(), values.end(), list.begin(), [](int64_t value) {
      Argument one;
      one.value = value;
      return one;
    });
    return with(argument, std::move(list));
  }
};

/// Calls of every class. `x` makes an operand of the shape.
std::vector<Call> calls_of_every_class(const Operand& x) {
  const Dims shape{5, 33};
  const auto call = [](const char* name) { return CallOf(name); };
  const auto unary = [&](const char* name) { return CallOf(name).with("self", x(shape)); };
  constexpr int64_t kLast = -1;
  return {
      // moves
      unary("aten.relu.default"),
      unary("aten.neg.default"),
      unary("aten.transpose.int").with("dim0", int64_t{0}).with("dim1", int64_t{1}),
      unary("aten.maximum.default").with("other", x(shape)),
      unary("aten.masked_fill.Scalar")
          .with("mask",
                tensor_of(DType::Bool, shape, [](int64_t i) { return i % 3 == 0 ? 1.0 : 0.0; }))
          .with("value", 0.1),
      // arithmetic
      unary("aten.add.Tensor").with("other", x(shape)),
      unary("aten.add.Tensor").with("other", x({33})).with("alpha", 0.3),
      unary("aten.add.Tensor").with("other", 1e-5),
      unary("aten.mul.Tensor").with("other", x({5, 1})),
      unary("aten.mul.Tensor").with("other", 0.1),
      unary("aten.div.Tensor").with("other", x(shape)),
      unary("aten.rsub.Scalar").with("other", 1.0),
      // products
      call("aten.mm.default").with("self", x({5, 40})).with("mat2", x({40, 33})),
      call("aten.bmm.default").with("self", x({2, 5, 40})).with("mat2", x({2, 40, 3})),
      call("aten.addmm.default")
          .with("self", x({33}))
          .with("mat1", x({5, 40}))
          .with("mat2", x({40, 33})),
      call("aten.linear.default")
          .with("input", x({2, 5, 40}))
          .with("weight", x({33, 40}))
          .with("bias", x({33})),
      // reductions
      unary("aten.mean.dim").with("dim", {kLast}).with("keepdim", true),
      unary("aten.sum.dim_IntList").with("dim", {0}),
      unary("aten.cumsum.default").with("dim", kLast),
      // functions
      unary("aten.exp.default"),
      unary("aten.rsqrt.default"),
      unary("aten.sigmoid.default"),
      unary("aten.sin.default"),
      unary("aten.tanh.default"),
      unary("aten.pow.Tensor_Scalar").with("exponent", int64_t{2}),
      unary("aten.pow.Tensor_Scalar").with("exponent", 3.0),
      unary("aten._softmax.default").with("dim", kLast).with("half_to_float", false),
      unary("aten._log_softmax.default").with("dim", kLast).with("half_to_float", false),
      unary("aten.silu.default"),
      unary("aten.gelu.default"),
      // norms
      call("aten.native_layer_norm.default")
          .with("input", x(shape))
          .with("normalized_shape", {33})
          .with("weight", x({33}))
          .with("bias", x({33}))
          .with("eps", 1e-5),
      call("aten.rms_norm.default")
          .with("input", x(shape))
          .with("normalized_shape", {33})
          .with("weight", x({33}))
          .with("eps", 1e-6),
      // attention
      call("aten.scaled_dot_product_attention.default")
          .with("query", x({1, 2, 7, 16}))
          .with("key", x({1, 2, 7, 16}))
          .with("value", x({1, 2, 7, 16}))
          .with("is_causal", true),
  };
}

TEST(JudgeOutput, OneRoundingNeverExceedsItsLimits) {
  // Given  every class of operators, in every storage type, on ordinary and on extreme values
  std::mt19937 random(8);
  for (const DType dtype : kStorageTypes) {
    const FloatGrid grid = *float_grid(dtype);
    for (const Values& kind : kinds_of_values()) {
      const Operand x = [&](const Dims& shape) {
        return tensor_of(dtype, shape, [&](int64_t) { return kind.draw(random, grid); });
      };
      for (const Call& call : calls_of_every_class(x)) {
        SCOPED_TRACE(call.name + " of " + std::string(name(dtype)) + ", " + kind.name);
        const Result<std::vector<Tensor>> outputs = reference::aten::evaluate(call);
        ASSERT_TRUE(outputs) << outputs.error().describe();
        for (size_t i = 0; i < outputs->size(); ++i) {
          // When  the exact result is rounded once
          const Tensor mine = *reference::narrow((*outputs)[i].view, dtype);
          const Result<OwnError> judged = judge_output(call, *outputs, i, mine.view);
          // Then  no element is beyond half a ULP, and the mean is below sqrt(3), whatever the
          //       values
          ASSERT_TRUE(judged) << judged.error().describe();
          ASSERT_TRUE(judged->state == State::Judged || judged->state == State::Exact)
              << judged->reason;
          ASSERT_LE(judged->z, kSqrt3 * (1 + 1e-12)) << text(*judged);
          ASSERT_LE(judged->e, 1 + 1e-12) << text(*judged);
          ASSERT_LE(judged->e2, judged->e);
        }
      }
    }
  }
}

TEST(JudgeOutput, EmptyTensorsAreExact) {
  for (const Dims& shape : {Dims{0}, Dims{3, 0}, Dims{0, 64}}) {
    const Tensor empty = tensor_of(DType::BFloat16, shape, [](int64_t) { return 0.0; });
    const Call call = CallOf("aten.exp.default").with("self", empty);
    const auto outputs = reference::aten::evaluate(call);
    ASSERT_TRUE(outputs);
    const Result<OwnError> judged = judge_output(call, *outputs, 0, empty.view);
    ASSERT_TRUE(judged);
    EXPECT_EQ(judged->state, State::Exact);
    EXPECT_EQ(judged->z, 0);
  }
}

/// exp of 64 rows of 256 normal values, in `dtype`, and its exact result.
struct Sample {
  Call call;
  std::vector<Tensor> outputs;
  std::vector<double> rounded;
  Dims shape{64, 256};

  explicit Sample(DType dtype) {
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    call = CallOf("aten.exp.default").with("self", tensor_of(dtype, shape, [&](int64_t) {
                                             return normal(random);
                                           }));
    outputs = reference::aten::evaluate(call).value();
    rounded = values_of(reference::narrow(outputs[0].view, dtype)->view);
  }
};

double ulp_of(double value, const FloatGrid& grid) {
  return std::ldexp(1.0, std::ilogb(value) - grid.fraction_bits);
}

TEST(JudgeOutput, OneElementOffByThreeUlpIsSeenByTheElementTestAlone) {
  for (const DType dtype : kStorageTypes) {
    Sample sample(dtype);
    const FloatGrid grid = *float_grid(dtype);
    const Tensor healthy = with_values(dtype, sample.shape, sample.rounded);
    const OwnError before = *judge_output(sample.call, sample.outputs, 0, healthy.view);
    // A 32-bit exp is allowed more than its rounding.
    EXPECT_NEAR(before.z, dtype == DType::Float32 ? 0.35 : 1.0, 0.05);
    sample.rounded[5000] += 3 * ulp_of(sample.rounded[5000], grid);
    const Tensor mine = with_values(dtype, sample.shape, sample.rounded);

    const OwnError judged = *judge_output(sample.call, sample.outputs, 0, mine.view);

    EXPECT_LT(judged.z, 1.1);
    // A 32-bit exp may be 4 u |y| off, which is up to 4 ULP: there 3 are no fault.
    if (dtype == DType::Float32) continue;
    EXPECT_GT(judged.e, 2);
    EXPECT_EQ(judged.worst, 5000);
    EXPECT_NEAR(judged.worst_ulp, 3, 0.51);
    EXPECT_NEAR(judged.allowed_ulp, 1, 0.01);
  }
}

TEST(JudgeOutput, AConstantFactorOfOneUlpIsSeenByTheDenseTest) {
  for (const DType dtype : kStorageTypes) {
    Sample sample(dtype);
    const double factor = 1 + std::ldexp(1.0, -float_grid(dtype)->fraction_bits);
    const std::vector<double> exact = values_of(sample.outputs[0].view);
    const Tensor mine = tensor_of(
        dtype, sample.shape, [&](int64_t i) { return exact[static_cast<size_t>(i)] * factor; });
    const OwnError judged = *judge_output(sample.call, sample.outputs, 0, mine.view);
    // Of Float32, exp may be 4 u |y| beside the truth: that much is not a fault of one ULP.
    if (dtype == DType::Float32) continue;
    EXPECT_GT(judged.z, 2) << name(dtype);
    // The relative error is the factor's, and rounding explains about 0.425 u of it.
    EXPECT_NEAR(judged.relative_l2, factor - 1, 0.2 * (factor - 1));
    EXPECT_NEAR(judged.floor_l2, kRoundingL2 * float_grid(dtype)->roundoff(),
                0.05 * kRoundingL2 * float_grid(dtype)->roundoff());
  }
}

TEST(JudgeOutput, AWrongRowStandsOutAmongItsRows) {
  Sample sample(DType::BFloat16);
  const FloatGrid grid = *float_grid(DType::BFloat16);
  for (size_t i = 0; i < 256; ++i) {
    double& value = sample.rounded[7 * 256 + i];
    value += (i % 2 == 0 ? 2 : -2) * ulp_of(value, grid);
  }
  const Tensor mine = with_values(DType::BFloat16, sample.shape, sample.rounded);
  const OwnError judged = *judge_output(sample.call, sample.outputs, 0, mine.view);
  // 2 ULP against 1 / sqrt(12) ULP in that row: 7; an eighth of that in the whole of 64 rows
  EXPECT_NEAR(judged.zr, 7, 0.7);
  EXPECT_LT(judged.z, 1.5);
}

TEST(JudgeOutput, NaNAndShapeAreNeverRounding) {
  Sample sample(DType::Float16);
  std::vector<double> values = sample.rounded;
  values[77] = std::numeric_limits<double>::quiet_NaN();
  const Tensor nan = with_values(DType::Float16, sample.shape, values);
  EXPECT_EQ(judge_output(sample.call, sample.outputs, 0, nan.view)->z, kInfinity);
  EXPECT_EQ(judge_output(sample.call, sample.outputs, 0, nan.view)->e, kInfinity);

  const Tensor flat = with_values(DType::Float16, {64 * 256}, sample.rounded);
  const OwnError shape = *judge_output(sample.call, sample.outputs, 0, flat.view);
  EXPECT_EQ(shape.e, kInfinity);
  EXPECT_EQ(shape.reason, "shape [16384], expected [64, 256]");
}

TEST(JudgeOutput, InfinityIsTheLargestNumberOfTheType) {
  // 300^2 = 90000 is beyond Float16: infinity and 65504 are both right, 60000 is not.
  const Call call = CallOf("aten.mul.Tensor")
                        .with("self", with_values(DType::Float16, {2}, {300, 1}))
                        .with("other", with_values(DType::Float16, {2}, {300, 1}));
  const auto outputs = reference::aten::evaluate(call).value();
  const auto judged = [&](double value) {
    const Tensor mine = with_values(DType::Float16, {2}, {value, 1});
    return judge_output(call, outputs, 0, mine.view)->e;
  };
  EXPECT_EQ(judged(kInfinity), 0);
  EXPECT_EQ(judged(65504), 0);
  EXPECT_GT(judged(60000), 100);
  EXPECT_GT(judged(-kInfinity), 100);
}

TEST(JudgeOutput, FlushedSubnormalsAreNoError) {
  const Call call = CallOf("aten.mul.Tensor")
                        .with("self", with_values(DType::Float32, {2}, {0x1p-100, 1}))
                        .with("other", with_values(DType::Float32, {2}, {0x1p-30, 1}));
  const auto outputs = reference::aten::evaluate(call).value();
  const Tensor mine = with_values(DType::Float32, {2}, {0, 1});
  EXPECT_EQ(judge_output(call, outputs, 0, mine.view)->state, State::Exact);
}

TEST(JudgeOutput, MovedValuesMustBeTheSame) {
  const Tensor x =
      tensor_of(DType::BFloat16, {4, 32}, [](int64_t i) { return static_cast<double>(i + 1); });
  const Call call = CallOf("aten.transpose.int")
                        .with("self", x)
                        .with("dim0", int64_t{0})
                        .with("dim1", int64_t{1});
  const auto outputs = reference::aten::evaluate(call).value();
  const Tensor right = *reference::contiguous(outputs[0]);
  EXPECT_EQ(judge_output(call, outputs, 0, right.view)->state, State::Exact);

  std::vector<double> values = values_of(right.view);
  values[9] *= 1 + 0x1p-7;  // one ULP
  const Tensor wrong = with_values(DType::BFloat16, {32, 4}, values);
  const OwnError judged = *judge_output(call, outputs, 0, wrong.view);
  EXPECT_EQ(judged.e, kInfinity);
  EXPECT_EQ(judged.worst, 9);
  EXPECT_EQ(judged.reason, "values are moved, and 1 differs");
}

TEST(JudgeOutput, IntegersAreEqualOrWrong) {
  const Call call = CallOf("aten.add.Tensor")
                        .with("self", tensor_of(DType::Int64, {3},
                                                [](int64_t i) { return static_cast<double>(i); }))
                        .with("other", int64_t{4});
  const auto outputs = reference::aten::evaluate(call).value();
  const Tensor right = with_values(DType::Int64, {3}, {4, 5, 6});
  const Tensor wrong = with_values(DType::Int64, {3}, {4, 5, 7});
  EXPECT_EQ(judge_output(call, outputs, 0, right.view)->state, State::Exact);
  EXPECT_EQ(judge_output(call, outputs, 0, wrong.view)->e, kInfinity);
  EXPECT_EQ(judge_output(call, outputs, 0, wrong.view)->worst, 2);
}

TEST(JudgeOutput, Float64HasNoWiderReference) {
  const Tensor x = with_values(DType::Float64, {2}, {1, 2});
  const Call call = CallOf("aten.exp.default").with("self", x);
  const auto outputs = reference::aten::evaluate(call).value();
  const OwnError judged = *judge_output(call, outputs, 0, x.view);
  EXPECT_EQ(judged.state, State::NoReference);
  EXPECT_EQ(judged.reason, "float64 results have no wider reference");
}

TEST(JudgeOutput, LongSumsInFloat32AreJudgedByTheirTerms) {
  // Given  products whose terms cancel: 1000 rows of K = 512, added up one after the other in
  //        Float32
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  constexpr int64_t kRows = 20, kDepth = 512, kColumns = 20;
  const auto draw = [&](int64_t) { return normal(random); };
  const Tensor a = tensor_of(DType::Float32, {kRows, kDepth}, draw);
  const Tensor b = tensor_of(DType::Float32, {kDepth, kColumns}, draw);
  const std::vector<double> left = values_of(a.view), right = values_of(b.view);
  std::vector<double> sums;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < kDepth; ++k)
        sum += static_cast<float>(left[static_cast<size_t>(i * kDepth + k)]) *
               static_cast<float>(right[static_cast<size_t>(k * kColumns + j)]);
      sums.push_back(static_cast<double>(sum));
    }
  }
  const Call call = CallOf("aten.mm.default").with("self", a).with("mat2", b);
  const auto outputs = reference::aten::evaluate(call).value();
  const Tensor mine = with_values(DType::Float32, {kRows, kColumns}, sums);

  const OwnError judged = *judge_output(call, outputs, 0, mine.view);

  // Then  the accumulation, many ULP of small results, is within sqrt(K) u C
  EXPECT_EQ(judged.state, State::Judged);
  EXPECT_LT(judged.z, 2);
  EXPECT_LE(judged.e, 1);
  EXPECT_GT(judged.worst_ulp, 0.5);
  // and a fault of a thousandth is not
  sums[7] *= 1.001;
  const Tensor wrong = with_values(DType::Float32, {kRows, kColumns}, sums);
  EXPECT_GT(judge_output(call, outputs, 0, wrong.view)->e, 2);
}

TEST(JudgeOutput, OneElementWithMostOfTheErrorIsJudgedByItsBound) {
  // Given  64 sums of 400 products, one of them of terms a million times as large as the others',
  //        each pair of which cancels: C = 4e8, and 2 sqrt(400) u C = 953.7 may be wrong there
  constexpr int64_t kDepth = 400, kColumns = 64;
  const Tensor a = tensor_of(DType::Float32, {1, kDepth}, [](int64_t) { return 1.0; });
  const Tensor b = tensor_of(DType::Float32, {kDepth, kColumns}, [](int64_t i) {
    const double size = i % kColumns == 5 ? 1e6 : 1.0;
    return i / kColumns % 2 == 0 ? size : -size;
  });
  const Call call = CallOf("aten.mm.default").with("self", a).with("mat2", b);
  const auto outputs = reference::aten::evaluate(call).value();
  const auto judged = [&](double error_of_large, double error_of_others) {
    std::vector<double> sums(kColumns, error_of_others);
    sums[5] = error_of_large;
    const Tensor mine = with_values(DType::Float32, {1, kColumns}, sums);
    return *judge_output(call, outputs, 0, mine.view);
  };
  // Then  0.9 of that bound is no fault, although it is 3.1 deviations of the only error there is;
  EXPECT_LE(judged(0.9 * 953.7, 0).z, std::sqrt(3.0));
  EXPECT_LE(judged(0.9 * 953.7, 0).e, 1);
  // what is beyond it is one, and so is an error of the other elements beyond theirs, 0.00095.
  EXPECT_GT(judged(3 * 953.7, 0).e, 2);
  EXPECT_GT(judged(0, 0.003).e, 2);
}

TEST(JudgeOutput, WhatOneTermMakesIsRoundedByAllTermsBehindIt) {
  // Given  a row of saturated attention: a weight near 1 first, behind it 300 whose products are
  //        lost in its sum
  std::mt19937 random(8);
  std::normal_distribution<double> normal;
  constexpr int64_t kDepth = 301, kColumns = 64;
  const Tensor a =
      tensor_of(DType::Float32, {1, kDepth}, [](int64_t i) { return i == 0 ? 0.97 : 2.9e-8; });
  const Tensor b = tensor_of(DType::Float32, {kDepth, kColumns}, [&](int64_t i) {
    return i < kColumns ? 0.53 : normal(random) < 0 ? -1.0 : 1.0;
  });
  const std::vector<double> left = values_of(a.view), right = values_of(b.view);
  std::vector<double> sums;
  for (int64_t j = 0; j < kColumns; ++j) {
    float sum = 0;
    for (int64_t k = 0; k < kDepth; ++k)
      sum += static_cast<float>(left[static_cast<size_t>(k)]) *
             static_cast<float>(right[static_cast<size_t>(k * kColumns + j)]);
    sums.push_back(static_cast<double>(sum));
  }
  const Call call = CallOf("aten.mm.default").with("self", a).with("mat2", b);
  const auto outputs = reference::aten::evaluate(call).value();
  // When  it is judged
  const OwnError judged =
      *judge_output(call, outputs, 0, with_values(DType::Float32, {1, kColumns}, sums).view);
  // Then  sqrt(300) 2.9e-8 = 5.0e-7 was lost, where additions that move 0.51 by half a unit,
  //       evenly, give
  // sqrt(301 / 12) 2 0.51 2^-24 = 3.1e-7
  EXPECT_NEAR(judged.z, 1.6, 0.2);
  EXPECT_LT(judged.e, 2);
}

TEST(JudgeOutput, TheSumOfOneTokenIsJudgedByItsBoundAlone) {
  // 0.75 in float32: an ULP is 2^-24, as is the accumulator's. Three additions err 1.5 ULP at most,
  // and the bound is 0.5 + 2 sqrt(4) 0.75 = 3.5 ULP; the deviation is sqrt((1 + (2 * 2 * 0.75)^2) /
  // 12) = 0.91 ULP.
  const Call call =
      CallOf("aten.sum.dim_IntList")
          .with("self", with_values(DType::Float32, {1, 4}, {0.25, 0.25, 0.125, 0.125}))
          .with("dim", {-1})
          .with("keepdim", true);
  const Dims shape{1, 1};
  const std::vector<Tensor> exact = {with_values(DType::Float64, shape, {0.75})};

  const auto judge = [&](double ulp) {
    const Tensor mine = with_values(DType::Float32, shape, {0.75 + ulp * 0x1p-24});
    return *judge_output(call, exact, 0, mine.view);
  };

  EXPECT_LT(judge(2).z, 2);
  EXPECT_NEAR(judge(2).e, 2 / 3.5, 1e-6);
  EXPECT_NEAR(judge(8).e, 8 / 3.5, 1e-6);
  EXPECT_NEAR(judge(8).z, 8 / 0.91, 0.1);
}

TEST(JudgeOutput, ABiasMayBeAddedToARoundedProduct) {
  // Given  products of about 4 with a bias that nearly takes them back, in 16 bits: x of 1 + small,
  //        weights of 1, bias -4
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  constexpr int64_t kRows = 20, kDepth = 4, kColumns = 24;
  for (const DType dtype : {DType::BFloat16, DType::Float16}) {
    const Tensor x =
        tensor_of(dtype, {kRows, kDepth}, [&](int64_t) { return 1 + 0.01 * normal(random); });
    const Tensor weight =
        tensor_of(dtype, {kColumns, kDepth}, [&](int64_t) { return 1 + 0.01 * normal(random); });
    const Tensor bias = tensor_of(dtype, {kColumns}, [](int64_t) { return -4.0; });
    const std::vector<double> left = values_of(x.view), right = values_of(weight.view);
    // When  a kernel rounds the product, and then the sum; one of them also loses a sixteenth of
    //       the bias
    std::vector<double> twice, wrong;
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < kColumns; ++j) {
        double product = 0;
        for (int64_t k = 0; k < kDepth; ++k)
          product += left[static_cast<size_t>(i * kDepth + k)] *
                     right[static_cast<size_t>(j * kDepth + k)];
        product = reference::round_to(product, dtype);
        twice.push_back(product - 4);
        wrong.push_back(product - 4 * 15.0 / 16);
      }
    }
    const Call linear =
        CallOf("aten.linear.default").with("input", x).with("weight", weight).with("bias", bias);
    const Call addmm =
        CallOf("aten.addmm.default")
            .with("self", tensor_of(dtype, {kColumns}, [](int64_t) { return 8.0; }))
            .with("beta", -0.5)
            .with("mat1", x)
            .with("mat2", tensor_of(dtype, {kDepth, kColumns}, [&](int64_t i) {
                    return right[static_cast<size_t>(i % kColumns * kDepth + i / kColumns)];
                  }));
    // As a convolution of kRows images of kDepth channels and one place, which has [rows, columns,
    // 1].
    const auto with_shape = [](Tensor tensor, const Dims& dims) {
      return reference::reshaped(tensor, dims).value();
    };
    const Call convolution = CallOf("aten.conv1d.default")
                                 .with("input", with_shape(x, {kRows, kDepth, 1}))
                                 .with("weight", with_shape(weight, {kColumns, kDepth, 1}))
                                 .with("bias", bias);
    for (const Call& call : {linear, addmm, convolution}) {
      SCOPED_TRACE(call.name + " of " + std::string(name(dtype)));
      const auto outputs = reference::aten::evaluate(call).value();
      const Dims shape = outputs[0].view.shape;
      const OwnError judged =
          *judge_output(call, outputs, 0, with_values(dtype, shape, twice).view);
      const OwnError lost = *judge_output(call, outputs, 0, with_values(dtype, shape, wrong).view);
      // Then  the first is within both roundings, though many ULP of its small results, and the
      //       second is not
      EXPECT_GT(judged.worst_ulp, 4) << text(judged);
      EXPECT_LE(judged.e, 1 + 1e-12) << text(judged);
      EXPECT_LT(judged.z, 1.2) << text(judged);
      EXPECT_GT(lost.z, 2.5) << text(lost);
    }
  }
}

TEST(JudgeOutput, CoarseProductsAreExplainedByTheirTerms) {
  // Given  products added up in 4 parts of 16 bits, as some kernels do
  std::mt19937 random(6);
  std::normal_distribution<double> normal;
  constexpr int64_t kRows = 32, kDepth = 256, kColumns = 64;
  const auto draw = [&](int64_t) { return normal(random); };
  const Tensor a = tensor_of(DType::BFloat16, {kRows, kDepth}, draw);
  const Tensor b = tensor_of(DType::BFloat16, {kDepth, kColumns}, draw);
  const std::vector<double> left = values_of(a.view), right = values_of(b.view);
  std::vector<double> sums;
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; ++j) {
      double sum = 0;
      for (int64_t part = 0; part < 4; ++part) {
        double partial = 0;
        for (int64_t k = part * kDepth / 4; k < (part + 1) * kDepth / 4; ++k)
          partial += left[static_cast<size_t>(i * kDepth + k)] *
                     right[static_cast<size_t>(k * kColumns + j)];
        sum = reference::round_to(sum + reference::round_to(partial, DType::BFloat16),
                                  DType::BFloat16);
      }
      sums.push_back(sum);
    }
  }
  const Call call = CallOf("aten.mm.default").with("self", a).with("mat2", b);
  const auto outputs = reference::aten::evaluate(call).value();
  const Tensor mine = with_values(DType::BFloat16, {kRows, kColumns}, sums);
  const OwnError judged = *judge_output(call, outputs, 0, mine.view);
  // Then  the element test alarms and the one for coarse kernels does not: z <= 2.3, e2 <= 1.5 in
  //       docs/localisation.md, "Kernels that round once, and kernels that round more often"
  EXPECT_GT(judged.z, 1.2);
  EXPECT_LT(judged.z, 2.6);
  EXPECT_GT(judged.e, 3);
  EXPECT_LT(judged.e2, 1.5);
}

TEST(JudgeProductRows, JudgesTheWholeByAFewRows) {
  std::mt19937 random(4);
  std::normal_distribution<double> normal;
  const auto draw = [&](int64_t) { return normal(random); };
  const Tensor a = tensor_of(DType::BFloat16, {2, 100, 32}, draw);
  const Tensor w = tensor_of(DType::BFloat16, {64, 32}, draw);
  const Call call = CallOf("aten.linear.default").with("input", a).with("weight", w);
  const auto outputs = reference::aten::evaluate(call).value();
  std::vector<double> values = values_of(reference::narrow(outputs[0].view, DType::BFloat16)->view);
  values[150 * 64 + 3] = 1000;
  const Tensor mine = with_values(DType::BFloat16, {2, 100, 64}, values);

  const std::vector<int64_t> rows = sample_rows(mine.view, 5);
  EXPECT_EQ(rows, (std::vector<int64_t>{0, 49, 99, 149, 150, 199}));  // 150 has the largest value
  const OwnError judged = *judge_product_rows(call, mine.view, rows, 1);
  EXPECT_TRUE(judged.sampled);
  EXPECT_GT(judged.e, 100);
  EXPECT_EQ(judged.worst, 150 * 64 + 3);
  const OwnError healthy =
      *judge_product_rows(call, mine.view, std::vector<int64_t>{0, 99, 199}, 1);
  EXPECT_LE(healthy.e, 1);
}

// ------------------------------------------------------------------------------------------- whole programs

/// A chain of `layers` blocks in bf16: h = h @ w; a = silu(h); h = h + a, each rounded once from
/// its own inputs.
struct Chain {
  test::TestRun made;
  static constexpr int64_t kRows = 24, kWidth = 32;
  std::mt19937 random{11};

  using Spoil = std::function<void(int layer, const std::string& name, std::vector<double>*)>;

  explicit Chain(
      int layers, const Spoil& spoil = [](int, const std::string&, std::vector<double>*) {}) {
    std::normal_distribution<double> normal;
    std::vector<double> values(static_cast<size_t>(kRows * kWidth));
    for (double& value : values) value = normal(random);
    test::Value h = made.value(DType::BFloat16, {kRows, kWidth}, rounded(values));
    std::vector<double> current = rounded(values);
    for (int layer = 0; layer < layers; ++layer) {
      const std::string module = "layers." + std::to_string(layer);
      std::vector<double> weight(static_cast<size_t>(kWidth * kWidth));
      for (double& value : weight) value = normal(random) / std::sqrt(1.0 * kWidth);
      weight = rounded(weight);
      const test::Value w =
          made.leaf(module + ".weight", DType::BFloat16, {kWidth, kWidth}, weight);
      std::vector<double> product(current.size());
      for (int64_t i = 0; i < kRows; ++i) {
        for (int64_t j = 0; j < kWidth; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < kWidth; ++k)
            sum += current[static_cast<size_t>(i * kWidth + k)] *
                   weight[static_cast<size_t>(k * kWidth + j)];
          product[static_cast<size_t>(i * kWidth + j)] = sum;
        }
      }
      product = rounded(product);
      spoil(layer, "mm", &product);
      const test::Value p =
          made.op(module, "aten.mm.default", {{"self", h}, {"mat2", w}}, both("self", "mat2"),
                  made.value(DType::BFloat16, {kRows, kWidth}, product));
      std::vector<double> sum(current.size());
      for (size_t i = 0; i < sum.size(); ++i) sum[i] = current[i] + product[i];
      sum = rounded(sum);
      spoil(layer, "add", &sum);
      h = made.op(module, "aten.add.Tensor", {{"self", h}, {"other", p}}, both("self", "other"),
                  made.value(DType::BFloat16, {kRows, kWidth}, sum));
      current = sum;
    }
  }

  static std::vector<double> rounded(std::vector<double> values) {
    for (double& value : values) value = reference::round_to(value, DType::BFloat16);
    return values;
  }
  static std::string both(const std::string& a, const std::string& b) {
    return R"({")" + a + R"(":{"tensor":")" + a + R"("},")" + b + R"(":{"tensor":")" + b + R"("}})";
  }
};

OwnErrorOptions options(int jobs, uint64_t max_memory) {
  OwnErrorOptions options;
  options.jobs = jobs;
  options.max_memory = max_memory;
  return options;
}

TEST(OwnErrors, AHealthyProgramIsStrictAndHasNoFindings) {
  Chain chain(4);
  const Program program = chain.made.program();
  const Result<OwnErrors> errors = own_errors(program, {});
  ASSERT_TRUE(errors) << errors.error().describe();
  EXPECT_EQ(errors->judged, 8u);
  EXPECT_EQ(errors->judgeable, 8u);
  EXPECT_TRUE(errors->unjudged.empty());
  EXPECT_TRUE(errors->findings.empty());
  EXPECT_TRUE(errors->coarse.empty());
  EXPECT_TRUE(errors->strict.at(DType::BFloat16));
  for (const OwnError& error : errors->outputs) EXPECT_LE(error.e, 1) << text(error);
}

TEST(OwnErrors, NamesTheOperatorWhoseResultIsNotThatOfItsInputs) {
  // Given  one element of the product in layer 2 off by 8 ULP; everything after it computed from
  //        that
  Chain chain(12, [](int layer, const std::string& name, std::vector<double>* values) {
    if (layer == 2 && name == "mm")
      (*values)[40] += 8 * ulp_of((*values)[40], *float_grid(DType::BFloat16));
  });
  const Program program = chain.made.program();
  const OwnErrors errors = *own_errors(program, {});
  ASSERT_EQ(errors.findings.size(), 1u);
  const Finding& finding = errors.findings[0];
  EXPECT_EQ(finding.kind, FindingKind::OwnError);
  EXPECT_TRUE(finding.hard);
  EXPECT_EQ(finding.confidence, Confidence::High);
  EXPECT_EQ(finding.module, "layers.2");
  EXPECT_EQ(finding.op_type, "aten.mm.default");
  EXPECT_EQ(finding.mine_operator, 4u);
  EXPECT_NEAR(finding.worst_ulp, 8, 0.6);
  EXPECT_NEAR(finding.ratio, 16, 1.2);  // times half a ULP
  EXPECT_TRUE(finding.detail.find("ULP, allowed 1") != std::string::npos) << finding.detail;
}

TEST(OwnErrors, DoNotDependOnThreadsOrMemory) {
  Chain chain(3, [](int layer, const std::string&, std::vector<double>* values) {
    if (layer == 1) (*values)[1] *= 1.5;
  });
  const Program program = chain.made.program();
  const OwnErrors one = *own_errors(program, options(1, 1 << 20));
  for (const int jobs : {2, 5}) {
    for (const uint64_t memory : {uint64_t{1}, uint64_t{1} << 30}) {
      const OwnErrors other = *own_errors(program, options(jobs, memory));
      ASSERT_EQ(other.outputs.size(), one.outputs.size());
      for (size_t i = 0; i < one.outputs.size(); ++i) {
        EXPECT_EQ(std::bit_cast<uint64_t>(other.outputs[i].z),
                  std::bit_cast<uint64_t>(one.outputs[i].z));
        EXPECT_EQ(other.outputs[i].e, one.outputs[i].e);
        EXPECT_EQ(other.outputs[i].worst, one.outputs[i].worst);
      }
      EXPECT_EQ(other.findings.size(), one.findings.size());
    }
  }
}

TEST(OwnErrors, WhatCannotBeJudgedIsCountedAndNeverClean) {
  test::TestRun made;
  const test::Value x = made.value(DType::Float32, {2}, {1, 2});
  const std::string self = R"({"self":{"tensor":"self"}})";
  made.op("a", "aten.exp.default", {}, self, made.value(DType::Float32, {2}, {2.718, 7.389}));
  made.op("b", "aten.no_such_thing.default", {{"self", x}}, self,
          made.value(DType::Float32, {2}, {1, 2}));
  made.op("c", "aten.rand.default", {}, R"({"size":[2]})",
          made.value(DType::Float32, {2}, {0.5, 0.25}));
  made.op("d", "aten.neg.default", {{"self", x}}, self, made.value(DType::Float32, {2}, {-1, -2}));
  Program program = made.program();
  const OwnErrors errors = *own_errors(program, {});
  EXPECT_EQ(errors.judgeable, 4u);
  EXPECT_EQ(errors.judged, 1u);
  ASSERT_EQ(errors.outputs.size(), 4u);
  EXPECT_NE(errors.outputs[0].state, State::Exact);
  EXPECT_NE(errors.outputs[0].state, State::Judged);
  EXPECT_EQ(errors.outputs[1].state, State::NoReference);
  EXPECT_EQ(errors.outputs[2].state, State::NotPredictable);
  EXPECT_EQ(errors.outputs[3].state, State::Exact);
  EXPECT_EQ(errors.unjudged.at("aten.no_such_thing.default: no reference"), 1u);
  EXPECT_EQ(errors.unjudged.at("aten.rand.default: random values"), 1u);
  EXPECT_TRUE(errors.findings.empty());
}

TEST(OwnErrors, CanBeInterrupted) {
  Chain chain(1);
  const Program program = chain.made.program();
  const std::atomic<bool> interrupted = true;
  OwnErrorOptions stopped;
  stopped.interrupted = &interrupted;
  const Result<OwnErrors> errors = own_errors(program, stopped);
  ASSERT_FALSE(errors);
  EXPECT_EQ(errors.error().code, Errc::Interrupted);
}

TEST(JudgeExact, NaNInPlaceOfZeroIsWrong) {
  // given what an operator that only moves values should give
  const Tensor right = with_values(DType::Float32, {4}, {0, 1, 0, 1e-40});
  const auto judged = [&](const std::vector<double>& values) {
    OwnError error;
    EXPECT_TRUE(judge_exact(right.view, with_values(DType::Float32, {4}, values).view, &error));
    return error;
  };
  // then what both have below the smallest normal number is no difference, and NaN is one
  EXPECT_EQ(judged({0, 1, 2e-40, 0}).state, State::Exact);
  for (const std::vector<double>& values :
       {std::vector<double>{0, 1, NAN, 1e-40}, {0, 1, 0, NAN}}) {
    const OwnError error = judged(values);
    EXPECT_EQ(error.state, State::Judged);
    EXPECT_EQ(error.reason, "NaN in other places than the reference has it");
  }
}

}  // namespace
}  // namespace assay::locate
