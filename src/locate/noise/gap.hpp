// SPDX-License-Identifier: Apache-2.0
// How far a value of mine is from golden's function on the run under test's values, in units of
// what rounding explains.
//   docs/localisation.md, "Cross substitution"
#pragma once
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "reference/wide.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::locate {

/// False for fp64, which has no wider reference, and for types that are no floats.
[[nodiscard]] bool is_judged_type(DType dtype);

/// The same integers in C order, whatever their types.
/// errors  Unsupported (no integers or truth values)
[[nodiscard]] Result<bool> equal_integers(const TensorView& a, const TensorView& b);

struct Gap {
  double r = 0;            // |t - ref| / floor
  double r_element = 0;    // largest element over its own limit
  double r_column = 0;     // with rows and columns in units of what is expected of them
  double err_own = 0;      // |t - ref| / |ref|
  double noise_floor = 0;  // floor / |ref|
};

/// What the root mean square of an error that is spread over `count` independent sources, of at
/// least one, is beyond by so many deviations, in units of what is expected of it: chi-square of
/// count over count (Wilson and Hilferty, 1931). 4.265 deviations are one case in 100 000, 5.2 one in
/// ten million.
[[nodiscard]] double usual_excess(double count, double deviations);

/// What `simulated` tells of the noise.
enum class NoiseOf : uint8_t {
  OneDraw,  // of a single element it says nothing: the draw may be small there by chance
  Draws,    // NoiseDraws::usual(): each element's own noise, too
};

/// floor = max(|round(sim) - ref|, sqrt(sum U_i^2 / 12))
/// R     = |t - ref| / floor
/// R_e   = max_i |t_i - ref_i| / (4 max(row_i, col_i) + U_i / 2 + t_d), row and col the rms of
///       round(sim) - ref over
///         the last axis and over all other axes; of several draws also the element's own rms over these
/// R_c   = max(sqrt(mean_j S_j), max_j sqrt(S_j) / c(k_j)), of eight rows or more: nothing hides
///         behind a large row or column.   x = max((round(sim) - ref)^2, U^2 / 12)
///         S_j = sum_i (t - ref)^2 / w_i over X_j, or over the median X where that is larger;
///         X_j = sum_i x / w_i in column j, w_i = sum_j x / v_j in row i, v_j = sum_i (x / sum_j x) in
///         column j; k_j is over how many rows X_j is spread, X_j^2 / sum_i (x / w_i)^2, and c(k)
///         what chi-square of k over k is beyond in one case of ten million. Of 2 to 7 rows of 16
///         columns or more max_i sqrt(sum_j (t - ref)^2 / sum_j x) / c(k_i)
/// t and ref are clamped to the largest value of the type; elements below its normal range on both
/// sides are left out; a NaN on one side only makes both infinite. Values that are no floats are
/// equal, or both are infinite.
///
/// mine      t, any type
/// reference, simulated   the shape of t
/// dtype     the type whose rounding the floor holds: the narrowest of t and what it was computed
///           from
/// masks     elements beyond 1e4 of the same sign on both sides count as equal: the fill of a mask
///           is a matter of taste
/// errors    Invalid ("program differs here, cannot judge": another shape or kind of type) |
///           Unsupported (fp64)
[[nodiscard]] Result<Gap> measure_gap(const TensorView& mine, const TensorView& reference,
                                      const TensorView& simulated, DType dtype, bool masks,
                                      NoiseOf noise = NoiseOf::OneDraw);

/// The noise of several draws: where large terms cancel, one element of a product of sums has far
/// more of it than its row and its column.
class NoiseDraws {
 public:
  /// errors  Invalid (another shape than before) | of widening
  Status add(const Tensor& reference, const Tensor& simulated, DType dtype);
  /// Reference plus the root mean square of all draws, for NoiseOf::Draws. Complex numbers
  /// as_reals(). Precondition: add() was called.
  [[nodiscard]] Tensor usual() const;
  /// Over how many independent sources the noise is spread: (sum l)^2 / sum l^2 of the eigenvalues
  /// l of its covariance. 1 where one rounding moves everything, as a score of saturated attention
  /// moves a whole head. Precondition: add() was called twice.
  [[nodiscard]] double effective_count() const;

 private:
  reference::Wide reference_;
  reference::Wide squares_;
  /// Of each draw: sums of the noise over buckets with random signs, whose products are those of
  /// the draws.
  std::vector<std::vector<double>> sketches_;
  uint32_t count_ = 0;
};

/// Complex numbers as pairs of reals, [..., 2]; anything else as it is.
[[nodiscard]] TensorView as_reals(TensorView view);

}  // namespace assay::locate
