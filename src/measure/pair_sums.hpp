// SPDX-License-Identifier: Apache-2.0
// The sums and maxima that error metrics are made of, over values that are finite on both sides.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "measure/metrics.hpp"

namespace assay::measure {

/// What the error metrics need of positions where both sides are finite.
struct PairSums {
  double golden = 0;  // sums of values
  double mine = 0;
  double golden_squared = 0;  // sums of squares and products
  double mine_squared = 0;
  double product = 0;
  double difference_squared = 0;
  double absolute = 0;  // sum of absolute errors
  double relative = 0;  // sum of relative errors
  double max_absolute = 0;
  double max_relative = 0;
  double golden_min = std::numeric_limits<double>::infinity();
  double golden_max = -std::numeric_limits<double>::infinity();
  double mine_min = std::numeric_limits<double>::infinity();
  double mine_max = -std::numeric_limits<double>::infinity();
  int64_t count = 0;
  int64_t masked = 0;  // |golden| <= kRelativeErrorFloor

  void merge(const PairSums& next) {
    golden += next.golden;
    mine += next.mine;
    golden_squared += next.golden_squared;
    mine_squared += next.mine_squared;
    product += next.product;
    difference_squared += next.difference_squared;
    absolute += next.absolute;
    relative += next.relative;
    max_absolute = std::max(max_absolute, next.max_absolute);
    max_relative = std::max(max_relative, next.max_relative);
    golden_min = std::min(golden_min, next.golden_min);
    golden_max = std::max(golden_max, next.golden_max);
    mine_min = std::min(mine_min, next.mine_min);
    mine_max = std::max(mine_max, next.mine_max);
    count += next.count;
    masked += next.masked;
  }
};

/// product / (|golden| |mine|): 1 when both are all zero, 0 when one is.
[[nodiscard]] double cosine_of(double golden_squared, double mine_squared, double product);
/// torch.cosine_similarity's: norms of at least 1e-8, ten decimals; 1 when both are all zero.
[[nodiscard]] double cosine_like_torch(const PairSums& sums);
/// |mine - golden| / |golden|; 0 / 0 = 0.
[[nodiscard]] double distance_of(double golden_squared, double difference_squared);

/// Over all places that are finite on both sides. Of equally many values each.
[[nodiscard]] PairSums sums_of(const TensorView& golden, const TensorView& mine);

[[nodiscard]] inline double to_float32(double value) {
  return static_cast<double>(static_cast<float>(value));
}

/// Both errors of one position. Under Float32 every operation is rounded to float32: the double
/// result of +, -, / of two floats, rounded again, is the float32 result.
struct PairErrors {
  double absolute;
  double relative;
};
struct PairValues {
  const double* golden;
  const double* mine;
  const double* difference;
  int64_t count;
};
/// The first position, finite on both sides, of which this error is `largest`; -1: none.
[[nodiscard]] int64_t find_error(MetricRules rules, const PairValues& pairs,
                                 double PairErrors::* error, double largest);

/// difference   mine - golden, as the rules round it
[[nodiscard]] PairSums sum_pairs(MetricRules rules, const double* golden, const double* mine,
                                 const double* difference, int64_t count);

/// Bytes of a pair, of any alignment, and the arrays that its values are stored in.
struct PairRead {
  const std::byte* golden_bytes;
  const std::byte* mine_bytes;
  int64_t count;
  double* golden;
  double* mine;
  double* difference;
};
/// Sums under MetricRules::Corrected of elements that are stored as doubles on the way, with their
/// differences. Same bits as widening, subtract() and sum_pairs().
using ReadPairs = PairSums (*)(const PairRead&);
/// The kernel for two types of elements; null when there is none.
[[nodiscard]] ReadPairs pair_reader(DType golden, DType mine);

/// out = mine - golden
void subtract(const double* golden, const double* mine, int64_t count, double* out);
void round_to_float32(double* values, int64_t count);

}  // namespace assay::measure
