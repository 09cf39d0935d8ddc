// SPDX-License-Identifier: Apache-2.0
#include "stats/tensor_stats.hpp"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "tensor/convert.hpp"

namespace assay::stats {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

// docs/formats/native.md, computed by Python.
constexpr uint64_t kSignsOfGroup0 = 0xCA00;
constexpr uint64_t kSignsOfGroup1 = 0x6C32;
constexpr uint64_t kSignsOfGroup1000000 = 0x459D;

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
    RC_ASSERT(!fast.sketch);
    return;
  }
  RC_ASSERT(fast.min == plain.min);
  RC_ASSERT(fast.max == plain.max);
  const double largest = std::max(std::fabs(plain.min), std::fabs(plain.max));
  RC_ASSERT(std::fabs(fast.mean - plain.mean) <= 1e-13 * largest);
  RC_ASSERT(fast.l2_norm == plain.l2_norm ||
            std::fabs(fast.l2_norm - plain.l2_norm) <= 1e-13 * plain.l2_norm + 5e-324);
  RC_ASSERT(fast.sketch.has_value() == plain.sketch.has_value());
  if (!plain.sketch) return;
  for (size_t i = 0; i < kSketchBuckets; ++i) {
    // Stored as float32: a sum of both signs is off by some 2^-24 of its terms.
    const double fast_sum = static_cast<double>((*fast.sketch)[i]);
    const double plain_sum = static_cast<double>((*plain.sketch)[i]);
    RC_ASSERT(std::fabs(fast_sum - plain_sum) <=
              1.2e-7 * std::fabs(plain_sum) + 1e-13 * largest * static_cast<double>(plain.count) +
                  2e-45);
  }
}

/// |sketch(m) - sketch(g)|
double sketch_distance(const TensorStats& golden, const TensorStats& mine) {
  double squares = 0;
  for (size_t i = 0; i < kSketchBuckets; ++i) {
    const auto difference =
        static_cast<double>((*mine.sketch)[i]) - static_cast<double>((*golden.sketch)[i]);
    squares += difference * difference;
  }
  return std::sqrt(squares);
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

TEST(Sketch, IsTheSumOfItsBucketsWithTheirSigns) {
  std::vector<float> values(65, 0.0f);
  values[3] = 2;    // bucket 3, first sixteen
  values[19] = 4;   // bucket 3, second: against the others
  values[35] = 8;   // bucket 3, third
  values[51] = 16;  // bucket 3, fourth
  values[64] = 32;  // bucket 0 of group 1
  const Sketch sketch = *compute_stats(view_of(DType::Float32, values)).sketch;
  const float first = (kSignsOfGroup0 >> 3 & 1) != 0 ? -22.0f : 22.0f;  // 2 - 4 + 8 + 16
  const float next = (kSignsOfGroup1 & 1) != 0 ? -32.0f : 32.0f;
  for (size_t i = 0; i < kSketchBuckets; ++i) {
    EXPECT_EQ(sketch[i], i == 3 ? first : i == 0 ? next : 0.0f) << i;
  }
  EXPECT_EQ(sketch_signs(0), kSignsOfGroup0);  // files hold sketches: never another
  EXPECT_EQ(sketch_signs(1), kSignsOfGroup1);
  EXPECT_EQ(sketch_signs(1000000), kSignsOfGroup1000000);
}

TEST(Sketch, SeesWhatKeepsAllOtherStatistics) {
  // given 32 rows of 128 values
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  std::vector<float> golden(32 * 128);
  for (float& value : golden) value = normal(random);
  const TensorStats stats = compute_stats(view_of(DType::Float32, golden));
  const auto distance_over_true = [&](const std::vector<float>& mine) {
    double squares = 0;
    for (size_t i = 0; i < mine.size(); ++i) {
      const double difference = static_cast<double>(mine[i]) - static_cast<double>(golden[i]);
      squares += difference * difference;
    }
    return sketch_distance(stats, compute_stats(view_of(DType::Float32, mine))) /
           std::sqrt(squares);
  };
  // when rows are shifted, heads of 32 swapped, a sign is lost
  std::vector<float> shifted = golden;
  std::rotate(shifted.begin(), shifted.begin() + 128, shifted.end());
  std::vector<float> swapped = golden;
  for (size_t row = 0; row < 32; ++row)
    std::swap_ranges(&swapped[row * 128], &swapped[row * 128 + 32], &swapped[row * 128 + 32]);
  std::vector<float> negated = golden;
  negated[1234] = -negated[1234];
  // then the distance of the sketches is that of the tensors, within four of its standard
  // deviations
  EXPECT_NEAR(distance_over_true(shifted), 1, 0.7);
  EXPECT_NEAR(distance_over_true(swapped), 1, 0.7);
  EXPECT_NEAR(distance_over_true(negated), 1, 1e-4);
}

TEST(Sketch, IsTheSameForEveryTypeThatHoldsTheValues) {
  // Small integers, exact in all of them; 200 of them end in the middle of a group.
  std::vector<float> as_float;
  std::vector<double> as_double;
  std::vector<int64_t> as_long;
  std::vector<int8_t> as_byte;
  std::vector<uint16_t> as_bfloat16;
  std::vector<uint16_t> as_half;
  for (int i = 0; i < 200; ++i) {
    const int value = i * 37 % 128;
    as_float.push_back(static_cast<float>(value));
    as_double.push_back(value);
    as_long.push_back(value);
    as_byte.push_back(static_cast<int8_t>(value));
    as_bfloat16.push_back(
        static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16));
    const int exponent = value == 0 ? 0 : std::ilogb(value);
    const int bits =
        value == 0 ? 0 : (exponent + 15) << 10 | (value - (1 << exponent)) << (10 - exponent);
    as_half.push_back(static_cast<uint16_t>(bits));
  }
  const Sketch sketch = *compute_stats(view_of(DType::Float32, as_float)).sketch;
  EXPECT_NE(sketch, Sketch{});
  EXPECT_EQ(sketch, *compute_stats(view_of(DType::Float64, as_double)).sketch);
  EXPECT_EQ(sketch, *compute_stats(view_of(DType::Int64, as_long)).sketch);
  EXPECT_EQ(sketch, *compute_stats(view_of(DType::Int8, as_byte)).sketch);
  EXPECT_EQ(sketch, *compute_stats(view_of(DType::BFloat16, as_bfloat16)).sketch);
  EXPECT_EQ(sketch, *compute_stats(view_of(DType::Float16, as_half)).sketch);
}

TEST(Sketch, LeavesNonFiniteValuesOut) {
  std::vector<float> values(100, 1.5f);
  std::vector<float> zeroed = values;
  for (const size_t i : {size_t{7}, size_t{50}, size_t{99}}) {
    values[i] = i == 7 ? NAN : std::numeric_limits<float>::infinity();
    zeroed[i] = 0;
  }
  EXPECT_EQ(compute_stats(view_of(DType::Float32, values)).sketch,
            compute_stats(view_of(DType::Float32, zeroed)).sketch);
  EXPECT_FALSE(compute_stats(view_of(DType::Float32, std::vector<float>{NAN})).sketch);
}

TEST(Sketch, OfRowsWithGapsIsThatOfTheValues) {
  std::vector<float> wide(40 * 30);
  std::vector<float> narrow;
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = static_cast<float>(i % 89);
  for (size_t row = 0; row < 40; ++row)
    narrow.insert(narrow.end(), &wide[row * 30 + 5], &wide[row * 30 + 15]);
  const ByteSpan bytes = std::as_bytes(std::span(wide));
  const TensorStats rows = compute_stats(*make_view(DType::Float32, {40, 10}, {30, 1}, bytes, 5));
  EXPECT_EQ(rows.sketch, compute_stats(view_of(DType::Float32, narrow)).sketch);
}

TEST(Sketch, IsLeftOutWhereValuesAreNotReadInTheirOrder) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  const ByteSpan bytes = std::as_bytes(std::span(values));
  const auto has_sketch = [&](Dims shape, Dims strides, int64_t offset) {
    return compute_stats(*make_view(DType::Float32, shape, strides, bytes, offset))
        .sketch.has_value();
  };
  EXPECT_TRUE(has_sketch({2, 3}, {3, 1}, 0));
  EXPECT_TRUE(has_sketch({1, 2, 3}, {0, 3, 1}, 0));  // one of a kind has no order
  EXPECT_FALSE(has_sketch({3, 2}, {1, 3}, 0));       // transposed
  EXPECT_FALSE(has_sketch({6}, {-1}, 5));            // flipped
  EXPECT_FALSE(has_sketch({4, 6}, {0, 1}, 0));       // expanded
  EXPECT_FALSE(compute_stats(view_of(DType::Float8E4M3FN, std::vector<uint8_t>{1, 2})).sketch);
  EXPECT_FALSE(compute_stats(view_of(DType::Float64, std::vector<double>{1e300})).sketch);
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
  TensorStats straight = compute_stats(*make_view(DType::Float32, {100, 300}, bytes));
  straight.sketch.reset();  // of the matrix as it is
  EXPECT_EQ(straight, compute_stats(*make_view(DType::Float32, {300, 100}, {1, 300}, bytes, 0)));
  EXPECT_EQ(straight, compute_stats(*make_view(DType::Float32, {100, 300}, {-300, -1}, bytes,
                                               100 * 300 - 1)));
}

}  // namespace
}  // namespace assay::stats
