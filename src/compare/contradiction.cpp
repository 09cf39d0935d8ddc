// SPDX-License-Identifier: Apache-2.0
#include "compare/contradiction.hpp"

#include <cmath>

namespace assay::compare {
namespace {

/// Four standard deviations of what chance gives unrelated tensors stay below the limit from here on.
constexpr int64_t kFewValues = 32;
constexpr double kExplained = 0.5;
/// Share of the sum of squares below which the variance is a difference of equal numbers.
constexpr double kConstant = 1e-9;

}  // namespace

double correlation(const PairMetrics& metrics) {
  const stats::TensorStats& golden = metrics.golden;
  const stats::TensorStats& mine = metrics.mine;
  if (metrics.state != PairState::Compared || golden.has_non_finite() || mine.has_non_finite())
    return NAN;
  const auto count = static_cast<double>(metrics.value_count);
  const double golden_squares = golden.l2_norm * golden.l2_norm;
  const double mine_squares = mine.l2_norm * mine.l2_norm;
  const double golden_variance = golden_squares - count * golden.mean * golden.mean;
  const double mine_variance = mine_squares - count * mine.mean * mine.mean;
  if (!(golden_variance > kConstant * golden_squares) ||
      !(mine_variance > kConstant * mine_squares))
    return NAN;
  const double product = metrics.cosine_similarity * golden.l2_norm * mine.l2_norm;
  return (product - count * golden.mean * mine.mean) / std::sqrt(golden_variance * mine_variance);
}

bool contradicts_pair(const PairMetrics& metrics) {
  if (metrics.value_count < kFewValues) return false;
  const double r = correlation(metrics);
  return r * r < kExplained;
}

}  // namespace assay::compare
