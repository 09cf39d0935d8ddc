// SPDX-License-Identifier: Apache-2.0
// The measures of one block of float16, bfloat16 or float32 outputs in vector registers. Its twin is the plain loop
// of measures.cpp, which also takes the blocks that the kernel refuses.
#pragma once
#include <array>
#include <cstdint>

#include "tensor/dtype.hpp"

namespace assay::measure {

/// Most values of one call.
inline constexpr int64_t kMeasureBlock = 2048;

/// Floor of the relative error, and the magnitude below which the legacy standards look away.
inline constexpr double kMeasureEpsilon = 0x1p-23;
inline constexpr double kRatioFloor = 1e-7;       // of MARE and MERE
inline constexpr double kMixedUnits = 32;         // units of the last place
inline constexpr double kO1ZeroStandIn = 0x1p-7;  // for a golden of 0

struct BlockLimits {
  double atb_error = 0;
  double mixed_tolerance = 0;
  double mixed_floor = 0;
  double o4_etol = 0;
  double o1_etol = 0;
};

/// Sums, maxima and counts of one block; names as in Measures.
struct BlockMeasures {
  double abs_error = 0, rel_error = 0, balance = 0, ratio_error = 0;
  double difference_squared = 0, golden_squared = 0, mine_squared = 0, product = 0;
  double max_abs_error = 0, max_rel_error = 0, mare = 0, worst = 0;
  double o4_max_rel = 0, o1_max_rel = 0, legacy_max_abs = 0, o1_max_abs = 0;
  int64_t atb_within = 0, mixed_within = 0, mixed_too_far = 0;
  int64_t o4_within = 0, legacy_abs_within = 0, o1_within = 0, o1_abs_within = 0;
  std::array<int64_t, 5> ulp_at_most{};  // 0, 1, 2, 4, 8
  int64_t inexact = 0, truncated = 0, away = 0, away_truncated = 0;
  uint64_t away_values = 0;
};

/// golden, mine   `count` values, at most kMeasureBlock; mine's are values of `dtype`
/// dtype          Float16, BFloat16 or Float32
/// returns        false when a value is not finite or golden overflows the type: `out` is undefined then
[[nodiscard]] bool measure_block(DType dtype, const double* golden, const double* mine,
                                 int64_t count, const BlockLimits& limits, BlockMeasures* out);

}  // namespace assay::measure
