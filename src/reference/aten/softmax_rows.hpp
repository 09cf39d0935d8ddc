// SPDX-License-Identifier: Apache-2.0
// Logarithms of sums of exponentials.
#pragma once
#include <span>

namespace assay::reference::aten {

/// log(sum e^x) = largest + log, as long as `largest` is finite.
struct LogSum {
  double largest;  // -inf of no number
  double log;      // of the sum of e^(x - largest)
};
[[nodiscard]] LogSum log_sum_of(std::span<const double> values);

/// The same as one number: -inf of no value and of -inf alone, inf and NaN where there is one.
[[nodiscard]] double log_sum_exp(std::span<const double> values);

}  // namespace assay::reference::aten
