// SPDX-License-Identifier: Apache-2.0
// Between our tensors and NumPy arrays, without copies.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <string>

#include "tensor/tensor_view.hpp"

namespace assay::python {

using ReadOnlyArray = nanobind::ndarray<nanobind::ro, nanobind::device::cpu>;

/// A tensor in a file that somebody in Python looks at.
struct MappedTensor {
  Tensor tensor;
};

/// A read-only NumPy array over the tensor's bytes; the array holds `owner`. Types that NumPy lacks come as unsigned
/// integers of the same size, packed 4-bit values as a 1-d array of bytes. Lazy conj and neg bits are not applied.
[[nodiscard]] nanobind::object to_numpy(const Tensor& tensor, nanobind::handle owner);

/// The array as a view of elements of the named type; both borrow the array's memory.
/// errors  Usage: unknown type, or one whose size is not the array's | of make_view()
[[nodiscard]] Result<TensorView> view_of(const ReadOnlyArray& array, const std::string& dtype_name);

}  // namespace assay::python
