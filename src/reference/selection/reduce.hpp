// SPDX-License-Identifier: Apache-2.0
// Sums, extremes and softmax along dimensions.   docs/opcheck/selection.md
#pragma once
#include <span>

#include "reference/wide.hpp"

namespace assay::reference {

/// Running sums along an axis, in double; of integers Int64, exact modulo 2^64.
///
/// exclusive   each element is the sum of those before it, without itself
/// reverse     from the end of the axis
/// errors      Invalid (no such axis) | of widen()
[[nodiscard]] Result<Tensor> cumsum(const TensorView& x, int64_t axis, bool exclusive = false,
                                    bool reverse = false);

enum class Reduction : uint8_t { Max, Min, Sum };
/// The dimensions `axes` disappear; none listed: all of them. Float64; Int64 for integers.
/// A NaN makes its maximum or minimum NaN.
/// errors  Invalid (no such axis, one twice, an extreme of no elements) | of widen()
[[nodiscard]] Result<Tensor> reduce(const TensorView& x, Reduction reduction,
                                    std::span<const int64_t> axes);

/// exp(x - max) over its sum, over all of `axes` together, which must follow each other.
/// A row of -inf is NaN, as 0 / 0 is.
/// errors  Invalid (no axis, no such axis, axes with a gap) | of widen()
[[nodiscard]] Result<Wide> softmax(const TensorView& x, std::span<const int64_t> axes);

}  // namespace assay::reference
