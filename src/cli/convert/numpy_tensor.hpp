// SPDX-License-Identifier: Apache-2.0
// Tensors in types that plain NumPy has.
#pragma once
#include "base/result.hpp"
#include "tensor/tensor_view.hpp"

namespace assay::cli {

/// True for types that NumPy has without a further package.
[[nodiscard]] bool is_numpy_dtype(DType dtype);

/// The same values in the smallest NumPy type that holds them all: bfloat16 and the floats of 8
/// bits and fewer become float32, int4 becomes int8, complex32 complex64, quantised integers the
/// integers they are, bits without meaning uint8. Elements that hold several values give a longer
/// last dimension. Other types are returned as they are. Memory: the whole result.
/// errors    TooLarge
[[nodiscard]] Result<Tensor> numpy_tensor(const Tensor& tensor);

}  // namespace assay::cli
