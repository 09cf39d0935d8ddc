// SPDX-License-Identifier: Apache-2.0
#include "locate/noise/kernel_rounding.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using reference::aten::Call;

double only_value(const Tensor& tensor) { return reference::widen(tensor.view)->values.front(); }

TEST(Simulate, TheNoiseOfAScaleDoesNotTakeItselfBack) {
  // Given the mean of the squares of one row, as a norm computes it
  constexpr double kUnit = 0x1p-24;
  Call mean{"aten.mean.default", {}};
  mean.arguments["self"].value = reference::to_tensor(reference::Wide(Dims{1, 256}, 3.0));
  const Tensor noisy_mean = simulate(mean, nullptr, DType::Float32)->front();
  const double of_mean = (only_value(noisy_mean) - 3) / 3;
  ASSERT_GT(std::abs(of_mean), 4 * kUnit);

  // When its root is taken, and the number that one is divided by it
  Call rsqrt{"aten.rsqrt.default", {}};
  rsqrt.arguments["self"].value = noisy_mean;
  const double scale = only_value(simulate(rsqrt, nullptr, DType::Float32)->front());

  // Then both errors point the same way: half of the first, and half of four roundoffs; one is for
  // the result's rounding.
  const double of_scale = (scale - 1 / std::sqrt(3.0)) * std::sqrt(3.0);
  EXPECT_GT(std::abs(of_scale), std::abs(of_mean) / 2 + kUnit);
}

TEST(Simulate, StatisticsAreRoundedWhereMineMayHaveRoundedThem) {
  // Given a mean of two numbers that bfloat16, of eight bits, does not have
  Call mean{"aten.mean.default", {}};
  reference::Wide two(Dims{2}, 1.0);
  two.values[1] = 1 + 0x1p-7;
  mean.arguments["self"].value = reference::to_tensor(two);
  const auto with = [&](Statistics statistics) {
    return only_value(
        simulate(mean, nullptr, DType::BFloat16, AttentionKernel::Fused, 0, statistics)->front());
  };
  // Then it is as it is in a model that computes its norms in float32, and rounded to even
  EXPECT_EQ(with(Statistics::Wide), 1 + 0x1p-8);
  EXPECT_EQ(with(Statistics::Rounded), 1);
}

TEST(Simulate, OtherDrawsAreOfTheSizeOfARoundingAndDiffer) {
  constexpr int64_t kCount = 4096;
  constexpr double kUlp = 0x1p-7;  // of bfloat16 between 1 and 2
  Call sum{"aten.add.Tensor", {}};
  sum.arguments["self"].value = reference::to_tensor(reference::Wide(Dims{kCount}, 1.25));
  sum.arguments["other"].value = reference::to_tensor(reference::Wide(Dims{kCount}, 0.25));
  const auto errors = [&](uint64_t draw) {
    const std::vector<Tensor> made =
        simulate(sum, nullptr, DType::BFloat16, AttentionKernel::Fused, draw).value();
    reference::Wide values = reference::widen(made.front().view).value();
    for (double& value : values.values) value = (value - 1.5) / kUlp;
    return values;
  };
  const reference::Wide first = errors(1), second = errors(2);
  double square = 0, product = 0;
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_LE(std::abs(first.values[i]), 0.5);
    square += first.values[i] * first.values[i] / kCount;
    product += first.values[i] * second.values[i] / kCount;
  }
  // A uniform error of one ULP has the variance 1/12; of 4096 of them the mean is known to 1.4 %,
  // and the product of two to 0.0013.
  EXPECT_NEAR(square, 1.0 / 12, 0.005);
  EXPECT_NEAR(product, 0, 0.006);
  for (const double error : errors(0).values) EXPECT_EQ(error, 0);  // 1.5 is a bfloat16
}

TEST(Simulate, ASolverErrsByItsMatrix) {
  // Given  [1 0; 1 -2^-20] x = [1; 1 - 2^-20], so x = [1; 1]
  Call solve{"aten.linalg_solve_triangular.default", {}};
  reference::Wide matrix(Dims{2, 2}, 1.0);
  matrix.values[1] = 0;
  matrix.values[3] = -0x1p-20;
  reference::Wide sides(Dims{2, 1}, 1.0);
  sides.values[1] = 1 - 0x1p-20;
  solve.arguments["self"].value = reference::to_tensor(std::move(matrix));
  solve.arguments["B"].value = reference::to_tensor(std::move(sides));
  solve.arguments["upper"].value = false;

  // Then  two roundoffs of the ones, 2^-23 each, are 2^-3 of the second unknown's divisor: it is
  //       off by up to a quarter
  const std::vector<Tensor> made = simulate(solve, nullptr, DType::Float32).value();
  const reference::Wide found = reference::widen(made.front().view).value();
  EXPECT_NEAR(found.values[0], 1, 0x1.01p-23);
  EXPECT_NEAR(found.values[1], 1, 0.2501);
  EXPECT_GT(std::abs(found.values[1] - 1), 0x1p-20);
}

TEST(Simulate, CountsAreNotRounded) {
  // Given 301 tokens of expert 0 and 3 of expert 1: between 256 and 512 a bfloat16 has no odd
  // number
  reference::Wide experts(Dims{304}, 0.0);
  for (size_t i = 301; i < 304; ++i) experts.values[i] = 1;
  Call histc{"aten.histc.default", {}};
  histc.arguments["self"].value = reference::to_tensor(std::move(experts));
  histc.arguments["bins"].value = int64_t{2};
  histc.arguments["min"].value = int64_t{0};
  histc.arguments["max"].value = int64_t{1};

  // Then they stay what they are in every draw of the noise: as offsets they say which expert's
  // weights a token meets.
  for (const uint64_t draw : {0, 1, 2}) {
    const std::vector<Tensor> made =
        simulate(histc, nullptr, DType::BFloat16, AttentionKernel::Fused, draw).value();
    const reference::Wide found = reference::widen(made.front().view).value();
    ASSERT_EQ(found.size(), 2);
    EXPECT_EQ(found.values[0], 301);
    EXPECT_EQ(found.values[1], 3);
  }
}

TEST(Simulate, SumsOfIntegersAreExactInFloat32) {
  // Given  the mask of 40 tokens as float32, and the same with halves
  for (const double step : {1.0, 0.1}) {
    Call cumsum{"aten.cumsum.default", {}};
    cumsum.arguments["self"].value = reference::to_tensor(reference::Wide(Dims{1, 40}, step));
    cumsum.arguments["dim"].value = int64_t{1};
    // When  it is added up
    const std::vector<Tensor> made = simulate(cumsum, nullptr, DType::Float32).value();
    const reference::Wide found = reference::widen(made.front().view).value();
    // Then  the positions that are made of them are whole, where other sums have the noise of an
    //       accumulator
    size_t whole = 0;
    for (size_t i = 0; i < 40; ++i)
      whole += found.values[i] == step * static_cast<double>(i + 1) ? 1 : 0;
    EXPECT_EQ(whole == 40, step == 1.0) << whole;
  }
}

}  // namespace
}  // namespace assay::locate
