// SPDX-License-Identifier: Apache-2.0
#include "locate/sim_rounding.hpp"

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

  // Then both errors point the same way: half of the first, and half of four roundoffs; one is for the result's rounding.
  const double of_scale = (scale - 1 / std::sqrt(3.0)) * std::sqrt(3.0);
  EXPECT_GT(std::abs(of_scale), std::abs(of_mean) / 2 + kUnit);
}

}  // namespace
}  // namespace assay::locate
