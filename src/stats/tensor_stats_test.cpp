// SPDX-License-Identifier: Apache-2.0
#include "stats/tensor_stats.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "tensor/convert.hpp"

namespace assay::stats {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

template <typename T>
TensorView view_of(DType dtype, const std::vector<T>& values) {
  const int64_t count =
      static_cast<int64_t>(values.size() * sizeof(T)) * 8 / info(dtype).element_bits;
  return *make_view(dtype, {count}, std::as_bytes(std::span(values)));
}

/// Extremes and counts are exact. A sum of n rounded additions is compared at the size of its
/// terms.
void expect_close(const TensorStats& fast, const TensorStats& plain) {
  RC_ASSERT(fast.count == plain.count);
  RC_ASSERT(fast.nan_count == plain.nan_count);
  RC_ASSERT(fast.positive_inf_count == plain.positive_inf_count);
  RC_ASSERT(fast.negative_inf_count == plain.negative_inf_count);
  if (plain.finite_count() == 0) {
    RC_ASSERT(std::isnan(fast.min) && std::isnan(fast.max) && std::isnan(fast.mean));
    RC_ASSERT(fast.l2_norm == 0);
    return;
  }
  RC_ASSERT(fast.min == plain.min);
  RC_ASSERT(fast.max == plain.max);
  const double largest = std::max(std::fabs(plain.min), std::fabs(plain.max));
  RC_ASSERT(std::fabs(fast.mean - plain.mean) <= 1e-13 * largest);
  RC_ASSERT(fast.l2_norm == plain.l2_norm ||
            std::fabs(fast.l2_norm - plain.l2_norm) <= 1e-13 * plain.l2_norm + 5e-324);
}

TEST(ComputeStats, GivesTheNumbersOfASmallTensor) {
  // (1 - 2 + 3 + 4) / 4 = 1.5; sqrt(1 + 4 + 9 + 16) = 5.477
  const TensorStats stats = compute_stats(view_of(DType::Float32, std::vector<float>{1, -2, 3, 4}));
  EXPECT_EQ(stats.count, 4);
  EXPECT_EQ(stats.max, 4);
  EXPECT_EQ(stats.min, -2);
  EXPECT_EQ(stats.mean, 1.5);
  EXPECT_EQ(stats.l2_norm, std::sqrt(30.0));
  EXPECT_FALSE(stats.has_non_finite());
  EXPECT_EQ(stats, stats.with_non_finite());
}

TEST(ComputeStats, LeavesNonFiniteValuesOutAndCountsThem) {
  const float inf = std::numeric_limits<float>::infinity();
  const TensorStats stats =
      compute_stats(view_of(DType::Float32, std::vector<float>{NAN, inf, -inf, -inf, 3, -4}));
  EXPECT_EQ(stats.nan_count, 1);
  EXPECT_EQ(stats.positive_inf_count, 1);
  EXPECT_EQ(stats.negative_inf_count, 2);
  EXPECT_EQ(stats.finite_count(), 2);
  EXPECT_EQ(stats.min, -4);
  EXPECT_EQ(stats.max, 3);
  EXPECT_EQ(stats.mean, -0.5);
  EXPECT_EQ(stats.l2_norm, 5);
  EXPECT_TRUE(std::isnan(stats.with_non_finite().max));
}

TEST(WithNonFinite, FollowsIeeeArithmetic) {
  const auto stats_of = [](std::vector<double> values) {
    return compute_stats(view_of(DType::Float64, values)).with_non_finite();
  };
  const TensorStats positive = stats_of({1, kInf});
  EXPECT_EQ(positive.min, 1);
  EXPECT_EQ(positive.max, kInf);
  EXPECT_EQ(positive.mean, kInf);
  EXPECT_EQ(positive.l2_norm, kInf);
  const TensorStats negative = stats_of({-kInf, -kInf});
  EXPECT_EQ(negative.min, -kInf);
  EXPECT_EQ(negative.max, -kInf);
  EXPECT_EQ(negative.mean, -kInf);
  const TensorStats both = stats_of({-kInf, kInf});
  EXPECT_EQ(both.min, -kInf);
  EXPECT_EQ(both.max, kInf);
  EXPECT_TRUE(std::isnan(both.mean));
  EXPECT_EQ(both.l2_norm, kInf);
}

TEST(ComputeStats, EmptyAndScalarTensors) {
  const TensorStats empty = compute_stats(*make_view(DType::Float32, {0, 4}, {}));
  EXPECT_EQ(empty.count, 0);
  EXPECT_TRUE(std::isnan(empty.max) && std::isnan(empty.mean));
  EXPECT_EQ(empty.l2_norm, 0);
  const std::vector<double> one = {-7};
  const TensorStats scalar =
      compute_stats(*make_view(DType::Float64, {}, std::as_bytes(std::span(one))));
  EXPECT_EQ(scalar.count, 1);
  EXPECT_EQ(scalar.min, -7);
  EXPECT_EQ(scalar.max, -7);
  EXPECT_EQ(scalar.l2_norm, 7);
}

TEST(ComputeStats, DoublesNeitherOverflowNorUnderflow) {
  const TensorStats large =
      compute_stats(view_of(DType::Float64, std::vector<double>{1.2e308, 1.2e308, -3e200}));
  EXPECT_NEAR(large.l2_norm / 1e308, 1.2 * std::sqrt(2.0), 1e-12);
  EXPECT_NEAR(large.mean / 1e308, 0.8, 1e-12);
  const TensorStats small =
      compute_stats(view_of(DType::Float64, std::vector<double>{3e-300, 4e-300, 0}));
  EXPECT_NEAR(small.l2_norm / 5e-300, 1, 1e-15);
  const TensorStats subnormal =
      compute_stats(view_of(DType::Float64, std::vector<double>{5e-324, 5e-324, 5e-324, 5e-324}));
  EXPECT_EQ(subnormal.l2_norm, 1e-323);  // 2 * 2^-1074
  EXPECT_EQ(subnormal.mean, 5e-324);
}

TEST(ComputeStats, ComplexTensorsAreMeasuredByAbsoluteValue) {
  const TensorStats stats =
      compute_stats(view_of(DType::Complex64, std::vector<float>{3, -4, 0, 0, NAN, 1}));
  EXPECT_EQ(stats.count, 3);
  EXPECT_EQ(stats.nan_count, 1);
  EXPECT_EQ(stats.max, 5);
  EXPECT_EQ(stats.min, 0);
  EXPECT_EQ(stats.mean, 2.5);
  EXPECT_EQ(stats.l2_norm, 5);
}

TEST(ComputeStats, LazyNegationSwapsTheSigns) {
  const std::vector<double> values = {1, -2, kInf};
  TensorView view = view_of(DType::Float64, values);
  view.negative = true;
  const TensorStats stats = compute_stats(view);
  EXPECT_EQ(stats.min, -1);
  EXPECT_EQ(stats.max, 2);
  EXPECT_EQ(stats.mean, 0.5);
  EXPECT_EQ(stats.negative_inf_count, 1);
  EXPECT_EQ(stats, compute_stats_reference(view));
}

TEST(ComputeStats, ExpandedTensorsCountEveryCopy) {
  const std::vector<float> row = {1, 2, 3};
  // 2^33 elements: 2^33 / 3 would not fit, so 3 * 2^32 of them over twelve bytes.
  const TensorView view =
      *make_view(DType::Float32, {int64_t{1} << 32, 3}, {0, 1}, std::as_bytes(std::span(row)), 0);
  const TensorStats stats = compute_stats(view);
  EXPECT_EQ(stats.count, 3 * (int64_t{1} << 32));
  EXPECT_EQ(stats.mean, 2);
  EXPECT_EQ(stats.l2_norm, std::sqrt(14 * 0x1p32));
}

TEST(ComputeStats, CountsBeyondTwoToThe31) {
  // Untouched pages of a private mapping read as zero without using memory.
  const size_t bytes = (size_t{1} << 31) + 4096;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* data = static_cast<std::byte*>(memory);
  data[bytes - 1] = std::byte{1};
  const TensorStats stats =
      compute_stats(*make_view(DType::Bool, {static_cast<int64_t>(bytes)}, {data, bytes}));
  EXPECT_EQ(stats.count, static_cast<int64_t>(bytes));
  EXPECT_EQ(stats.max, 1);
  EXPECT_EQ(stats.l2_norm, 1);
  munmap(memory, bytes);
}

TEST(ComputeStats, BitsTypesHaveNoValues) {
  EXPECT_EQ(compute_stats(view_of(DType::Bits8, std::vector<uint8_t>{1, 2})).count, 0);
}

void run_backwards(void (*body)(void*, size_t), void* data, size_t count) {
  for (size_t i = count; i-- > 0;) body(data, i);
}
void run_on_threads(void (*body)(void*, size_t), void* data, size_t count) {
  std::vector<std::jthread> threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([=] {
      for (size_t i = t; i < count; i += 3) body(data, i);
    });
  }
}

TEST(ComputeStats, ThreadsDoNotChangeABit) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.1f, 3.0f);
  for (const size_t count : {size_t{40000}, size_t{300001}, size_t{5000003}}) {
    std::vector<float> values(count);
    for (float& value : values) value = normal(random);
    const TensorView view = view_of(DType::Float32, values);
    const TensorStats alone = compute_stats(view);
    EXPECT_EQ(alone, compute_stats(view, run_backwards));
    EXPECT_EQ(alone, compute_stats(view, run_on_threads));
  }
}

const std::vector<DType>& types_with_values() {
  static const std::vector<DType> types = [] {
    std::vector<DType> out;
    for (int i = 0; i < kDTypeCount; ++i) {
      if (info(static_cast<DType>(i)).kind != DTypeKind::Bits) out.push_back(static_cast<DType>(i));
    }
    return out;
  }();
  return types;
}

/// Random bytes (every bit pattern, hence NaN, infinities, subnormals), random shape and strides.
TensorView random_view(std::vector<std::byte>& storage) {
  const DType dtype = *rc::gen::elementOf(types_with_values());
  const auto rank = *rc::gen::inRange(0, 5);
  Dims shape;
  Dims strides;
  int64_t step = 1;
  int64_t low = 0;
  int64_t high = 0;
  for (int i = 0; i < rank; ++i) {
    const auto size = *rc::gen::inRange<int64_t>(1, i == 0 ? 200 : 7);
    const int kind = *rc::gen::inRange(0, 8);
    int64_t stride = step + (kind == 1 ? 1 : 0);
    if (kind == 2) stride = 0;
    if (kind == 3) stride = -stride;
    if (kind == 4) stride = 1;  // overlaps
    shape.push_back(size);
    strides.push_back(stride);
    (stride < 0 ? low : high) += stride * (size - 1);
    step = std::max<int64_t>(step, std::abs(stride) * size);
  }
  if (*rc::gen::arbitrary<bool>()) {
    std::reverse(shape.data(), shape.data() + shape.size());
    std::reverse(strides.data(), strides.data() + strides.size());
  }
  const auto skip = *rc::gen::inRange<int64_t>(0, 4);
  storage.resize(*storage_bytes(dtype, static_cast<uint64_t>(high - low + 1 + skip)));
  std::mt19937 random(*rc::gen::arbitrary<uint32_t>());
  for (std::byte& byte : storage) byte = static_cast<std::byte>(random());
  TensorView view = *make_view(dtype, shape, strides, storage, skip - low);
  view.negative = *rc::gen::inRange(0, 8) == 0;
  return view;
}

RC_GTEST_PROP(ComputeStats, AgreesWithThePlainLoop, ()) {
  std::vector<std::byte> storage;
  const TensorView view = random_view(storage);
  expect_close(compute_stats(view), compute_stats_reference(view));
}

TEST(ComputeStats, AgreesWithThePlainLoopForEveryTypeAndLength) {
  std::mt19937 random(11);
  for (const DType dtype : types_with_values()) {
    for (const int64_t count :
         {1, 2, 15, 16, 17, 31, 32, 33, 63, 65, 1023, 1025, 8191, 8193, 70000}) {
      std::vector<std::byte> storage(*storage_bytes(dtype, static_cast<uint64_t>(count)));
      for (std::byte& byte : storage) byte = static_cast<std::byte>(random());
      const TensorView view = *make_view(dtype, {count}, storage);
      SCOPED_TRACE(std::string(name(dtype)) + " " + std::to_string(count));
      EXPECT_NO_THROW(expect_close(compute_stats(view), compute_stats_reference(view)));
    }
  }
}

TEST(ComputeStats, TransposedMatrixIsReadInMemoryOrder) {
  // Same bits as the matrix itself, not only nearly: both are the same run of memory.
  std::mt19937 random(3);
  std::vector<float> values(100 * 300);
  for (float& value : values) value = static_cast<float>(random() % 1000) * 0.37f;
  const ByteSpan bytes = std::as_bytes(std::span(values));
  const TensorStats straight = compute_stats(*make_view(DType::Float32, {100, 300}, bytes));
  EXPECT_EQ(straight, compute_stats(*make_view(DType::Float32, {300, 100}, {1, 300}, bytes, 0)));
  EXPECT_EQ(straight, compute_stats(*make_view(DType::Float32, {100, 300}, {-300, -1}, bytes,
                                               100 * 300 - 1)));
}

}  // namespace
}  // namespace assay::stats
