// SPDX-License-Identifier: Apache-2.0
// Steps of views that moves and writes into parts share.
#pragma once
#include "reference/aten/registry.hpp"

namespace assay::reference::aten {

/// The tensor under another shape of equal element count: a view of its bytes where its strides
/// allow, else a copy.
/// errors  Invalid (other element count) | Unsupported (packed types that must be copied)
[[nodiscard]] Result<Tensor> viewed(const Tensor& tensor, const Dims& shape);

inline void exchange_axes(TensorView& view, size_t a, size_t b) {
  std::swap(view.shape[a], view.shape[b]);
  std::swap(view.strides[a], view.strides[b]);
}
/// A new axis of size 1 in front of axis `at`; at == rank: behind the last.
void insert_axis(TensorView& view, size_t at);

/// The named axis from the front, 0 for a tensor of rank 0.
/// errors  Invalid
[[nodiscard]] Result<size_t> axis_argument(const Arguments& arguments, std::string_view name,
                                           size_t rank, std::optional<int64_t> fallback);

/// Places start, start + step, ... of an axis.
struct Range {
  int64_t start = 0;
  int64_t count = 0;
  int64_t step = 1;
};
/// Of the arguments start, end and step as Python's slices read them.
/// errors  Invalid (a tensor of rank 0, a step below 1)
[[nodiscard]] Result<Range> slice_range(const Arguments& arguments, const TensorView& view,
                                        size_t at);
/// Precondition: the range lies inside the axis.
[[nodiscard]] Tensor ranged(Tensor tensor, size_t at, const Range& range);

/// The argument "index" from the front.
/// errors  Invalid (a tensor of rank 0, outside the axis)
[[nodiscard]] Result<int64_t> index_argument(const Arguments& arguments, const TensorView& view,
                                             size_t at);
/// Precondition: the index lies inside the axis.
[[nodiscard]] Tensor selected(Tensor tensor, size_t at, int64_t index);

/// By the arguments offset, dim1 and dim2; the diagonal is the last axis.
/// errors  Invalid
[[nodiscard]] Result<Tensor> diagonal_view(const Arguments& arguments, const Tensor& self);
/// By the arguments size, stride and storage_offset. What a storage holds around an operand is not
/// captured, so the operand's own bytes stand for it.
/// errors  Invalid | Truncated (outside those bytes) | Unsupported (the operand has gaps)
[[nodiscard]] Result<Tensor> strided(const Arguments& arguments, const Tensor& self);

}  // namespace assay::reference::aten
