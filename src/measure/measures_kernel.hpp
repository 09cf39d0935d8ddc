// SPDX-License-Identifier: Apache-2.0
// The measures of one block of float16, bfloat16 or float32 outputs in vector registers. Its twin
// is the plain loop of measures.cpp, which also takes the blocks that the kernel refuses.
#pragma once
#include <cmath>

#include "measure/measures.hpp"
#include "measure/pair_values.hpp"

namespace assay::measure {

/// Magnitude below which the legacy standards look away.
inline constexpr double kMeasureEpsilon = kRelativeErrorFloor;
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

/// What has to be added over all places of a block where both sides are finite, and its largest
/// |o - g| / max(1, |g|).
struct BlockSums {
  double balance = 0, ratio_error = 0, worst = 0;
};

/// Raises a maximum; NaN is larger than everything.
inline void raise(double value, double* largest) {
  if (std::isnan(value) || value > *largest) *largest = std::isnan(*largest) ? *largest : value;
}

/// Adds the counts and maxima of a block to `out`, whose dtype is Float16, BFloat16 or Float32.
/// Values are finite, those of golden below the overflow of that type; those of mine are values of
/// it.
void measure_block(const Block& block, const BlockLimits& limits, BlockSums* sums, Measures* out);

}  // namespace assay::measure
