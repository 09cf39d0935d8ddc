// SPDX-License-Identifier: Apache-2.0
// Statistics in a few bytes: what a fingerprint keeps of minimum, maximum, mean, norm and sketch.
//   docs/formats/fingerprint.md, "Statistics"
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "stats/tensor_stats.hpp"

namespace assay::run::fingerprint {

/// A norm, a minimum and a maximum are off by at most this share of themselves.
inline constexpr double kNumberError = 1.0 / (1 << 16);
/// A mean by at most this share of the root mean square.
inline constexpr double kMeanError = 1.0 / 65534;
/// One of the sixteen sums by at most this share of the largest of them and 1/32 of the norm.
inline constexpr double kSumError = 1.0 / 4094;

/// Whether the bounds above can be kept: no number leaves the range of float32.
[[nodiscard]] bool can_be_rounded(const stats::TensorStats& stats);
/// The same as they are read back from a fingerprint. Precondition: can_be_rounded().
[[nodiscard]] stats::TensorStats rounded(const stats::TensorStats& stats);

/// The columns of several tensors' statistics. Counts are kept elsewhere.
struct Columns {
  // Rounded: bytes of float32 without the last, first those of all, then the second, then the third
  // ones. Exact: of float64, eight times as many.
  std::string l2, min, max;
  std::string
      mean;  // rounded: two planes of 16-bit integers, in 1/32767 of the RMS; exact: float64
  std::string scale;     // of sketches, rounded only: one byte each, in 1/32 of the norm
  std::string sketches;  // of those that have one; rounded: 16 numbers of 12 bits; exact: float32
};
[[nodiscard]] Columns pack_rounded(const std::vector<stats::TensorStats>& all);
[[nodiscard]] Columns pack_exact(const std::vector<stats::TensorStats>& all);

/// Completes statistics whose counts are known; those with a sketch have one of zeros.
/// errors  Invalid: a column of another length, numbers that are none
[[nodiscard]] Status unpack_rounded(const Columns& columns, std::vector<stats::TensorStats>* all);
[[nodiscard]] Status unpack_exact(const Columns& columns, std::vector<stats::TensorStats>* all);

}  // namespace assay::run::fingerprint
