// SPDX-License-Identifier: Apache-2.0
#include "reference/products/column_sums.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>

#include "reference/products/matmul.hpp"

namespace assay::reference {
namespace {

Tensor random_matrix(DType dtype, const Dims& shape) {
  std::mt19937 random(5);
  std::normal_distribution<double> normal;
  Wide wide(shape);
  for (double& value : wide.values) value = normal(random);
  return narrow(to_tensor(std::move(wide)).view, dtype).value();
}

/// The definition, one element at a time.
ColumnSums plain_sums(const TensorView& w) {
  const Wide values = widen(w).value();
  const int64_t k = w.shape[0], n = w.shape[1], blocks = column_blocks(n);
  ColumnSums sums{Wide(Dims{kColumnDraws * blocks, k}, 0.0), Wide(Dims{blocks, k}, 0.0)};
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double value = values.data()[i * n + j];
      const int64_t block = j / kColumnBlock;
      for (int draw = 0; draw < kColumnDraws; ++draw)
        sums.weighted.data()[(draw * blocks + block) * k + i] += column_factor(draw, j) * value;
      sums.sizes.data()[block * k + i] += std::fabs(value);
    }
  }
  return sums;
}

void expect_close(const Wide& found, const Wide& expected) {
  ASSERT_EQ(found.shape, expected.shape);
  for (size_t i = 0; i < found.values.size(); ++i)
    ASSERT_NEAR(found.values[i], expected.values[i], 1e-11) << "at " << i;
}

TEST(ColumnSums, AreTheDefinitionForAnyLayout) {
  for (const DType dtype : {DType::Float32, DType::BFloat16, DType::Float64}) {
    for (const bool columns_first : {false, true}) {
      // Neither size is a whole number of blocks: 1030 = 1024 + 6, 150 = 2 * 64 + 22.
      const Tensor stored = random_matrix(dtype, columns_first ? Dims{150, 1030} : Dims{1030, 150});
      const TensorView w = columns_first ? transposed(stored.view) : stored.view;
      const ColumnSums found = column_sums(w, 1);
      const ColumnSums expected = plain_sums(w);
      expect_close(found.weighted, expected.weighted);
      expect_close(found.sizes, expected.sizes);
      const ColumnSums threads = column_sums(w, 3);
      EXPECT_EQ(threads.weighted.values, found.weighted.values);
      EXPECT_EQ(threads.sizes.values, found.sizes.values);
    }
  }
}

TEST(ColumnSums, FactorsHaveBothSignsAndDifferentSizes) {
  std::set<double> sizes;
  int negative = 0;
  for (int draw = 0; draw < kColumnDraws; ++draw) {
    for (int64_t j = 0; j < 1000; ++j) {
      const double factor = column_factor(draw, j);
      negative += factor < 0;
      sizes.insert(std::fabs(factor));
    }
  }
  EXPECT_GE(*sizes.begin(), 0.75);
  EXPECT_LT(*sizes.rbegin(), 1.25);
  EXPECT_EQ(sizes.size(), 2000u);
  EXPECT_NEAR(negative, 1000, 120);  // five standard deviations of 2000 coins: 112
}

}  // namespace
}  // namespace assay::reference
