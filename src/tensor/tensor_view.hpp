// SPDX-License-Identifier: Apache-2.0
// A borrowed, typed, strided look at bytes, and a tensor that owns its bytes.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/bytes.hpp"
#include "base/result.hpp"
#include "tensor/dims.hpp"
#include "tensor/dtype.hpp"

namespace assay {

/// Invariant, established by make_view(): every element that shape and strides address lies inside
/// `storage`. Element (i0, i1, ...) starts at byte (offset + sum ik * stridek) * element size; for
/// sub-byte types (Int4, UInt4) at that many nibbles. Strides may be 0 (expanded), negative (NumPy)
/// or permuted.
struct TensorView {
  DType dtype = DType::Float32;
  Dims shape;
  Dims strides;                 // elements
  ByteSpan storage;             // borrowed
  int64_t offset_elements = 0;  // of element (0, 0, ...) from the start of storage
  bool conjugate = false;       // torch's lazy conj bit: readers negate the imaginary part
  bool negative = false;        // torch's lazy neg bit: readers negate every value

  [[nodiscard]] int64_t element_count() const { return assay::element_count(shape).value_or(0); }
  /// C order without gaps.
  [[nodiscard]] bool is_contiguous() const;
  /// The bytes of a contiguous view in element order. Precondition: is_contiguous() and neither
  /// lazy bit set.
  [[nodiscard]] ByteSpan contiguous_bytes() const;
};

/// Checks shape, strides and offset against the storage.
/// errors  Invalid (negative size, rank mismatch) | TooLarge (overflow) | OutOfBounds as Truncated
///         with the byte that would be read
[[nodiscard]] Result<TensorView> make_view(DType dtype, const Dims& shape, const Dims& strides,
                                           ByteSpan storage, int64_t offset_elements = 0);
/// The same for a C-contiguous tensor at the start of `storage`.
[[nodiscard]] Result<TensorView> make_view(DType dtype, const Dims& shape, ByteSpan storage);

[[nodiscard]] inline std::string shape_text(const TensorView& view) {
  return shape_text(view.shape);
}

/// A view together with whatever keeps its bytes alive (a mapped file, a buffer). Cheap to copy.
struct Tensor {
  TensorView view;
  std::shared_ptr<const void> owner;
};

}  // namespace assay
