// SPDX-License-Identifier: Apache-2.0
#include "python/tensor_array.hpp"

#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "python/module.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

nb::dlpack::dtype dlpack_type(nb::dlpack::dtype_code code, int bits) {
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(bits), 1};
}

/// The element type that NumPy shows; for types it lacks the unsigned integer of the same size.
nb::dlpack::dtype numpy_type(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  const int bits = std::max<int>(8, info(dtype).element_bits);
  switch (dtype) {
    case DType::Float64:
    case DType::Float32:
    case DType::Float16:
      return dlpack_type(Code::Float, bits);
    case DType::Complex128:
    case DType::Complex64:
      return dlpack_type(Code::Complex, bits);
    case DType::Int64:
    case DType::Int32:
    case DType::Int16:
    case DType::Int8:
    case DType::QInt8:
    case DType::QInt32:
      return dlpack_type(Code::Int, bits);
    case DType::Bool:
      return dlpack_type(Code::Bool, bits);
    default:
      return dlpack_type(Code::UInt, bits);
  }
}

}  // namespace

nb::object to_numpy(const Tensor& tensor, nb::handle owner) {
  const TensorView& view = tensor.view;
  static const std::byte kNothing[16] = {};
  std::vector<size_t> shape;
  std::vector<int64_t> strides;
  const std::byte* data = view.storage.data();
  if (info(view.dtype).element_bits < 8) {
    // Shapes of packed types count values, which have no address of their own.
    shape = {view.storage.size()};
    strides = {1};
  } else {
    shape.assign(view.shape.begin(), view.shape.end());
    strides.assign(view.strides.begin(), view.strides.end());
    if (data != nullptr) data += view.offset_elements * (info(view.dtype).element_bits / 8);
  }
  // NumPy takes no null pointer even for arrays without elements.
  if (data == nullptr || view.element_count() == 0) data = kNothing;
  const nb::ndarray<nb::numpy, nb::ro> array(data, shape.size(), shape.data(), owner,
                                             strides.data(), numpy_type(view.dtype));
  return nb::cast(array);
}

std::optional<DType> type_of_numpy(nb::dlpack::dtype type) {
  using enum DType;
  for (const DType dtype : {Float32, Float64, Int64, Float16, Int32, Bool, Int16, Int8, UInt8,
                            UInt16, UInt32, UInt64, Complex64, Complex128}) {
    if (numpy_type(dtype) == type) return dtype;
  }
  return std::nullopt;
}

Result<TensorView> view_of(const ReadOnlyArray& array, const std::string& dtype_name) {
  const std::optional<DType> dtype = dtype_from_name(dtype_name);
  if (!dtype) return fail(Errc::Usage, "unknown dtype '" + dtype_name + "'");
  return view_of(array, *dtype);
}

Result<TensorView> view_of(const ReadOnlyArray& array, DType dtype) {
  const size_t item_bytes = array.itemsize();
  if (info(dtype).element_bits != item_bytes * 8) {
    return fail(Errc::Usage, std::string(name(dtype)) + " does not have elements of " +
                                 std::to_string(item_bytes) + " bytes");
  }
  Dims shape;
  Dims strides;
  // The extent of the elements around the first one; the exporter vouches for it.
  int64_t lowest = 0;
  int64_t highest = 0;
  bool empty = false;
  for (size_t i = 0; i < array.ndim(); ++i) {
    const auto length = static_cast<int64_t>(array.shape(i));
    const int64_t stride = array.stride(i);
    shape.push_back(length);
    strides.push_back(stride);
    empty |= length == 0;
    const int64_t reach = length > 0 ? (length - 1) * stride : 0;
    (reach < 0 ? lowest : highest) += reach;
  }
  if (empty) return make_view(dtype, shape, ByteSpan{});
  const auto* first =
      static_cast<const std::byte*>(array.data()) + lowest * static_cast<int64_t>(item_bytes);
  const ByteSpan storage(first, static_cast<size_t>(highest - lowest + 1) * item_bytes);
  return make_view(dtype, shape, strides, storage, -lowest);
}

nb::object owned_array(Tensor tensor) {
  auto held = std::make_unique<Tensor>(std::move(tensor));
  const Tensor& kept = *held;
  const nb::capsule owner(held.release(),
                          [](void* pointer) noexcept { delete static_cast<Tensor*>(pointer); });
  return to_numpy(kept, owner);
}

Tensor borrowed_tensor(nb::handle raw) {
  const auto pair = nb::cast<nb::tuple>(raw);
  const auto array = nb::cast<ReadOnlyArray>(pair[0]);
  return {value_or_raise(view_of(array, nb::cast<std::string>(pair[1]))), nullptr};
}

}  // namespace assay::python
