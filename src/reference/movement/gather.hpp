// SPDX-License-Identifier: Apache-2.0
// Rows and elements picked by index.
#pragma once
#include <cstdint>

#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// y[b..., i..., j..., k...] = x[b..., i..., indices[b..., j...], k...]
///
/// x           [batch dims..., i..., size, k...]
/// indices     [batch dims..., j...] of any integer type
/// axis        of x; batch_dims <= axis; negative counts from the end
/// batch_dims  leading dimensions that x and indices share; negative counts from the end of indices
/// errors      Invalid (shapes; an index outside [0, size), named with its place) | Unsupported
///             (indices that are no integers, packed types) | TooLarge
[[nodiscard]] Result<Tensor> gather(const Tensor& x, const Tensor& indices, int64_t axis,
                                    int64_t batch_dims);

/// A copy of x with y[..., indices[p], ...] = updates[p] (or += with `add`) for every place p of
/// indices, the index standing for the place along `axis`. Of several writes to one element the
/// last in C order stays.
///
/// indices  integers, x's rank; in every dimension but `axis` no larger than x
/// updates  x's type, in no dimension smaller than indices
/// returns  x's type; with `add` Float64 sums in C order, or Int64 for integers
/// errors   as gather()
[[nodiscard]] Result<Tensor> scatter_elements(const Tensor& x, const Tensor& indices,
                                              const Tensor& updates, int64_t axis, bool add);

}  // namespace assay::reference
