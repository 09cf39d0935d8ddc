// SPDX-License-Identifier: Apache-2.0
// Picking tokens from probabilities.   docs/opcheck/selection.md
// Kernels round cumulative sums to half precision, so a sum that lies close to the number it is
// compared with may fall on either side: every choice names the places that are as good.
#pragma once
#include <span>
#include <vector>

#include "reference/selection/indexing.hpp"

namespace assay::reference {

/// Sums this close to what they are compared with may fall on its other side: the unit of half
/// precision below 1.
inline constexpr double kSumTolerance = 0x1p-10;

struct Choice {
  int64_t place = 0;          // in the row that was searched
  std::vector<int64_t> ties;  // places that are as good
};

/// Samples of each row by the inverse of its cumulative distribution: the first place whose sum
/// exceeds r, 0 without one.
///
/// probs       [batch, values]
/// fractions   one number r of [0, 1] for each sample, shared by all rows
/// sums        Float64, or the type that every partial sum is rounded to
/// returns     [batch * samples] choices, row by row
/// errors      Invalid (not two dimensions, no values) | of widen()
[[nodiscard]] Result<std::vector<Choice>> multinomial(const TensorView& probs,
                                                      std::span<const double> fractions,
                                                      DType sums = DType::Float64);

/// Rows of probabilities, sorted in descending order and cut.
struct NucleusInput {
  TopK sorted;  // [batch, values]
  /// [batch], place of the smallest probability that counts; empty: all count.
  std::vector<int64_t> top_k;
  std::vector<double> top_p;  // [batch] or one for all
  /// Type that cumulative sums are rounded to, each from its exact value.
  DType sums = DType::Float64;
};
struct NucleusSample {
  std::vector<Choice> choices;  // [batch], places in the sorted row
  std::vector<Choice> last;     // [batch], the last place that is kept
  Wide cumulative;              // [batch, values]
};
/// v = c[m] r with m the last place whose sum c stays below top_p; the choice is the number of sums
/// below v (`inclusive`: up to v).
/// fractions   [batch], r of each row
/// errors      Invalid (lengths, top_k out of range, no values)
[[nodiscard]] Result<NucleusSample> sample_nucleus(const NucleusInput& input,
                                                   std::span<const double> fractions,
                                                   bool inclusive);
/// The first largest p / noise of those with c <= top_p; the first of all if there is none.
/// noise    [batch, values] of the exponential distribution, in the order of the sorted row
/// errors   the same
[[nodiscard]] Result<NucleusSample> sample_nucleus_exponential(const NucleusInput& input,
                                                               const TensorView& noise);

/// ln(p[j] / c[m]) for j up to m, the last place kept, and -9999 beyond.
/// last      [batch]
/// returns   [batch, size]
/// errors    Invalid (size outside [0, values])
[[nodiscard]] Result<Wide> nucleus_log_probs(const NucleusInput& input, const Wide& cumulative,
                                             std::span<const int64_t> last, int64_t size);

}  // namespace assay::reference
