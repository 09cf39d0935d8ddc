// SPDX-License-Identifier: Apache-2.0
// What each bind_*.cpp of this folder adds to assay._opcheck: the reference operators, arrays in and out. Arrays come as
// pairs (array, name of the element type); python/assay/reference makes them and documents each function.
#pragma once
#include <nanobind/nanobind.h>

#include "python/module.hpp"
#include "python/tensor_array.hpp"
#include "reference/wide.hpp"

namespace assay::python {

void bind_movement(nanobind::module_& m);
void bind_elementwise(nanobind::module_& m);
void bind_norms(nanobind::module_& m);
void bind_selection(nanobind::module_& m);
void bind_products(nanobind::module_& m);
void bind_attention(nanobind::module_& m);
void bind_aten(nanobind::module_& m);

/// The result of a reference operator as an array, float64 or int64; raises for an error.
template <typename T>
[[nodiscard]] nanobind::object array_or_raise(Result<reference::Array<T>> result) {
  return owned_array(reference::to_tensor(value_or_raise(std::move(result))));
}

}  // namespace assay::python
