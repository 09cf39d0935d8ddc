// SPDX-License-Identifier: Apache-2.0
// New tensors put together from others: concatenation, repetition, choice, replaced regions.
#pragma once
#include <span>

#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// The tensors one after the other along `axis`.
/// parts   at least one; equal types, equal shapes except along `axis`
/// errors  Invalid (shapes, types, no such axis) | Unsupported (packed types) | TooLarge
[[nodiscard]] Result<Tensor> concat(std::span<const Tensor> parts, int64_t axis);
/// [count of parts, ...]: equal shapes under a new first dimension.
/// errors  as concat()
[[nodiscard]] Result<Tensor> stack(std::span<const Tensor> parts);

/// x multiples[i] times along dimension i; missing leading dimensions of x count as 1.
/// errors  Invalid (fewer multiples than dimensions, a negative one) | Unsupported (packed types) |
///         TooLarge
[[nodiscard]] Result<Tensor> tile(const Tensor& x, std::span<const int64_t> multiples);

/// cond != 0 ? a : b, all three broadcast against each other.
/// errors  Invalid (shapes, a and b of different types) | Unsupported (packed types) | TooLarge
[[nodiscard]] Result<Tensor> where(const Tensor& cond, const Tensor& a, const Tensor& b);

/// mask != 0 ? value : x; the mask broadcasts to x, the value is rounded to the type of x.
/// errors  as where()
[[nodiscard]] Result<Tensor> masked_fill(const Tensor& x, const Tensor& mask, double value);
/// `value` everywhere, as one element with strides of 0.
/// errors  Unsupported (complex and packed types) | Invalid, TooLarge (shape)
[[nodiscard]] Result<Tensor> full(const Dims& shape, double value, DType dtype);

/// A copy of x with x[starts[0] : ends[0] : strides[0], ...] = source, one entry a dimension.
/// errors  Invalid (number of entries, range outside x, stride below 1, source of another shape or
///         type) | Unsupported (packed types)
[[nodiscard]] Result<Tensor> set_value(const Tensor& x, const Tensor& source,
                                       std::span<const int64_t> starts,
                                       std::span<const int64_t> ends,
                                       std::span<const int64_t> strides);
/// The view x[starts[0] : ends[0] : strides[0], ...] itself.
/// errors  the same
[[nodiscard]] Result<Tensor> region(const Tensor& x, std::span<const int64_t> starts,
                                    std::span<const int64_t> ends,
                                    std::span<const int64_t> strides);

}  // namespace assay::reference
