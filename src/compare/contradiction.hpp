// SPDX-License-Identifier: Apache-2.0
// Whether what two paired tensors hold says that they do not belong together.
//   docs/commands/compare.md
#pragma once
#include "measure/metrics.hpp"

namespace assay::compare {

/// Pearson's r of the positions that are finite on both sides: 1 for one tensor and any scale of
/// it, about 0 (standard deviation 1 / sqrt(n)) for unrelated ones, whatever their means. NaN where
/// a side is constant, or where NaN and infinities leave the sums of the sides incomparable.
///
/// golden, mine   mean and L2 norm of all values of each side
[[nodiscard]] double correlation(const measure::PairNumbers& numbers,
                                 const measure::SummaryValues& golden,
                                 const measure::SummaryValues& mine);

/// True when golden explains less than half of what varies in mine (r^2 < 1/2). Of tensors of equal
/// size and no mean that is cosine below 0.71 and relative L2 above 0.77; unrelated ones are at 0
/// and sqrt(2). A wrong scale, offset or sign is no contradiction, and too few values never are.
[[nodiscard]] bool contradicts_pair(const measure::PairNumbers& numbers,
                                    const measure::SummaryValues& golden,
                                    const measure::SummaryValues& mine);

/// The same of statistics alone, as far as they tell. Extremes: what explains half of the other's
/// variance has an extreme of z standard deviations where that one has at least (z - 4) / sqrt(2),
/// whatever scale, offset and sign lie between them. Sketches: a cosine below 1/2 of the sketches
/// without their means; of unrelated tensors 95 in 100 are, of those with r = 0.9 one in 2000.
[[nodiscard]] bool contradicts_pair(const stats::TensorStats& golden,
                                    const stats::TensorStats& mine);

/// What is left of a rule's confidence when the values or shapes contradict it.
inline constexpr double kContradictedConfidence = 0.2;

}  // namespace assay::compare
