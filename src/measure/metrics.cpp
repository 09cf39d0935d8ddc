// SPDX-License-Identifier: Apache-2.0
// From the sums over a pair (pair_chunks.hpp) to its metrics.
#include "measure/metrics.hpp"

#include <algorithm>
#include <cmath>

#include "base/interruption.hpp"
#include "measure/pair_chunks.hpp"
#include "stats/whole_tensor.hpp"

namespace assay::measure {
namespace {

using stats::BlockStats;
using stats::TensorStats;

/// Values beyond this, or below its inverse, have squares that leave the range of a double.
constexpr double kSafeMagnitude = 1e140;

bool needs_scaling(double min, double max) {
  if (!(min <= max)) return false;
  const double largest = std::max(std::fabs(min), std::fabs(max));
  return largest > kSafeMagnitude || (largest != 0 && largest < 1 / kSafeMagnitude);
}
double scale_for(double min, double max) {
  const double largest = std::max(std::fabs(min), std::fabs(max));
  return largest == 0 ? 1 : std::ldexp(1.0, std::clamp(-std::ilogb(largest), -1000, 1000));
}

/// The squares and products again, each side brought near 1 by a power of two: cosine and distance
/// do not change.
struct ScaledSums {
  double golden_squared = 0;
  double mine_squared = 0;
  double product = 0;
  double difference_squared = 0;  // both sides by the scale of the larger
  double distance_factor = 1;     // what the two scales do to the distance
};

ScaledSums sum_scaled(const PairSource& source, const PairSums& sums) {
  const double golden_scale = scale_for(sums.golden_min, sums.golden_max);
  const double mine_scale = scale_for(sums.mine_min, sums.mine_max);
  const double common = std::min(golden_scale, mine_scale);
  ScaledSums out;
  out.distance_factor = golden_scale / common;
  Block block;
  for_each_block(source, block, [&](int64_t) {
    keep_finite_pairs(block, [](int64_t, double, double) {});
    for (int64_t i = 0; i < block.count; ++i) {
      const double golden = block.golden[i];
      const double mine = block.mine[i];
      const double difference = mine * common - golden * common;
      out.golden_squared += golden * golden_scale * (golden * golden_scale);
      out.mine_squared += mine * mine_scale * (mine * mine_scale);
      out.product += golden * golden_scale * (mine * mine_scale);
      out.difference_squared += difference * difference;
    }
  });
  return out;
}

TensorStats side_stats(double sum, double squared, double min, double max, int64_t count,
                       BlockStats alone) {
  BlockStats all;
  all.sum = sum;
  all.sum_of_squares = squared;
  all.min = min;
  all.max = max;
  const int64_t alone_not_finite =
      alone.nan_count + alone.positive_inf_count + alone.negative_inf_count;
  all.merge(alone);
  TensorStats out;
  out.count = count;
  out.nan_count = alone.nan_count;
  out.positive_inf_count = alone.positive_inf_count;
  out.negative_inf_count = alone.negative_inf_count;
  if (count == alone_not_finite) return out;
  out.min = all.min;
  out.max = all.max;
  out.mean = all.sum / static_cast<double>(out.finite_count());
  out.l2_norm = std::sqrt(all.sum_of_squares);
  return out;
}

TensorStats rounded_to_float32(const TensorStats& stats) {
  TensorStats out = stats.with_non_finite();
  out.mean = to_float32(to_float32(out.mean * static_cast<double>(out.count)) /
                        static_cast<double>(out.count));
  out.l2_norm = to_float32(out.l2_norm);
  return out;
}

/// The numbers of a program in float32, from fp64 sums. Its float32 sums depend on the order of a
/// library's additions from the seventh digit on; divergence and distance are given as the exact
/// sums make them.
void finish_float32(const PairSums& sums, double divergence, PairMetrics& out) {
  const auto count = static_cast<double>(sums.count);
  const double golden_norm = std::sqrt(sums.golden_squared);
  out.cosine_similarity = cosine_like_torch(sums);
  out.max_relative_error = sums.max_relative;
  out.mean_relative_error = to_float32(to_float32(sums.relative) / count);
  out.max_absolute_error = sums.max_absolute;
  out.mean_absolute_error = to_float32(to_float32(sums.absolute) / count);
  out.kl_divergence = divergence;
  const float difference_squared = static_cast<float>(sums.difference_squared);
  const float golden_squared = static_cast<float>(sums.golden_squared);
  if (to_float32(golden_norm) <= kRelativeErrorFloor) {
    out.relative_euclidean_distance = 0;
  } else if (std::isinf(difference_squared) || std::isinf(golden_squared)) {
    // Sums that overflowed in float32; infinity over infinity is NaN, which the original printed as
    // an empty cell.
    out.relative_euclidean_distance =
        static_cast<double>(std::sqrt(difference_squared / golden_squared));
  } else {
    out.relative_euclidean_distance = std::sqrt(sums.difference_squared / sums.golden_squared);
  }
}

void finish_corrected(const PairSource& source, PairAccumulator& total, PairMetrics& out) {
  const PairSums& sums = total.sums;
  const auto count = static_cast<double>(sums.count);
  out.max_relative_error = sums.max_relative;
  out.mean_relative_error = sums.relative / count;
  out.max_absolute_error = sums.max_absolute;
  out.mean_absolute_error = sums.absolute / count;
  out.kl_divergence = total.whole_divergence();
  if (total.row_count != 0 && !std::isnan(out.kl_divergence)) {
    out.kl_row_mean = total.row_kl_sum / static_cast<double>(total.row_count);
    out.kl_row_max = total.row_kl_max;
  }
  if (needs_scaling(sums.golden_min, sums.golden_max) ||
      needs_scaling(sums.mine_min, sums.mine_max)) {
    const ScaledSums scaled = sum_scaled(source, sums);
    out.cosine_similarity = cosine_of(scaled.golden_squared, scaled.mine_squared, scaled.product);
    out.relative_euclidean_distance =
        distance_of(scaled.golden_squared, scaled.difference_squared) * scaled.distance_factor;
  } else {
    out.cosine_similarity = cosine_of(sums.golden_squared, sums.mine_squared, sums.product);
    out.relative_euclidean_distance = distance_of(sums.golden_squared, sums.difference_squared);
  }
}

/// Sides whose statistics are not those of the pair's values: absolute values of complex numbers,
/// Bits types.
bool is_measured_apart(const PairSource& source, DType dtype) {
  return source.pads_imaginary || is_complex(dtype) || info(dtype).kind == DTypeKind::Bits;
}

void set_side_stats(const PairSource& source, const PairAccumulator& total, PairMetrics& out) {
  const PairSums& sums = total.sums;
  out.golden = side_stats(sums.golden, sums.golden_squared, sums.golden_min, sums.golden_max,
                          out.value_count, total.golden_alone);
  out.mine = side_stats(sums.mine, sums.mine_squared, sums.mine_min, sums.mine_max, out.value_count,
                        total.mine_alone);
  if (source.rules == MetricRules::Float32) {
    out.golden = rounded_to_float32(out.golden);
    out.mine = rounded_to_float32(out.mine);
    return;
  }
  // Absolute values of complex numbers, and sums that leave the range of a double, are not among
  // the pair's sums.
  if (is_measured_apart(source, source.golden->dtype) ||
      needs_scaling(out.golden.min, out.golden.max)) {
    out.golden = stats::statistics_of(*source.golden);
  }
  if (is_measured_apart(source, source.mine->dtype) || needs_scaling(out.mine.min, out.mine.max)) {
    out.mine = stats::statistics_of(*source.mine);
  }
}

void set_patterns(const PairAccumulator& total, PairMetrics& out) {
  out.compared_count = total.sums.count;
  out.masked_count = total.sums.masked;
  static_cast<Patterns&>(out) = total.patterns;
}

}  // namespace

PairMetrics compare_tensors(const TensorView& golden, const TensorView& mine,
                            const MetricOptions& options) {
  PairMetrics out;
  PairSource source = make_source(golden, mine, options.rules);
  const int64_t golden_count = value_count_of(source, golden);
  const int64_t mine_count = value_count_of(source, mine);
  out.value_count = golden_count;
  if (golden_count != mine_count) {
    out.state = PairState::CountMismatch;
    out.golden = stats::statistics_of(golden);
    out.mine = stats::statistics_of(mine);
    return out;
  }
  if (golden_count == 0) return out;
  source.value_count = golden_count;
  if (options.pooled != nullptr)
    *options.pooled = PooledErrors(make_grid(golden.shape, golden_count / golden.element_count()));
  // Float32 knows no rows; without them nothing needs to be cut at their ends.
  const int64_t row = options.rules == MetricRules::Float32 || !options.kl_divergence
                          ? golden_count
                          : row_values_of(golden, golden_count);
  const Cuts cuts(golden_count, row);
  // On the stack, as everything of this size here: between the small parts of reports that stay,
  // blocks of the heap that come and go leave holes of their size.
  PairAccumulator total(cuts, options.pooled);
  accumulate(source, cuts, options, total);

  set_patterns(total, out);
  set_side_stats(source, total, out);
  const bool as_float32 = options.rules == MetricRules::Float32;
  if (out.compared_count == 0 || (as_float32 && out.compared_count != out.value_count)) {
    out.state = PairState::NonFinite;
    return out;
  }
  out.state = PairState::Compared;
  const WorstPositions worst = find_worst(source, total);
  out.worst_absolute_index = worst.absolute;
  out.worst_relative_index = worst.relative;
  if (as_float32) {
    finish_float32(total.sums, total.whole_divergence(), out);
  } else {
    finish_corrected(source, total, out);
  }
  return out;
}

double relative_l2(const TensorView& golden, const TensorView& mine) {
  if (!(golden.shape == mine.shape) || !is_float(golden.dtype) || !is_float(mine.dtype)) return NAN;
  const PairSums sums = sums_of(golden, mine);
  if (sums.count != golden.element_count()) return NAN;
  return distance_of(sums.golden_squared, sums.difference_squared);
}

std::string fail_reason(const PairMetrics& metrics) {
  std::string reason;
  const auto add = [&](std::string_view sentence) {
    reason += (reason.empty() ? "" : " ") + std::string(sentence);
  };
  if (metrics.state == PairState::CountMismatch) add("data shape doesn't match.");
  if (metrics.golden.has_non_finite()) add("golden_data includes NAN or inf.");
  if (metrics.mine.has_non_finite()) add("my_data includes NAN or inf.");
  return reason;
}

namespace {

SummaryError summary_error(double golden, double mine) {
  if (std::isnan(golden) || std::isnan(mine)) return {};
  if (golden == mine) return {0, 0};
  const double absolute = std::fabs(mine - golden);
  return {absolute, absolute / std::max(std::fabs(golden), kRelativeErrorFloor)};
}

}  // namespace

SummaryErrors compare_summaries(const SummaryValues& golden, const SummaryValues& mine) {
  return {summary_error(golden.max, mine.max), summary_error(golden.min, mine.min),
          summary_error(golden.mean, mine.mean), summary_error(golden.l2_norm, mine.l2_norm)};
}

}  // namespace assay::measure
