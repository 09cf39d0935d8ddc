// SPDX-License-Identifier: Apache-2.0
// An array made of a tensor keeps the tensor alive, a tensor made of an array borrows its memory.
// Types that NumPy lacks are shown as unsigned integers of the same size.
#include "python/tensor_array.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "python/module.hpp"

namespace py = assay::binding;

namespace assay::python {
namespace {

/// The element type that NumPy shows; for types it lacks the unsigned integer of the same size.
py::ElementType numpy_type(DType dtype) {
  const auto bits = std::max<uint8_t>(8, info(dtype).element_bits);
  switch (dtype) {
    case DType::Float64:
    case DType::Float32:
    case DType::Float16:
      return {py::ElementType::Float, bits};
    case DType::Complex128:
    case DType::Complex64:
      return {py::ElementType::Complex, bits};
    case DType::Int64:
    case DType::Int32:
    case DType::Int16:
    case DType::Int8:
    case DType::QInt8:
    case DType::QInt32:
      return {py::ElementType::Int, bits};
    case DType::Bool:
      return {py::ElementType::Bool, bits};
    default:
      return {py::ElementType::UInt, bits};
  }
}

}  // namespace

py::Object to_numpy(const Tensor& tensor, py::Handle owner) {
  const TensorView& view = tensor.view;
  Dims shape = view.shape;
  Dims strides = view.strides;
  const std::byte* data = view.storage.data();
  if (info(view.dtype).element_bits < 8) {
    // Shapes of packed types count values, which have no address of their own.
    shape = {static_cast<int64_t>(view.storage.size())};
    strides = {1};
  } else if (data != nullptr) {
    data += view.offset_elements * (info(view.dtype).element_bits / 8);
  }
  return py::lend_to_numpy(data, numpy_type(view.dtype), shape.span(), strides.span(),
                           py::Object::borrow(owner));
}

Result<TensorView> view_of(const ReadOnlyArray& array) {
  const auto& [code, bits, lanes] = array.type;
  const std::optional<DType> dtype = dtype_from_dlpack(code, bits, lanes);
  if (!dtype) {
    return fail(Errc::Unsupported, "the array has an element type that no tensor has");
  }
  return view_of(array, *dtype);
}

Result<TensorView> view_of(const ReadOnlyArray& array, const std::string& dtype_name) {
  const std::optional<DType> dtype = dtype_from_name(dtype_name);
  if (!dtype) return fail(Errc::Usage, "unknown dtype '" + dtype_name + "'");
  return view_of(array, *dtype);
}

Result<TensorView> view_of(const ReadOnlyArray& array, DType dtype) {
  const size_t item_bytes = array.item_bytes();
  if (info(dtype).element_bits != item_bytes * 8) {
    return fail(Errc::Usage, std::string(name(dtype)) + " does not have elements of " +
                                 std::to_string(item_bytes) + " bytes");
  }
  // The extent of the elements around the first one; the exporter vouches for it.
  int64_t lowest = 0;
  int64_t highest = 0;
  bool empty = false;
  for (size_t i = 0; i < array.shape.size(); ++i) {
    const int64_t length = array.shape[i];
    empty |= length == 0;
    const int64_t reach = length > 0 ? (length - 1) * array.strides[i] : 0;
    (reach < 0 ? lowest : highest) += reach;
  }
  if (empty) return make_view(dtype, array.shape, ByteSpan{});
  const std::byte* const first = array.data + lowest * static_cast<int64_t>(item_bytes);
  const ByteSpan storage(first, static_cast<size_t>(highest - lowest + 1) * item_bytes);
  return make_view(dtype, array.shape, array.strides, storage, -lowest);
}

py::Object owned_array(Tensor tensor) {
  auto held = std::make_unique<Tensor>(std::move(tensor));
  const Tensor& kept = *held;
  const py::Object owner = py::make_capsule(std::move(held));
  return to_numpy(kept, owner);
}

Tensor borrowed_tensor(py::Handle raw) {
  const auto array = py::cast<ReadOnlyArray>(raw[0]);
  return {value_or_raise(view_of(array, py::cast<std::string>(raw[1]))), nullptr};
}

}  // namespace assay::python
