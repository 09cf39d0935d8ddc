// SPDX-License-Identifier: Apache-2.0
// Between our tensors and NumPy arrays, without copies.
#pragma once
#include <optional>
#include <string>

#include "base/result.hpp"
#include "python/binding/array.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::python {

using binding::ReadOnlyArray;

/// A tensor in a file that somebody in Python looks at.
struct MappedTensor {
  Tensor tensor;
};

/// A read-only NumPy array over the tensor's bytes; the array holds `owner`. Types that NumPy lacks
/// come as unsigned integers of the same size, packed 4-bit values as a 1-d array of bytes. Lazy
/// conj and neg bits are not applied.
[[nodiscard]] binding::Object to_numpy(const Tensor& tensor, binding::Handle owner);

/// The array as a view of its own elements, or of elements of a type, or of the named one; all
/// borrow the array's memory.
/// errors  Usage: unknown type, or one whose size is not the array's | Unsupported: its own
///         elements are of a type that no tensor has | of make_view()
[[nodiscard]] Result<TensorView> view_of(const ReadOnlyArray& array);
[[nodiscard]] Result<TensorView> view_of(const ReadOnlyArray& array, DType dtype);
[[nodiscard]] Result<TensorView> view_of(const ReadOnlyArray& array, const std::string& dtype_name);

/// Floats that are their bits or wider values in Python.
[[nodiscard]] inline bool numpy_lacks(DType dtype) {
  return is_float(dtype) && info(dtype).element_bits < 32 && dtype != DType::Float16;
}

/// A NumPy array that owns the tensor.
[[nodiscard]] binding::Object owned_array(Tensor tensor);

/// A pair (array, name of the element type), as assay._run._as_raw() makes it, as a tensor that
/// borrows the array's memory for the time of the call. Raises for a type that the array cannot
/// hold.
[[nodiscard]] Tensor borrowed_tensor(binding::Handle raw);

}  // namespace assay::python
