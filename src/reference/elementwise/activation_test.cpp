// SPDX-License-Identifier: Apache-2.0
#include "reference/elementwise/activation.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace assay::reference {
namespace {

Tensor tensor(const Dims& shape, std::initializer_list<double> values) {
  Wide wide(shape);
  std::copy(values.begin(), values.end(), wide.values.begin());
  return to_tensor(std::move(wide));
}

TEST(Sigmoid, BlocksEqualThePlainFunction) {
  // Values over all magnitudes, a block's end in the middle, and what is no number.
  Wide x(Dims{5003});
  for (size_t i = 0; i < x.values.size(); ++i)
    x.values[i] = (i % 2 == 0 ? 1 : -1) * std::exp(static_cast<double>(i) / 300 - 9);
  x.values[7] = NAN;
  x.values[8] = INFINITY;
  x.values[9] = -INFINITY;
  x.values[10] = -0.0;
  const Wide copy = x;
  const auto y = sigmoid(to_tensor(std::move(x)).view);
  ASSERT_TRUE(y);
  for (size_t i = 0; i < copy.values.size(); ++i) {
    const double plain = sigmoid(copy.values[i]);
    if (std::isnan(plain))
      EXPECT_TRUE(std::isnan(y->values[i]));
    else
      ASSERT_NEAR(y->values[i], plain, 1e-15 * plain + 1e-307) << copy.values[i];
  }
}

TEST(Relu, KeepsNaN) {
  const auto y = relu(tensor({4}, {-1, 0, 2, NAN}).view);
  ASSERT_TRUE(y);
  EXPECT_EQ(y->values[0], 0);
  EXPECT_EQ(y->values[2], 2);
  EXPECT_TRUE(std::isnan(y->values[3]));
}

TEST(Gelu, BothFormsAreTheTextbookFormulas) {
  const Tensor x = tensor({3}, {-1.5, 0.25, 3});
  const auto tanh_form = gelu(x.view, GeluForm::Tanh);
  const auto erf_form = gelu(x.view, GeluForm::Erf);
  ASSERT_TRUE(tanh_form && erf_form);
  size_t i = 0;
  for (const double v : {-1.5, 0.25, 3.0}) {
    const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * std::pow(v, 3));
    EXPECT_NEAR(tanh_form->values[i], 0.5 * v * (1 + std::tanh(u)), 1e-15);
    EXPECT_NEAR(erf_form->values[i], 0.5 * v * (1 + std::erf(v / std::sqrt(2))), 1e-15);
    ++i;
  }
}

TEST(Gelu, KeepsItsDigitsWhereTheTailIsTiny) {
  // Phi(-10) = 7.6198530241605e-24; 1 + erf(...) would be 0 there.
  const auto y = gelu(tensor({1}, {-10}).view, GeluForm::Erf);
  ASSERT_TRUE(y);
  EXPECT_NEAR(y->values[0] / -7.6198530241605e-23, 1, 1e-12);
}

TEST(FastGelu, IsTheKernelsFormulaWithoutOverflow) {
  const auto y = fast_gelu(tensor({2}, {-2, 1000}).view);
  ASSERT_TRUE(y);
  const double x = -2;
  EXPECT_NEAR(y->values[0],
              x * std::exp(0.851 * (x - std::fabs(x))) / (1 + std::exp(-1.702 * std::fabs(x))),
              1e-15);
  EXPECT_EQ(y->values[1], 1000);
}

TEST(Swiglu, TakesHalvesAlongTheGivenDimension) {
  // [2, 1, 2]: a is the first entry of dimension 0, b the second.
  const Tensor x = tensor({2, 1, 2}, {1, 2, 10, 20});
  const auto y = swiglu(x.view, 0);
  ASSERT_TRUE(y);
  EXPECT_EQ(y->shape, (Dims{1, 1, 2}));
  EXPECT_NEAR(y->values[0], 1 / (1 + std::exp(-1.0)) * 10, 1e-14);
  EXPECT_NEAR(y->values[1], 2 / (1 + std::exp(-2.0)) * 20, 1e-14);
  const auto last = swiglu(x.view);
  ASSERT_TRUE(last);
  EXPECT_NEAR(last->values[1], 10 / (1 + std::exp(-10.0)) * 20, 1e-12);
}

TEST(Swiglu, LongRowsEqualShortOnes) {
  // Blocks must not change results: 5000 columns against one at a time.
  Wide x(Dims{2, 10000});
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] = std::sin(static_cast<double>(i));
  const Wide copy = x;
  const auto y = swiglu(to_tensor(std::move(x)).view);
  ASSERT_TRUE(y);
  for (size_t row = 0; row < 2; ++row) {
    for (size_t i = 0; i < 5000; ++i) {
      const double a = copy.values[row * 10000 + i];
      const double b = copy.values[row * 10000 + 5000 + i];
      const double golden = a * sigmoid(a) * b;
      ASSERT_NEAR(y->values[row * 5000 + i], golden, 2e-15 * std::fabs(golden));
    }
  }
}

TEST(Swiglu, OddSizesAndAbsentAxesAreErrors) {
  EXPECT_EQ(swiglu(tensor({1, 3}, {1, 2, 3}).view).error().message,
            "dimension 1 of [1, 3] has no halves");
  EXPECT_EQ(swiglu(tensor({2}, {1, 2}).view, 1).error().code, Errc::Invalid);
  EXPECT_EQ(swiglu(tensor({}, {1}).view).error().code, Errc::Invalid);
}

TEST(SwigluBackward, IsTheDerivativeOfSwiglu) {
  // Against central differences.
  const std::vector<double> values = {0.3, -1.2, 2, -0.7};
  Wide x(Dims{4});
  std::copy(values.begin(), values.end(), x.values.begin());
  const auto gradient = swiglu_backward(tensor({2}, {1.5, -2}).view, to_tensor(Wide(x)).view);
  ASSERT_TRUE(gradient);
  EXPECT_EQ(gradient->shape, Dims{4});
  for (size_t i = 0; i < 4; ++i) {
    const double step = 1e-6;
    double difference = 0;
    for (const double sign : {1.0, -1.0}) {
      Wide moved = x;
      moved.values[i] += sign * step;
      const auto y = swiglu(to_tensor(std::move(moved)).view);
      ASSERT_TRUE(y);
      difference += sign * (1.5 * y->values[0] - 2 * y->values[1]);
    }
    EXPECT_NEAR(gradient->values[i], difference / (2 * step), 1e-8);
  }
  EXPECT_EQ(swiglu_backward(tensor({1}, {1}).view, to_tensor(Wide(x)).view).error().message,
            "the gradient has shape [1], halves of x have [2]");
}

}  // namespace
}  // namespace assay::reference
