// SPDX-License-Identifier: Apache-2.0
// New tensors that are written byte by byte: what all moves are made of.
#pragma once
#include <memory>
#include <string>

#include "reference/wide.hpp"

namespace assay::reference {

/// Memory of a tensor while it is written.
struct NewTensor {
  DType dtype = DType::Float32;
  Dims shape;
  int64_t element_bytes = 0;
  std::shared_ptr<Array<std::byte>> bytes;

  [[nodiscard]] std::byte* data() const { return bytes->data(); }
  /// The finished tensor, C-contiguous.
  [[nodiscard]] Tensor tensor() const;
};

/// Undefined content.
/// errors  Unsupported (packed types) | of checked_count()
[[nodiscard]] Result<NewTensor> new_tensor(DType dtype, const Dims& shape);
/// All bytes 0.
[[nodiscard]] Result<NewTensor> new_zeros(DType dtype, const Dims& shape);
/// The values of `tensor` in C order, in memory of their own.
[[nodiscard]] Result<NewTensor> copy_of(const Tensor& tensor);

/// Writes all elements of `source` to where `strides` (elements, one a dimension of source) place
/// them from `target` on. Precondition: all of them lie inside the target's memory; equal element
/// size.
void scatter_bytes(const TensorView& source, std::byte* target, const Dims& strides);

}  // namespace assay::reference
