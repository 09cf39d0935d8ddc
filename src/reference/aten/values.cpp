// SPDX-License-Identifier: Apache-2.0
// torch's rules of element types: which type operands have in common, numbers rounded to it, and
// casts, which leave floats as wide as they are and cut integers off as x86 does.
#include "reference/aten/values.hpp"

#include <algorithm>
#include <cmath>

#include "reference/elementwise/broadcast.hpp"
#include "reference/movement/views.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference::aten {
namespace {

template <typename T>
Tensor one_element(T value, DType dtype) {
  auto held = std::make_shared<T>(value);
  TensorView view;
  view.dtype = dtype;
  view.storage = ByteSpan(reinterpret_cast<const std::byte*>(held.get()), sizeof(T));
  return {view, std::move(held)};
}

/// Of the kinds that promotion orders: truth value 0, integer 1, float 2.
int category(DType dtype) { return dtype == DType::Bool ? 0 : is_integer(dtype) ? 1 : 2; }

bool is_unsigned(DType dtype) { return info(dtype).kind == DTypeKind::UnsignedInt; }

DType common_integer(DType a, DType b) {
  if (a == DType::Bool) return b;
  if (b == DType::Bool) return a;
  const int bits_a = info(a).element_bits;
  const int bits_b = info(b).element_bits;
  if (is_unsigned(a) == is_unsigned(b)) return bits_a >= bits_b ? a : b;
  const DType with_sign = is_unsigned(a) ? b : a;
  const int bits_without = is_unsigned(a) ? bits_a : bits_b;
  if (info(with_sign).element_bits > bits_without) return with_sign;
  return bits_without == 8 ? DType::Int16 : bits_without == 16 ? DType::Int32 : DType::Int64;
}

/// float64 to integer as cvttsd2si does, 64 bits or 32: out of range gives the smallest integer.
template <typename T>
int64_t cut_off(double value) {
  constexpr double kLimit = sizeof(T) == 8 ? 0x1p63 : 0x1p31;
  if (!(value > -kLimit - 1 && value < kLimit)) return std::numeric_limits<T>::min();
  return static_cast<int64_t>(value);
}

Result<Tensor> whole_numbers(const Tensor& tensor, DType dtype) {
  Whole values;
  if (is_whole(tensor.view.dtype)) {
    ASSAY_TRY(values, whole(tensor.view));
    for (int64_t& value : values.values)
      value = dtype == DType::Bool ? value != 0 : wrap_to(value, dtype);
  } else {
    ASSAY_TRY(const Wide reals, widen(tensor.view));
    values = Whole(reals.shape);
    const bool wide = info(dtype).element_bits == 64 || dtype == DType::UInt32;
    std::transform(reals.values.begin(), reals.values.end(), values.values.begin(), [&](double x) {
      if (dtype == DType::Bool) return static_cast<int64_t>(x != 0);
      return wrap_to(wide ? cut_off<int64_t>(x) : cut_off<int32_t>(x), dtype);
    });
  }
  if (dtype == DType::Bool) {
    Array<uint8_t> bytes(values.shape);
    std::transform(values.values.begin(), values.values.end(), bytes.values.begin(),
                   [](int64_t value) { return static_cast<uint8_t>(value); });
    return truth_tensor(std::move(bytes));
  }
  return to_tensor(std::move(values));
}

}  // namespace

Result<Values> single(Result<Tensor> tensor) {
  return std::move(tensor).transform([](Tensor found) { return single(std::move(found)); });
}

Result<Values> single(Result<Wide> values) {
  return std::move(values).transform(
      [](Wide found) { return single(to_tensor(std::move(found))); });
}

Tensor truth_tensor(Array<uint8_t> values) {
  auto held = std::make_shared<Array<uint8_t>>(std::move(values));
  TensorView view;
  view.dtype = DType::Bool;
  view.shape = held->shape;
  view.strides = contiguous_strides(held->shape);
  view.storage = ByteSpan(reinterpret_cast<const std::byte*>(held->data()), held->values.size());
  return {view, std::move(held)};
}

Tensor scalar_tensor(double value) { return one_element(value, DType::Float64); }
Tensor scalar_tensor(int64_t value) { return one_element(value, DType::Int64); }
Tensor scalar_tensor(bool value) { return one_element(static_cast<uint8_t>(value), DType::Bool); }

Result<Operand> operand(const Arguments& arguments, std::string_view name) {
  if (arguments.is_tensor(name)) {
    ASSAY_TRY(Tensor tensor, arguments.tensor(name));
    return Operand{std::move(tensor), false};
  }
  if (arguments.is_truth(name)) {
    ASSAY_TRY(const bool value, arguments.truth(name));
    return Operand{scalar_tensor(value), true};
  }
  if (arguments.is_real_scalar(name)) {
    ASSAY_TRY(const double value, arguments.real(name));
    return Operand{scalar_tensor(value), true};
  }
  ASSAY_TRY(const int64_t value, arguments.integer(name));
  return Operand{scalar_tensor(value), true};
}

Result<DType> result_type(std::span<const Operand> operands) {
  // Numbers, tensors of rank 0, tensors with dimensions.
  std::optional<DType> found[3];
  for (const Operand& one : operands) {
    const DType dtype = one.tensor.view.dtype;
    if (!is_whole(dtype) && !is_real(dtype))
      return fail(Errc::Unsupported, dtype, " has no real values");
    if (is_real(dtype)) return DType::Float64;
    std::optional<DType>& place = found[one.number ? 0 : one.tensor.view.shape.empty() ? 1 : 2];
    place = place ? common_integer(*place, dtype) : dtype;
  }
  DType type = found[2].value_or(found[1].value_or(found[0].value_or(DType::Bool)));
  for (const int weaker : {1, 0}) {
    if (found[weaker] && category(*found[weaker]) > category(type)) type = *found[weaker];
  }
  return type;
}

double number_in(double value, DType dtype) {
  return is_real(dtype) ? round_to(value, dtype) : value;
}

Result<std::vector<Operand>> in_common_type(std::span<const Operand> operands) {
  std::vector<Operand> result(operands.begin(), operands.end());
  std::optional<DType> type;  // of the real tensors with dimensions, else of those of rank 0
  for (const bool dimensions : {true, false}) {
    for (const Operand& one : operands) {
      const TensorView& view = one.tensor.view;
      if (one.number || !is_real(view.dtype) || view.shape.empty() == dimensions) continue;
      type = type ? common_type(*type, view.dtype) : view.dtype;
    }
    if (type) break;
  }
  if (!type || *type == DType::Float64) return result;
  for (Operand& one : result) {
    const TensorView& view = one.tensor.view;
    if (!view.shape.empty() || !is_real(view.dtype) || view.dtype == *type) continue;
    ASSAY_TRY(one.tensor, narrow(view, *type));
  }
  return result;
}

DType common_type(DType a, DType b) {
  if (a == b) return a;
  if (is_whole(a) && is_whole(b)) return common_integer(a, b);
  if (!is_real(a) || !is_real(b)) return DType::Float64;
  const int bits_a = info(a).element_bits;
  const int bits_b = info(b).element_bits;
  if (bits_a == bits_b) return bits_a == 16 ? DType::Float32 : DType::Float64;
  // One of 8 bits beside one of 16: the powers of two (float8_e8m0fnu) do not fit into float16;
  // float32 holds them all.
  const DType wider = bits_a > bits_b ? a : b;
  return info(wider).element_bits == 16 ? DType::Float32 : wider;
}

Result<Tensor> widened(const Tensor& tensor, DType dtype) {
  if (tensor.view.dtype == dtype) return tensor;
  return narrow(tensor.view, dtype);
}

Status join_types(Tensor& a, Tensor& b) {
  const DType dtype = common_type(a.view.dtype, b.view.dtype);
  ASSAY_TRY(a, widened(a, dtype));
  ASSAY_TRY(b, widened(b, dtype));
  return {};
}

Result<Tensor> value_in(const Tensor& value, DType dtype) {
  if (value.view.element_count() != 1)
    return fail(Errc::Invalid, "a value of shape ", value.view.shape, " where one is needed");
  Tensor one = value;
  one.view.shape = {};
  one.view.strides = {};
  if (value.view.dtype == dtype) return one;
  if (is_real(dtype)) return narrow(one.view, dtype);
  if (!is_whole(dtype) || info(dtype).element_bits < 8)
    return fail(Errc::Unsupported, "a value of type ", dtype);
  ASSAY_TRY(const Tensor integer, cast_to(one, dtype));
  ASSAY_TRY(const Whole number, whole(integer.view));
  const uint8_t element_bytes = info(dtype).element_bits / 8;
  // Little-endian: the low bytes come first.
  auto bytes = std::make_shared<int64_t>(number.values[0]);
  ASSAY_TRY(const TensorView view,
            make_view(dtype, {},
                      ByteSpan(reinterpret_cast<const std::byte*>(bytes.get()), element_bytes)));
  return Tensor{view, std::move(bytes)};
}

Result<Tensor> constant(const Tensor& value, const Dims& shape) {
  ASSAY_TRY_STATUS(checked_count(shape));
  return broadcast_to(value, shape);
}

Result<Tensor> cast_to(const Tensor& tensor, DType dtype) {
  const DType from = tensor.view.dtype;
  if (from == dtype || (is_complex(from) && is_complex(dtype))) return tensor;
  if ((!is_whole(from) && !is_real(from)) || (!is_whole(dtype) && !is_real(dtype)))
    return fail(Errc::Unsupported, "no reference for a cast from ", from, " to ", dtype);
  if (!is_real(dtype)) return whole_numbers(tensor, dtype);
  if (is_real(from)) return tensor;
  ASSAY_TRY(Wide values, widen(tensor.view));
  return to_tensor(std::move(values));
}

Result<Dims> broadcast_shape(std::span<const Operand> operands) {
  Dims shape;
  for (const Operand& one : operands) {
    ASSAY_TRY(shape, reference::broadcast_shape(shape, one.tensor.view.shape));
  }
  return shape;
}

Result<size_t> axis(const Arguments& arguments, int64_t axis, size_t rank) {
  const Result<size_t> found = axis_of(axis, std::max<size_t>(rank, 1));
  if (!found) return fail(arguments.invalid(found.error().message));
  return *found;
}

}  // namespace assay::reference::aten
