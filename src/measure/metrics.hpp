// SPDX-License-Identifier: Apache-2.0
// Every number that compares two tensors, in one pass over both.
//   Formulas and edge cases: docs/metrics.md
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string>

#include "stats/tensor_stats.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::measure {

/// Relative errors divide by max(|golden|, this): for |golden| above it they are the ones the
/// original printed, below it they stay finite and show that golden is practically zero. 2^-23, the
/// float32 epsilon, as in Ascend/msit: components/utils/cmp_algorithm.py.
inline constexpr double kRelativeErrorFloor = 0x1p-23;

enum class MetricRules : uint8_t {
  /// Errors of every position where both sides are finite, in fp64; nothing masked, nothing
  /// rounded.
  Corrected,
  /// What a program printed that computed in float32: both sides as float32, positions with
  /// |golden| <= 2^-23 masked, no metrics at all when a side has NaN or infinities.
  Float32,
};

struct PooledErrors;

struct MetricOptions {
  MetricRules rules = MetricRules::Corrected;
  bool kl_divergence = true;  // two exponentials per value; the three kl fields stay NaN without
  int jobs = 1;               // threads; <= 0: one per core. Never changes the result.
  /// Where not null: becomes the errors by place of golden, of a pair with as many values.
  PooledErrors* pooled = nullptr;
};

enum class PairState : uint8_t {
  Compared,
  Empty,          // both sides have no values: passed, no metrics
  CountMismatch,  // the sides have different numbers of values: no metrics, statistics only
  NonFinite,      // Corrected: no position is finite on both sides. Float32: any NaN or infinity.
};

/// Positions that are not compared, and why.
struct Patterns {
  int64_t nan_only_in_golden = 0;  // mine is a number or an infinity there
  int64_t nan_only_in_mine = 0;
  int64_t nan_in_both = 0;
  int64_t inf_only_in_golden = 0;  // mine is finite there
  int64_t inf_only_in_mine = 0;
  int64_t inf_in_both = 0;          // whatever the signs
  int64_t inf_sign_mismatches = 0;  // of inf_in_both

  bool operator==(const Patterns&) const = default;
  void merge(const Patterns& next) {
    nan_only_in_golden += next.nan_only_in_golden;
    nan_only_in_mine += next.nan_only_in_mine;
    nan_in_both += next.nan_in_both;
    inf_only_in_golden += next.inf_only_in_golden;
    inf_only_in_mine += next.inf_only_in_mine;
    inf_in_both += next.inf_in_both;
    inf_sign_mismatches += next.inf_sign_mismatches;
  }

  /// True when NaN or infinities stand at different places, or infinities differ in sign.
  [[nodiscard]] bool has_pattern_mismatch() const {
    return nan_only_in_golden + nan_only_in_mine + inf_only_in_golden + inf_only_in_mine +
               inf_sign_mismatches !=
           0;
  }
  /// Counts a position where at least one side is not finite.
  void add(double golden, double mine) {
    const bool golden_nan = std::isnan(golden);
    const bool mine_nan = std::isnan(mine);
    if (golden_nan || mine_nan) {
      ++(golden_nan && mine_nan ? nan_in_both : golden_nan ? nan_only_in_golden : nan_only_in_mine);
      return;
    }
    const bool golden_inf = std::isinf(golden);
    const bool mine_inf = std::isinf(mine);
    if (golden_inf && mine_inf) {
      ++inf_in_both;
      if (golden != mine) ++inf_sign_mismatches;
    } else {
      ++(golden_inf ? inf_only_in_golden : inf_only_in_mine);
    }
  }
};

/// How far the sides of one pair are from each other. NaN means: not defined for this pair (see
/// `state`), or undefined by its formula. "Values" are elements, except: complex elements give two
/// (real, imaginary), packed ones each of their numbers. Flat indices count values in C order; -1
/// when there is none.
struct PairNumbers {
  PairState state = PairState::Empty;

  int64_t value_count = 0;     // of golden, and of mine unless CountMismatch
  int64_t compared_count = 0;  // positions where both sides are finite
  int64_t masked_count = 0;    // of these, |golden| <= kRelativeErrorFloor

  double cosine_similarity = NAN;   // [-1, 1]
  double max_relative_error = NAN;  // [0, inf)
  double mean_relative_error = NAN;
  double max_absolute_error = NAN;  // [0, inf), units of the tensor
  double mean_absolute_error = NAN;
  double kl_divergence = NAN;  // [0, inf) nats, softmax over the whole flattened tensor
  double relative_euclidean_distance = NAN;  // [0, inf]
  double kl_row_mean = NAN;  // nats, softmax over the last axis of golden; not in Float32
  double kl_row_max = NAN;

  /// First position of max_absolute_error, -1 when every error is 0.
  int64_t worst_absolute_index = -1;
  int64_t worst_relative_index = -1;
};

/// Metrics of one pair.
struct PairMetrics : PairNumbers, Patterns {
  /// Of each side by itself: finite values and counts, as stats::compute_stats defines them.
  /// Float32: of the float32 copy, with_non_finite() applied.
  stats::TensorStats golden;
  stats::TensorStats mine;

  /// True when no position differs: all errors 0, and NaN and infinities (with sign) at the same
  /// places.
  [[nodiscard]] bool is_identical() const {
    return state != PairState::CountMismatch && !has_pattern_mismatch() &&
           !(max_absolute_error > 0);
  }
};

/// A number of a pair: its name in reports and where PairNumbers has it.
struct MetricField {
  const char* name;
  double PairNumbers::* value;
};
struct CountField {
  const char* name;
  int64_t PairNumbers::* value;
};
/// In the order of the columns.
inline constexpr std::array<MetricField, 7> kMetricFields = {{
    {"cosine_similarity", &PairNumbers::cosine_similarity},
    {"max_relative_error", &PairNumbers::max_relative_error},
    {"mean_relative_error", &PairNumbers::mean_relative_error},
    {"max_absolute_error", &PairNumbers::max_absolute_error},
    {"mean_absolute_error", &PairNumbers::mean_absolute_error},
    {"kl_divergence", &PairNumbers::kl_divergence},
    {"relative_euclidean_distance", &PairNumbers::relative_euclidean_distance},
}};
/// Counts and positions.
inline constexpr std::array<CountField, 5> kCountFields = {{
    {"value_count", &PairNumbers::value_count},
    {"compared_count", &PairNumbers::compared_count},
    {"masked_count", &PairNumbers::masked_count},
    {"worst_absolute_index", &PairNumbers::worst_absolute_index},
    {"worst_relative_index", &PairNumbers::worst_relative_index},
}};
struct PatternField {
  const char* name;
  int64_t Patterns::* value;
};
inline constexpr std::array<PatternField, 7> kPatternFields = {{
    {"nan_only_in_golden", &Patterns::nan_only_in_golden},
    {"nan_only_in_mine", &Patterns::nan_only_in_mine},
    {"nan_in_both", &Patterns::nan_in_both},
    {"inf_only_in_golden", &Patterns::inf_only_in_golden},
    {"inf_only_in_mine", &Patterns::inf_only_in_mine},
    {"inf_in_both", &Patterns::inf_in_both},
    {"inf_sign_mismatches", &Patterns::inf_sign_mismatches},
}};

/// Compares in C order, whatever the strides and element types; shapes may differ as long as the
/// value counts agree (report shape_relation() beside it). Memory beyond the tensors: about 200 KiB
/// a thread plus 1 MiB. The result has the same bits for any number of jobs.
///
/// golden, mine   any dtype; integers are exact to 2^53 (errors between integers, one of 64 bits,
///                always), nothing passes through float32 unless rules say so
[[nodiscard]] PairMetrics compare_tensors(const TensorView& golden, const TensorView& mine,
                                          const MetricOptions& options = {});

/// |mine - golden| / |golden| of two float tensors of equal shapes; NaN of others, and where a value is not finite.
[[nodiscard]] double relative_l2(const TensorView& golden, const TensorView& mine);

/// Why a pair has no metrics or only some, a sentence each: column cmp_fail_reason.
[[nodiscard]] std::string fail_reason(const PairMetrics& metrics);

/// Statistics read from a file or taken from TensorStats, for comparisons without tensors (`-st`).
/// NaN: not known.
struct SummaryValues {
  double max = NAN;
  double min = NAN;
  double mean = NAN;
  double l2_norm = NAN;
};
struct SummaryError {
  double absolute = NAN;  // |mine - golden|
  double relative = NAN;  // absolute / max(|golden|, kRelativeErrorFloor)
};
struct SummaryErrors {
  SummaryError max;
  SummaryError min;
  SummaryError mean;
  SummaryError l2_norm;
};
/// A statistic: its name in reports and where its errors are.
struct SummaryField {
  const char* name;
  SummaryError SummaryErrors::* errors;
};
inline constexpr std::array<SummaryField, 4> kSummaryFields = {{
    {"max", &SummaryErrors::max},
    {"min", &SummaryErrors::min},
    {"mean", &SummaryErrors::mean},
    {"l2norm", &SummaryErrors::l2_norm},
}};
/// A value unknown on either side gives NaN, which reports leave blank. Equal infinities have error
/// 0.
[[nodiscard]] SummaryErrors compare_summaries(const SummaryValues& golden,
                                              const SummaryValues& mine);

}  // namespace assay::measure
