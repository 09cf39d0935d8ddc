// SPDX-License-Identifier: Apache-2.0
// Types that NumPy has stay; quantised storages are renamed to their integers; other floats widen
// to float32, other complex types to complex64, and packed integers to a byte each.
#include "cli/convert/numpy_tensor.hpp"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cli/tensor_files.hpp"
#include "tensor/convert.hpp"

namespace assay::cli {
namespace {

/// The values, or the parts of complex ones, as `part` in a tensor of `dtype`; several of an
/// element along the last dimension.
Result<Tensor> spread_values(const TensorView& view, DType part, DType dtype) {
  const int per_element = values_per_element(view.dtype);
  Dims shape = view.shape;
  if (per_element > 1 && !is_complex(view.dtype)) {
    if (shape.empty()) shape.push_back(1);
    if (mul_overflows<int64_t>(shape[shape.size() - 1], per_element, &shape[shape.size() - 1]))
      return fail(Errc::TooLarge, "the converted tensor is too large");
  }
  ASSAY_TRY(auto bytes, values_as(view, part));
  ASSAY_TRY(const TensorView converted, make_view(dtype, shape, *bytes));
  return Tensor{converted, std::move(bytes)};
}

/// Quantised storages are integers under another name.
std::optional<DType> integer_of(DType dtype) {
  switch (dtype) {
    case DType::QInt8:
      return DType::Int8;
    case DType::QUInt8:
    case DType::Bits8:
      return DType::UInt8;
    case DType::QInt32:
      return DType::Int32;
    case DType::Bits16:
      return DType::UInt16;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool is_numpy_dtype(DType dtype) {
  switch (dtype) {
    case DType::Float64:
    case DType::Float32:
    case DType::Float16:
    case DType::Complex128:
    case DType::Complex64:
    case DType::Int64:
    case DType::Int32:
    case DType::Int16:
    case DType::Int8:
    case DType::UInt64:
    case DType::UInt32:
    case DType::UInt16:
    case DType::UInt8:
    case DType::Bool:
      return true;
    default:
      return false;
  }
}

Result<Tensor> numpy_tensor(const Tensor& tensor) {
  const DType dtype = tensor.view.dtype;
  if (is_numpy_dtype(dtype)) return tensor;
  if (const auto integer = integer_of(dtype)) {
    Tensor same = tensor;
    same.view.dtype = *integer;
    return same;
  }
  if (is_complex(dtype)) {
    // read_values() gives the parts one after the other, as they lie in a complex64.
    return spread_values(tensor.view, DType::Float32, DType::Complex64);
  }
  if (is_float(dtype)) return spread_values(tensor.view, DType::Float32, DType::Float32);
  if (info(dtype).kind == DTypeKind::SignedInt)
    return spread_values(tensor.view, DType::Int8, DType::Int8);
  return spread_values(tensor.view, DType::UInt8, DType::UInt8);
}

}  // namespace assay::cli
