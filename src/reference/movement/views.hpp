// SPDX-License-Identifier: Apache-2.0
// Moves that change nothing but shape and strides: the results are views of the same bytes.
#pragma once
#include <span>
#include <vector>

#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// y[i0, i1, ...] = x.flat[offset + sum ik * stride[k]]. An x with gaps is copied first.
/// errors  Invalid (negative size, lists of different lengths, start before the first element) |
///         Truncated (reaches behind the last element) | Unsupported (packed types with gaps) |
///         TooLarge
[[nodiscard]] Result<Tensor> as_strided(const Tensor& x, const Dims& size, const Dims& stride,
                                        int64_t offset);

/// Dimension i of the result is dimension perm[i] of x; negative numbers count from the end.
/// errors  Invalid (perm is no permutation of the dimensions)
[[nodiscard]] Result<Tensor> transpose(const Tensor& x, std::span<const int64_t> perm);

/// y = x[offsets[0] : offsets[0] + sizes[0], ...], one entry a dimension. A negative offset counts
/// from the end of the dimension, size -1 means up to its end.
/// errors  Invalid (other number of entries, a range outside the dimension)
[[nodiscard]] Result<Tensor> slice(const Tensor& x, std::span<const int64_t> offsets,
                                   std::span<const int64_t> sizes);

/// Parts of the given sizes along `axis`, one after the other.
/// errors  Invalid (no such axis, sizes that do not add up to the dimension)
[[nodiscard]] Result<std::vector<Tensor>> split(const Tensor& x, int64_t axis,
                                                std::span<const int64_t> sizes);
/// `parts` parts of ceil(size / parts) each; the last may be smaller, or empty.
/// errors  Invalid (no such axis, fewer than one part)
[[nodiscard]] Result<std::vector<Tensor>> split_evenly(const Tensor& x, int64_t axis,
                                                       int64_t parts);

/// x repeated along new leading dimensions and dimensions of size 1, by strides of 0.
/// errors  Invalid: "[3, 2] does not broadcast to [4, 2]"
[[nodiscard]] Result<Tensor> broadcast_to(const Tensor& x, const Dims& shape);
/// The shape that both broadcast to, by NumPy's rules.
/// errors  Invalid: "[3, 2] and [4, 2] do not broadcast"
[[nodiscard]] Result<Dims> broadcast_shape(const Dims& a, const Dims& b);

}  // namespace assay::reference
