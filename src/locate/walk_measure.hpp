// SPDX-License-Identifier: Apache-2.0
// How far a value of mine is from golden's function on mine's values, in units of what rounding explains.   localisation 4
#pragma once
#include <optional>

#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::locate {

/// False for fp64, which has no wider reference, and for types that are no floats.
[[nodiscard]] bool is_judged_type(DType dtype);

struct Gap {
  double r = 0;            // |t - ref| / floor
  double r_element = 0;    // largest element over its own limit
  double err_own = 0;      // |t - ref| / |ref|
  double noise_floor = 0;  // floor / |ref|
};

/// floor = max(|round(sim) - ref|, sqrt(sum U_i^2 / 12))
/// R     = |t - ref| / floor
/// R_e   = max_i |t_i - ref_i| / (4 max(row_i, col_i) + U_i / 2 + t_d), row and col the rms of round(sim) - ref over
///         the last axis and over all other axes
/// t and ref are clamped to the largest value of the type; elements below its normal range on both sides are left out;
/// a NaN on one side only makes both infinite. Values that are no floats are equal, or both are infinite.
///
/// mine      t, any type
/// reference, simulated   the shape of t
/// dtype     the type whose rounding the floor holds: the narrowest of t and what it was computed from
/// masks     elements beyond 1e4 of the same sign on both sides count as equal: the fill of a mask is a matter of taste
/// errors    Invalid ("program differs here, cannot judge": another shape or kind of type) | Unsupported (fp64)
[[nodiscard]] Result<Gap> measure_gap(const TensorView& mine, const TensorView& reference,
                                      const TensorView& simulated, DType dtype, bool masks);

/// Complex numbers as pairs of reals, [..., 2]; anything else as it is.
[[nodiscard]] TensorView as_reals(TensorView view);

}  // namespace assay::locate
