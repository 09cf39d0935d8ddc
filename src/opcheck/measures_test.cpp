// SPDX-License-Identifier: Apache-2.0
#include "opcheck/measures.hpp"

#include <gtest/gtest.h>

#include "reference/wide.hpp"

namespace assay::opcheck {
namespace {

Tensor wide(const std::vector<double>& values) {
  reference::Wide array(Dims{static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), array.data());
  return reference::to_tensor(std::move(array));
}
Tensor stored(const std::vector<double>& values, DType dtype) {
  return reference::narrow(wide(values).view, dtype).value();
}

TEST(Measure, SmallExampleByHand) {
  // d = 1, 0, -2;  g = 1, 0, 4;  m = 2, 0, 2
  const Measures m =
      measure(wide({1, 0, 4}).view, stored({2, 0, 2}, DType::Float32).view, {}).value();
  EXPECT_EQ(m.count, 3);
  EXPECT_EQ(m.max_abs_error, 2);
  EXPECT_EQ(m.mean_abs_error, 1);
  EXPECT_EQ(m.max_rel_error, 1);
  EXPECT_EQ(m.mean_rel_error, 0.5);
  EXPECT_EQ(m.worst_index, 0);  // 1 / max(1, 1) against 2 / 4
  EXPECT_DOUBLE_EQ(m.rmse, std::sqrt(5.0 / 3));
  EXPECT_DOUBLE_EQ(m.nmse, 5.0 / 17);
  EXPECT_DOUBLE_EQ(m.relative_l2, std::sqrt(5.0 / 17));
  EXPECT_DOUBLE_EQ(m.cosine, 10 / std::sqrt(17.0 * 8));
  EXPECT_DOUBLE_EQ(m.error_balance, (1 - 0.5) / 3);
  EXPECT_DOUBLE_EQ(m.mare, 1 / (1 + 1e-7));
}

TEST(Measure, DivergenceOfTwoDistributions) {
  // softmax of 0 and log 3 is 1/4, 3/4; of 0 and 0 it is 1/2, 1/2: 1/4 log(1/2) + 3/4 log(3/2)
  const Measures m =
      measure(wide({0, std::log(3.0)}).view, wide({5, 5}).view, {.kl_divergence = true}).value();
  EXPECT_NEAR(m.kl_divergence, 0.25 * std::log(0.5) + 0.75 * std::log(1.5), 1e-15);
  // p = 1 - e^-1000, e^-1000; q the other way round: 1000
  const Measures far =
      measure(wide({1000, 0}).view, wide({0, 1000}).view, {.kl_divergence = true}).value();
  EXPECT_NEAR(far.kl_divergence, 1000, 1e-9);
}

TEST(Measure, OtherCountsAndTypesWithoutValuesAreRefused) {
  EXPECT_EQ(measure(wide({1, 2}).view, wide({1}).view, {}).error().message,
            "golden has shape [2], the output has [1]");
  const std::vector<std::byte> bytes(16);
  const TensorView complex = make_view(DType::Complex64, {2}, bytes).value();
  EXPECT_EQ(measure(wide({1, 2}).view, complex, {}).error().code, Errc::Unsupported);
}

TEST(NeighbourhoodOf, ClipsAtTheEndsAndNamesTheElement) {
  Tensor golden = wide({0, 1, 2, 3, 4, 5});
  golden = reference::reshaped(golden, {2, 3}).value();
  const Neighbourhood end = neighbourhood_of(golden.view, golden.view, 5);
  EXPECT_EQ(end.index, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(end.first, 3);
  EXPECT_EQ(end.golden_values, (std::vector<double>{3, 4, 5}));
  EXPECT_EQ(end.mine, 5);
  EXPECT_EQ(neighbourhood_of(golden.view, golden.view, 2).golden_values.size(), 5u);
  EXPECT_TRUE(neighbourhood_of(golden.view, golden.view, 6).index.empty());
}

}  // namespace
}  // namespace assay::opcheck
