// SPDX-License-Identifier: Apache-2.0
// The kernels of the CUDA path as plain C++, thread after thread: their sums have the bits of
// compute_stats(). tests/device holds the compiled ones against the same.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "stats/block_stats.hpp"
#include "stats/tensor_stats.hpp"

#define ASSAY_ON_HOST
#include "capture/torch/device_statistics.cu"

namespace assay::capture {
namespace {

template <typename Type>
stats::TensorStats as_on_the_device(std::span<const typename Type::Raw> elements, DType dtype) {
  const auto count = static_cast<int64_t>(elements.size());
  const int64_t block_elements = stats::block_elements(dtype);
  const int64_t blocks = (count + block_elements - 1) / block_elements;
  std::vector<double> rows(static_cast<size_t>(blocks * kAssayRow));
  for (int64_t block = 0; block < blocks; ++block) {
    AssayChain<Type> chains[kAssayBuckets];
    const int64_t first = block * block_elements;
    for (int bucket = 0; bucket < kAssayBuckets; ++bucket) {
      assay_run_chain<Type>(elements.data() + first,
                            static_cast<int>(std::min(count - first, block_elements)),
                            static_cast<uint64_t>(first / kAssayGroup), bucket, &chains[bucket]);
    }
    double* row = rows.data() + block * kAssayRow;
    for (int part = 0; part < kAssayParts; ++part) assay_join_chains<Type>(chains, part, row);
    for (int bucket = 0; bucket < kAssayBuckets; ++bucket)
      row[8 + bucket] = assay_sketch_of<Type>(chains[bucket]);
  }
  const int64_t per_chunk = assay_blocks_per_chunk(blocks);
  double sums[kAssayRow];
  for (int column = 0; column < kAssayRow; ++column) {
    int64_t chunks = 0;
    for (int64_t first = 0; first < blocks; first += per_chunk, ++chunks) {
      double* chunk = rows.data() + first * kAssayRow;
      chunk[column] = assay_merge_column(chunk, std::min(per_chunk, blocks - first), 1, column);
    }
    sums[column] = assay_merge_column(rows.data(), chunks, per_chunk, column);
  }
  stats::BlockStats merged;
  merged.sum = sums[0];
  merged.sum_of_squares = sums[1];
  merged.min = sums[2];
  merged.max = sums[3];
  merged.nan_count = static_cast<int64_t>(sums[4]);
  merged.positive_inf_count = static_cast<int64_t>(sums[5]);
  merged.negative_inf_count = static_cast<int64_t>(sums[6]);
  std::copy_n(sums + 8, stats::kSketchBuckets, merged.sketch);
  return stats::statistics_of_sums(merged, dtype, count, 1, true);
}

uint64_t bits(double value) { return std::bit_cast<uint64_t>(value); }

template <typename Type>
void expect_the_host_s_bits(std::span<const typename Type::Raw> elements, DType dtype) {
  const auto view =
      make_view(dtype, Dims{static_cast<int64_t>(elements.size())}, std::as_bytes(elements));
  ASSERT_TRUE(view);
  const stats::TensorStats expected = stats::compute_stats(*view);
  const stats::TensorStats actual = as_on_the_device<Type>(elements, dtype);
  ASSERT_EQ(actual.count, expected.count);
  ASSERT_EQ(actual.nan_count, expected.nan_count);
  ASSERT_EQ(actual.positive_inf_count, expected.positive_inf_count);
  ASSERT_EQ(actual.negative_inf_count, expected.negative_inf_count);
  ASSERT_EQ(bits(actual.min), bits(expected.min)) << elements.size();
  ASSERT_EQ(bits(actual.max), bits(expected.max)) << elements.size();
  ASSERT_EQ(bits(actual.mean), bits(expected.mean)) << elements.size();
  ASSERT_EQ(bits(actual.l2_norm), bits(expected.l2_norm)) << elements.size();
  ASSERT_EQ(actual.sketch, expected.sketch) << elements.size();
}

// Around every border of sixteens, groups and blocks; chunks of more than one block are below.
const std::vector<size_t> kCounts = {1,  2,   15,  16,  17,   31,   33,   48,   63,   64,   65,
                                     97, 100, 511, 513, 4096, 8191, 8192, 8193, 9000, 70000};

template <typename Type, typename Draw>
void check_all_counts(DType dtype, Draw draw) {
  std::mt19937_64 random(27);
  std::vector<typename Type::Raw> elements(kCounts.back());
  for (auto& element : elements) element = draw(random);
  for (const size_t count : kCounts)
    expect_the_host_s_bits<Type>(std::span(elements).first(count), dtype);
}

// Any bits: NaN, infinities, subnormals, both zeros, sizes that differ by any power of two.
template <typename Type>
void check_any_bits(DType dtype) {
  check_all_counts<Type>(dtype,
                         [](auto& random) { return static_cast<typename Type::Raw>(random()); });
}

TEST(DeviceStatistics, HaveTheBitsOfTheHostForEveryType) {
  check_any_bits<AssayFloat32>(DType::Float32);
  check_any_bits<AssayBFloat16>(DType::BFloat16);
  check_any_bits<AssayFloat16>(DType::Float16);
  check_any_bits<AssayInteger<int64_t>>(DType::Int64);
  check_any_bits<AssayInteger<uint64_t>>(DType::UInt64);
  check_any_bits<AssayInteger<int32_t>>(DType::Int32);
  check_any_bits<AssayInteger<uint32_t>>(DType::UInt32);
  check_any_bits<AssayInteger<int16_t>>(DType::Int16);
  check_any_bits<AssayInteger<uint16_t>>(DType::UInt16);
  check_any_bits<AssayInteger<int8_t>>(DType::Int8);
  check_any_bits<AssayInteger<uint8_t>>(DType::UInt8);
  check_any_bits<AssayBool>(DType::Bool);
}

TEST(DeviceStatistics, HaveTheBitsOfTheHostForFiniteValues) {
  const auto normal = [](auto& random) {
    return std::bit_cast<uint32_t>(std::normal_distribution<float>(0.1f, 3)(random));
  };
  check_all_counts<AssayFloat32>(DType::Float32, normal);
  check_all_counts<AssayBFloat16>(
      DType::BFloat16, [&](auto& random) { return static_cast<uint16_t>(normal(random) >> 16); });
}

// min and max of tensors that are zeros of both signs: which one is kept is the host's choice.
TEST(DeviceStatistics, KeepTheSignOfZero) {
  const auto zero = [](auto& random) { return static_cast<uint16_t>((random() & 1u) << 15); };
  check_all_counts<AssayBFloat16>(DType::BFloat16, zero);
  check_all_counts<AssayFloat16>(DType::Float16, zero);
  check_all_counts<AssayFloat32>(
      DType::Float32, [](auto& random) { return static_cast<uint32_t>((random() & 1u) << 31); });
}

TEST(DeviceStatistics, JoinBlocksInChunksAsTheHostDoes) {
  std::mt19937_64 random(27);
  std::vector<uint16_t> elements(300 * 8192 + 77);  // two blocks a chunk, the last one alone
  for (auto& element : elements) element = static_cast<uint16_t>(random() & 0xBFFFu);  // finite
  expect_the_host_s_bits<AssayBFloat16>(elements, DType::BFloat16);
}

TEST(DeviceStatistics, AreThoseOfNothingWithoutFiniteValues) {
  const std::vector<uint16_t> infinities(100, 0xFF80);
  expect_the_host_s_bits<AssayBFloat16>(infinities, DType::BFloat16);
}

}  // namespace
}  // namespace assay::capture
