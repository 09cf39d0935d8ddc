// SPDX-License-Identifier: Apache-2.0
#include "reference/products/matmul.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "tensor/convert.hpp"

namespace assay::reference {
namespace {

/// Random values of any type: floats that round in every digit, integers over their whole range.
Tensor random_tensor(DType dtype, const Dims& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> value(-2, 2);
  Wide wide(shape);
  const double scale = is_float(dtype) ? 1 : 60;
  for (double& each : wide.values) each = value(random) * scale;
  const Tensor source = to_tensor(std::move(wide));
  return narrow(source.view, dtype).value();
}

/// The definition, one element at a time, in the order of k.
Wide plain_matmul(const TensorView& x, const TensorView& w) {
  const Wide a = widen(x).value();
  const Wide b = widen(w).value();
  const int64_t m = x.shape[0], k = x.shape[1], n = w.shape[1];
  Wide out(Dims{m, n}, 0.0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t l = 0; l < k; ++l)
        out.data()[i * n + j] += a.data()[i * k + l] * b.data()[l * n + j];
  return out;
}

void expect_close(const Wide& left, const Wide& right) {
  ASSERT_EQ(left.shape, right.shape);
  for (size_t i = 0; i < left.values.size(); ++i)
    ASSERT_NEAR(left.values[i], right.values[i], 1e-12 * (1 + std::fabs(right.values[i])))
        << "at " << i;
}

TEST(Matmul, OfTwoByTwo) {
  const std::vector<float> x = {1, 2, 3, 4};
  const std::vector<float> w = {5, 6, 7, 8};
  const auto left = make_view(DType::Float32, {2, 2}, std::as_bytes(std::span(x))).value();
  const auto right = make_view(DType::Float32, {2, 2}, std::as_bytes(std::span(w))).value();
  const Wide out = matmul(left, right).value();
  EXPECT_EQ(out.shape, (Dims{2, 2}));
  EXPECT_EQ(std::vector<double>(out.values.begin(), out.values.end()),
            (std::vector<double>{19, 22, 43, 50}));
  const Wide turned = matmul(left, right, {.transpose_w = true}).value();
  EXPECT_EQ(turned.values[0], 1 * 5 + 2 * 6);
  const Wide both = matmul(left, right, {.transpose_x = true, .transpose_w = true}).value();
  EXPECT_EQ(both.values[1], 1 * 7 + 3 * 8);
}

TEST(Matmul, EqualsThePlainLoopForEveryTypeAndPath) {
  uint32_t seed = 1;
  for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32, DType::Float64,
                            DType::Int8, DType::Int32, DType::Float8E4M3FN}) {
    // 1 to 4 rows stream the weight, more are blocks; sizes around the edges of both.
    for (const int64_t m : {1, 2, 3, 4, 5, 67}) {
      for (const auto& [k, n] : std::vector<std::pair<int64_t, int64_t>>{
               {1, 1}, {1, 7}, {7, 1}, {16, 16}, {17, 33}, {530, 40}, {40, 530}}) {
        const Tensor x = random_tensor(dtype, {m, k}, ++seed);
        const Tensor w = random_tensor(dtype, {k, n}, ++seed);
        const Tensor stored = random_tensor(dtype, {n, k}, ++seed);
        const Tensor x_stored = random_tensor(dtype, {k, m}, ++seed);
        SCOPED_TRACE(std::string(name(dtype)) + " m " + std::to_string(m) + " k " +
                     std::to_string(k) + " n " + std::to_string(n));
        expect_close(matmul(x.view, w.view).value(), plain_matmul(x.view, w.view));
        expect_close(matmul(x.view, stored.view, {.transpose_w = true}).value(),
                     plain_matmul(x.view, transposed(stored.view)));
        expect_close(matmul(x_stored.view, w.view, {.transpose_x = true}).value(),
                     plain_matmul(transposed(x_stored.view), w.view));
      }
    }
  }
}

TEST(Matmul, OfIntegersIsExact) {
  const Tensor x = random_tensor(DType::Int8, {9, 1500}, 5);
  const Tensor w = random_tensor(DType::Int8, {70, 1500}, 6);
  const Wide out = matmul(x.view, w.view, {.transpose_w = true}).value();
  const auto* a = reinterpret_cast<const int8_t*>(x.view.storage.data());
  const auto* b = reinterpret_cast<const int8_t*>(w.view.storage.data());
  for (int64_t i = 0; i < 9; ++i)
    for (int64_t j = 0; j < 70; ++j) {
      int64_t sum = 0;
      for (int64_t l = 0; l < 1500; ++l) sum += a[i * 1500 + l] * b[j * 1500 + l];
      ASSERT_EQ(out.values[static_cast<size_t>(i * 70 + j)], static_cast<double>(sum));
    }
}

TEST(Matmul, HasTheSameBitsForAnyNumberOfThreads) {
  for (const int64_t m : {1, 4, 40}) {
    const Tensor x = random_tensor(DType::Float16, {m, 1100}, 7);
    const Tensor w = random_tensor(DType::BFloat16, {1300, 1100}, 8);
    const Wide alone = matmul(x.view, w.view, {.transpose_w = true}).value();
    for (const int jobs : {2, 3, 8}) {
      const Wide together = matmul(x.view, w.view, {.transpose_w = true, .jobs = jobs}).value();
      ASSERT_EQ(std::memcmp(alone.data(), together.data(), alone.values.size() * sizeof(double)), 0)
          << m << " rows, " << jobs << " threads";
    }
  }
}

TEST(Matmul, ServesMoreThreadsThanOpenBlasHasBuffers) {
  const Tensor x = random_tensor(DType::Float16, {40, 200}, 16);
  const Tensor w = random_tensor(DType::Float16, {100, 200}, 17);
  const Wide alone = matmul(x.view, w.view, {.transpose_w = true}).value();
  std::atomic<int> equal{0};
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 200; ++i)
      threads.emplace_back([&] {
        const Wide own = matmul(x.view, w.view, {.transpose_w = true}).value();
        equal += std::equal(alone.values.begin(), alone.values.end(), own.values.begin()) ? 1 : 0;
      });
  }
  EXPECT_EQ(equal, 200);
}

TEST(Matmul, ReadsAnyStrides) {
  // Every second row and third column of a larger array, negated lazily.
  const Tensor base = random_tensor(DType::Float32, {40, 60}, 9);
  TensorView w = make_view(DType::Float32, {20, 20}, {120, 3}, base.view.storage).value();
  w.negative = true;
  for (const int64_t m : {2, 8}) {
    const Tensor x = random_tensor(DType::Float32, {m, 20}, 10);
    expect_close(matmul(x.view, w).value(), plain_matmul(x.view, w));
    expect_close(matmul(x.view, transposed(w)).value(), plain_matmul(x.view, transposed(w)));
  }
  // Doubles whose rows are one and the same.
  const Tensor row = random_tensor(DType::Float64, {1, 20}, 11);
  const TensorView same = make_view(DType::Float64, {9, 20}, {0, 1}, row.view.storage).value();
  expect_close(matmul(same, w).value(), plain_matmul(same, w));
}

TEST(Matmul, BroadcastsBatches) {
  const Tensor x = random_tensor(DType::Float32, {3, 1, 5, 6}, 12);
  const Tensor w = random_tensor(DType::Float32, {2, 6, 7}, 13);
  const Wide out = matmul(x.view, w.view).value();
  ASSERT_EQ(out.shape, (Dims{3, 2, 5, 7}));
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 2; ++j) {
      TensorView left = x.view;
      left.shape = {5, 6};
      left.strides = {6, 1};
      left.offset_elements = i * 30;
      TensorView right = w.view;
      right.shape = {6, 7};
      right.strides = {7, 1};
      right.offset_elements = j * 42;
      const Wide expected = plain_matmul(left, right);
      for (size_t e = 0; e < expected.values.size(); ++e)
        ASSERT_NEAR(out.values[static_cast<size_t>((i * 2 + j) * 35) + e], expected.values[e],
                    1e-12);
    }
}

TEST(Matmul, JoinsLeadingDimensionsOfX) {
  const Tensor x = random_tensor(DType::Float16, {2, 3, 4, 8}, 14);
  const Tensor w = random_tensor(DType::Float16, {5, 8}, 15);
  TensorView flat = x.view;
  flat.shape = {24, 8};
  flat.strides = {8, 1};
  const Wide out = matmul(x.view, w.view, {.transpose_w = true}).value();
  EXPECT_EQ(out.shape, (Dims{2, 3, 4, 5}));
  const Wide expected = plain_matmul(flat, transposed(w.view));
  for (size_t i = 0; i < expected.values.size(); ++i)
    ASSERT_NEAR(out.values[i], expected.values[i], 1e-12);
  // A vector has no row of its own.
  TensorView vector = x.view;
  vector.shape = {8};
  vector.strides = {1};
  EXPECT_EQ(matmul(vector, w.view, {.transpose_w = true}).value().shape, (Dims{5}));
}

TEST(Matmul, OfNothing) {
  const Tensor x = random_tensor(DType::Float32, {6, 0}, 1);
  const Tensor w = random_tensor(DType::Float32, {0, 5}, 1);
  const Wide zeros = matmul(x.view, w.view).value();
  EXPECT_EQ(zeros.shape, (Dims{6, 5}));
  for (const double value : zeros.values) EXPECT_EQ(value, 0);
  const Tensor empty = random_tensor(DType::Float32, {0, 3}, 1);
  const Tensor three = random_tensor(DType::Float32, {3, 2}, 1);
  EXPECT_EQ(matmul(empty.view, three.view).value().shape, (Dims{0, 2}));
}

TEST(Matmul, PassesNanAndInfinityOn) {
  for (const int64_t m : {1, 9}) {
    Wide values(Dims{m, 3}, 1.0);
    values.values[0] = std::numeric_limits<double>::infinity();
    const Tensor x = to_tensor(std::move(values));
    const Tensor w = to_tensor(Wide(Dims{3, 2}, 1.0));
    const Wide out = matmul(x.view, w.view).value();
    EXPECT_TRUE(std::isinf(out.values[0]));
    if (m > 1) {
      EXPECT_EQ(out.values[2], 3);
    }
    Wide zeros(Dims{3, 2}, 0.0);
    const Tensor zero = to_tensor(std::move(zeros));
    EXPECT_TRUE(std::isnan(matmul(x.view, zero.view).value().values[0]));
  }
}

TEST(Matmul, NamesShapesThatDoNotFit) {
  const Tensor x = random_tensor(DType::Float32, {4, 3}, 1);
  const Tensor w = random_tensor(DType::Float32, {5, 8}, 1);
  const auto result = matmul(x.view, w.view, {.transpose_w = true});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Errc::Invalid);
  EXPECT_EQ(result.error().message, "x [4, 3] does not fit w [5, 8] transposed");
  const Tensor vector = random_tensor(DType::Float32, {3}, 1);
  EXPECT_FALSE(matmul(x.view, vector.view));
  // 2^60 values out of one: refused, not allocated.
  const auto huge =
      make_view(DType::Float32, {int64_t{1} << 30, int64_t{1} << 30}, {0, 0}, x.view.storage)
          .value();
  EXPECT_EQ(matmul(huge, huge).error().code, Errc::TooLarge);
  const auto tall =
      make_view(DType::Float32, {int64_t{1} << 30, 1}, {0, 1}, x.view.storage).value();
  EXPECT_EQ(matmul(tall, tall, {.transpose_w = true}).error().code, Errc::TooLarge);
  const auto complex = make_view(DType::Complex64, {2, 2}, w.view.storage).value();
  EXPECT_EQ(matmul(complex, x.view).error().code, Errc::Unsupported);
}

}  // namespace
}  // namespace assay::reference
