// SPDX-License-Identifier: Apache-2.0
// Everything a report says about how far an output is from its golden, from one pass over both.
// Formulas: docs/opcheck.md.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor/tensor_view.hpp"

namespace assay::measure {

struct MeasureOptions {
  /// Element rule of `atb`: |o - g| <= err * max(1, |g|); counted while everything else is
  /// measured.
  double atb_error = 0;
  /// Needs two more passes.
  bool kl_divergence = false;
  /// Two-sample test of RAND; needs both sides sorted.
  bool kolmogorov_smirnov = false;
};

/// Of one output against its golden in fp64 (or exact integers). Flat indices count elements in C
/// order.
struct Measures {
  int64_t count = 0;
  DType dtype = DType::Float32;  // of mine

  // Not finite. Places where both sides are NaN, or the same infinity, are equal; so is an infinity
  // of mine where golden, within its tolerance, rounds to that infinity in the dtype of mine.
  int64_t golden_nan = 0, golden_inf = 0;
  int64_t mine_nan = 0, mine_inf = 0;
  int64_t pattern_mismatches = 0;  // all other places with NaN or infinity on a side; never within
  int64_t first_pattern_mismatch = -1;
  /// Zeros of other sign, counted where golden has the dtype of mine, as values that were moved
  /// have.
  int64_t zero_sign_mismatches = 0;

  // Over places where both sides are finite.
  double max_abs_error = 0;
  double mean_abs_error = 0;
  double max_rel_error = 0;  // |o - g| / max(|g|, 2^-23)
  double mean_rel_error = 0;
  /// The first pattern mismatch; without one the largest |o - g| / max(1, |g|); -1: equal
  /// everywhere.
  int64_t worst_index = -1;
  double rmse = 0;
  double cosine = NAN;  // 1 when both are all zero
  double kl_divergence = NAN;
  double relative_l2 = 0;  // ||o - g|| / ||g||; 0 / 0 = 0
  double nmse = 0;         // sum (o - g)^2 / sum g^2; 0 / 0 = 0
  double mare = 0;         // max of |o - g| / (|g| + 1e-7)
  double mere = 0;         // mean of the same
  /// |mean((o - g) / max(1, |g|))|
  double error_balance = 0;
  /// Distance in units of the last place of the dtype of mine between mine and the narrowed golden:
  /// 0, 1, 2, up to 4, up to 8, more. Integers: the difference.
  std::array<int64_t, 6> ulp_histogram{};

  // Counts of elements within each rule.
  int64_t atb_within = 0;
  int64_t mixed_within = 0;   // |o - g| <= atol + rtol |g|, document set of 9.5
  int64_t mixed_too_far = 0;  // |o - g| > max(floor, 32 units of the last place of g)
  /// legacy: golden narrowed to the dtype of mine, arithmetic in the promoted dtype (fp16 with
  /// fp16).
  int64_t legacy_o4_within = 0;
  double legacy_o4_max_rel = 0;
  int64_t legacy_abs_within = 0;  // |o - g| <= etol where |g| > 2^-23
  double legacy_max_abs = 0;
  int64_t legacy_o1_within = 0;
  double legacy_o1_max_rel = 0;
  int64_t legacy_o1_abs_within = 0;  // |o - g| <= etol of O1, whatever g
  double legacy_o1_max_abs = 0;

  // float16 and bfloat16: a kernel that cuts digits off, instead of rounding, shows itself here.
  int64_t inexact = 0;    // goldens that the dtype cannot hold
  int64_t truncated = 0;  // of those: mine is the neighbour of golden towards zero
  /// Of those: golden rounds away from zero, so that truncation makes a difference.
  int64_t away = 0;
  int64_t away_truncated = 0;
  uint64_t away_values = 0;  // a bit for each of 64 classes of values among them

  double kolmogorov_smirnov = NAN;  // distance of the distributions, [0, 1]
  double kolmogorov_smirnov_p = NAN;
};

/// golden   Float64, Int64 or any type; mine any real type; equal element counts
/// errors   Invalid (counts differ) | Unsupported (complex, Bits)
/// Deterministic: the same bits whatever the threads.
[[nodiscard]] Result<Measures> measures_of(const TensorView& golden, const TensorView& mine,
                                           const MeasureOptions& options);

/// An element and its neighbours, for people.
struct Neighbourhood {
  std::vector<int64_t> index;  // multi-index of the element in the shape of mine
  double golden = NAN;
  double mine = NAN;
  int64_t first = 0;                  // flat index of the first neighbour
  std::vector<double> golden_values;  // up to five values around it, the element included
  std::vector<double> mine_values;
};
[[nodiscard]] Neighbourhood neighbourhood_of(const TensorView& golden, const TensorView& mine,
                                             int64_t flat_index);

}  // namespace assay::measure
