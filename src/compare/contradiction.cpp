// SPDX-License-Identifier: Apache-2.0
// Each test asks for less than two halves of one variance can explain: the correlation of the
// values where they were compared, else extremes in standard deviations and sketches of the
// statistics.
#include "compare/contradiction.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace assay::compare {
namespace {

/// Four standard deviations of what chance gives unrelated tensors stay below the limit from here
/// on.
constexpr int64_t kFewValues = 32;
constexpr double kExplained = 0.5;
/// Share of the sum of squares below which the variance is a difference of equal numbers.
constexpr double kConstant = 1e-9;
constexpr double kSketchCosine = 0.5;
/// So many standard deviations may noise of half the variance take from an extreme.
constexpr double kNoiseReach = 4;

double variance_sum(const stats::TensorStats& stats) {
  const auto count = static_cast<double>(stats.finite_count());
  return stats.l2_norm * stats.l2_norm - count * stats.mean * stats.mean;
}

bool is_constant(const stats::TensorStats& stats) {
  return !(variance_sum(stats) > kConstant * stats.l2_norm * stats.l2_norm);
}

/// How far the extremes are from the mean, in standard deviations.
struct Extremes {
  double above = 0, below = 0;
};
Extremes extremes_of(const stats::TensorStats& stats) {
  const double deviation =
      std::sqrt(variance_sum(stats) / static_cast<double>(stats.finite_count()));
  return {(stats.max - stats.mean) / deviation, (stats.mean - stats.min) / deviation};
}

/// Each side explains half of the other, so neither may lack an extreme that the other has.
bool fits(double golden, double mine) {
  const double smaller = std::min(golden, mine);
  return smaller >= (std::max(golden, mine) - kNoiseReach) * std::sqrt(kExplained);
}

bool extremes_contradict(const stats::TensorStats& golden, const stats::TensorStats& mine) {
  const Extremes g = extremes_of(golden);
  const Extremes m = extremes_of(mine);
  const bool same_sign = fits(g.above, m.above) && fits(g.below, m.below);
  const bool turned = fits(g.above, m.below) && fits(g.below, m.above);
  return !same_sign && !turned;
}

/// The sketch of `count` ones: times the mean it is what the mean adds to a sketch.
std::array<double, stats::kSketchBuckets> sketch_of_ones(int64_t count) {
  std::array<double, stats::kSketchBuckets> sums{};
  constexpr auto kBuckets = static_cast<int64_t>(stats::kSketchBuckets);
  constexpr std::array<int, 4> kPlaces = {1, -1, 1, 1};  // signs of the sixteens in a group
  for (int64_t first = 0; first < count; first += stats::kSketchGroup) {
    const uint64_t signs = stats::sketch_signs(static_cast<uint64_t>(first / stats::kSketchGroup));
    for (int64_t i = first; i < std::min(count, first + stats::kSketchGroup); ++i) {
      const auto bucket = static_cast<size_t>(i % kBuckets);
      const int sign = (signs >> bucket & 1U) != 0 ? -1 : 1;
      sums[bucket] += sign * kPlaces[static_cast<size_t>((i - first) / kBuckets)];
    }
  }
  return sums;
}

bool sketches_contradict(const stats::TensorStats& golden, const stats::TensorStats& mine) {
  if (!golden.sketch || !mine.sketch) return false;
  const auto ones = sketch_of_ones(golden.count);
  double product = 0, of_golden = 0, of_mine = 0;
  for (size_t i = 0; i < ones.size(); ++i) {
    const double g = (*golden.sketch)[i] - golden.mean * ones[i];
    const double m = (*mine.sketch)[i] - mine.mean * ones[i];
    product += g * m;
    of_golden += g * g;
    of_mine += m * m;
  }
  return std::abs(product) < kSketchCosine * std::sqrt(of_golden * of_mine);
}

}  // namespace

double correlation(const measure::PairNumbers& numbers, const measure::SummaryValues& golden,
                   const measure::SummaryValues& mine) {
  if (numbers.state != measure::PairState::Compared ||
      numbers.compared_count != numbers.value_count)
    return NAN;
  const auto count = static_cast<double>(numbers.value_count);
  const double golden_squares = golden.l2_norm * golden.l2_norm;
  const double mine_squares = mine.l2_norm * mine.l2_norm;
  const double golden_variance = golden_squares - count * golden.mean * golden.mean;
  const double mine_variance = mine_squares - count * mine.mean * mine.mean;
  if (!(golden_variance > kConstant * golden_squares) ||
      !(mine_variance > kConstant * mine_squares))
    return NAN;
  const double product = numbers.cosine_similarity * golden.l2_norm * mine.l2_norm;
  return (product - count * golden.mean * mine.mean) / std::sqrt(golden_variance * mine_variance);
}

bool contradicts_pair(const measure::PairNumbers& numbers, const measure::SummaryValues& golden,
                      const measure::SummaryValues& mine) {
  if (numbers.value_count < kFewValues) return false;
  const double r = correlation(numbers, golden, mine);
  return r * r < kExplained;
}

bool contradicts_pair(const stats::TensorStats& golden, const stats::TensorStats& mine) {
  if (golden.count != mine.count || golden.count < kFewValues || golden.has_non_finite() ||
      mine.has_non_finite() || is_constant(golden) || is_constant(mine))
    return false;
  return extremes_contradict(golden, mine) || sketches_contradict(golden, mine);
}

}  // namespace assay::compare
