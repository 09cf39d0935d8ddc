// SPDX-License-Identifier: Apache-2.0
// A task sums one block of 64 columns along the dimension of w that is contiguous: column by column
// into three running sums, or row by row as three dot products.
//   docs/localisation.md, "Golden by sums and in parts"
#include "reference/products/column_sums.hpp"

#include <algorithm>
#include <array>

#include "base/simd.hpp"
#include "base/thread_pool.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference {
namespace {

using simd::f64x8;
using simd::load;
using simd::store;

constexpr int64_t kLanes = 8;
// Values of a column that are read at a time: with their three sums they stay in the first cache.
constexpr int64_t kDepth = 1024;
constexpr int64_t kRows = 64;  // of a block of columns that are read at a time

using Factors = std::array<std::array<double, kColumnBlock>, kColumnDraws>;
using Sums = std::array<double*, kColumnDraws>;

[[gnu::always_inline]] inline f64x8 absolute(f64x8 values) { return values < 0 ? -values : values; }

/// Part of one column, added to the sums of its block. Lengths are multiples of kLanes.
ASSAY_CLONES void add_column(const double* values, int64_t count, double first, double second,
                             double* first_sums, double* second_sums, double* sizes) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const f64x8 value = load<f64x8>(values + i);
    store(first_sums + i, load<f64x8>(first_sums + i) + value * first);
    store(second_sums + i, load<f64x8>(second_sums + i) + value * second);
    store(sizes + i, load<f64x8>(sizes + i) + absolute(value));
  }
}

/// The three sums of one row of a block; behind its last column values and factors are zero.
ASSAY_CLONES void add_row(const double* values, const double* first, const double* second,
                          double* sums) {
  f64x8 with_first{};
  f64x8 with_second{};
  f64x8 size{};
  for (int64_t j = 0; j < kColumnBlock; j += kLanes) {
    const f64x8 value = load<f64x8>(values + j);
    with_first += value * load<f64x8>(first + j);
    with_second += value * load<f64x8>(second + j);
    size += absolute(value);
  }
  sums[0] = sums[1] = sums[2] = 0;
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    sums[0] += with_first[lane];
    sums[1] += with_second[lane];
    sums[2] += size[lane];
  }
}

/// Columns lie in one piece each: section by section of their length.
void sum_columns(const TensorView& columns, const Factors& factors, const Sums& weighted,
                 double* sizes) {
  const int64_t count = columns.shape[0];
  const int64_t k = columns.shape[1];
  double values[kDepth];
  double sums[kColumnDraws + 1][kDepth];
  for (int64_t first = 0; first < k; first += kDepth) {
    const int64_t depth = std::min(kDepth, k - first);
    const int64_t padded = (depth + kLanes - 1) / kLanes * kLanes;
    std::fill(values + depth, values + padded, 0.0);
    for (auto& sum : sums) std::fill_n(sum, padded, 0.0);
    for (int64_t j = 0; j < count; ++j) {
      read_values(columns, j * k + first, depth,
                  std::span(values).first(static_cast<size_t>(depth)));
      const auto at = static_cast<size_t>(j);
      add_column(values, padded, factors[0][at], factors[1][at], sums[0], sums[1], sums[2]);
    }
    std::copy_n(sums[0], depth, weighted[0] + first);
    std::copy_n(sums[1], depth, weighted[1] + first);
    std::copy_n(sums[2], depth, sizes + first);
  }
}

/// Rows of the block lie in one piece each, or nothing does.
void sum_rows(const TensorView& block, const Factors& factors, const Sums& weighted,
              double* sizes) {
  const int64_t k = block.shape[0];
  const int64_t count = block.shape[1];
  std::vector<double> values(static_cast<size_t>(kRows * count) + kColumnBlock);
  double row[kColumnBlock] = {};
  for (int64_t first = 0; first < k; first += kRows) {
    const int64_t rows = std::min(kRows, k - first);
    read_values(block, first * count, rows * count,
                std::span(values).first(static_cast<size_t>(rows * count)));
    for (int64_t i = 0; i < rows; ++i) {
      const double* source = values.data() + i * count;
      if (count < kColumnBlock) {
        std::copy_n(source, count, row);
        source = row;
      }
      double sums[kColumnDraws + 1];
      add_row(source, factors[0].data(), factors[1].data(), sums);
      weighted[0][first + i] = sums[0];
      weighted[1][first + i] = sums[1];
      sizes[first + i] = sums[2];
    }
  }
}

}  // namespace

double column_factor(int draw, int64_t j) {
  // The finaliser of SplitMix64: sign and size from different bits.
  uint64_t x = (static_cast<uint64_t>(j) * kColumnDraws + static_cast<uint64_t>(draw) + 1) *
               0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  const double size = 0.75 + 0.5 * static_cast<double>(x >> 12) * 0x1p-52;
  return (x & 1) != 0 ? -size : size;
}

ColumnSums column_sums(const TensorView& w, int jobs) {
  const int64_t k = w.shape[0];
  const int64_t n = w.shape[1];
  const int64_t blocks = column_blocks(n);
  ColumnSums sums{Wide(Dims{kColumnDraws * blocks, k}), Wide(Dims{blocks, k})};
  const bool columns_first = w.strides[1] != 1 && w.strides[0] == 1;
  parallel_for(static_cast<size_t>(blocks), resolve_job_count(jobs), [&](size_t index) {
    const auto block = static_cast<int64_t>(index);
    const int64_t first = block * kColumnBlock;
    const int64_t count = std::min(kColumnBlock, n - first);
    Factors factors{};
    Sums weighted{};
    for (int draw = 0; draw < kColumnDraws; ++draw) {
      const auto d = static_cast<size_t>(draw);
      for (int64_t j = 0; j < count; ++j)
        factors[d][static_cast<size_t>(j)] = column_factor(draw, first + j);
      weighted[d] = sums.weighted.data() + (draw * blocks + block) * k;
    }
    double* sizes = sums.sizes.data() + block * k;
    const TensorView columns = section(w, 1, first, count);
    if (columns_first)
      sum_columns(transposed(columns), factors, weighted, sizes);
    else
      sum_rows(columns, factors, weighted, sizes);
  });
  return sums;
}

}  // namespace assay::reference
