// SPDX-License-Identifier: Apache-2.0
// Whether what two paired tensors hold says that they do not belong together.   docs/commands/compare.md
#pragma once
#include "compare/metrics.hpp"

namespace assay::compare {

/// Pearson's r of the positions that are finite on both sides: 1 for one tensor and any scale of it, about 0 (standard
/// deviation 1 / sqrt(n)) for unrelated ones, whatever their means. NaN where a side is constant, or where NaN and
/// infinities leave the sums of the sides incomparable.
[[nodiscard]] double correlation(const PairMetrics& metrics);

/// True when golden explains less than half of what varies in mine (r^2 < 1/2). Of tensors of equal size and no mean
/// that is cosine below 0.71 and relative L2 above 0.77; unrelated ones are at 0 and sqrt(2). A wrong scale, offset or
/// sign is no contradiction, and too few values never are.
[[nodiscard]] bool contradicts_pair(const PairMetrics& metrics);

/// What is left of a rule's confidence when the values or shapes contradict it.
inline constexpr double kContradictedConfidence = 0.2;

}  // namespace assay::compare
