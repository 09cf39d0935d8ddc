// SPDX-License-Identifier: Apache-2.0
// What the families of operators share: results, element types of several operands, shapes.
#pragma once
#include <initializer_list>
#include <span>

#include "reference/aten/registry.hpp"

namespace assay::reference::aten {

using Values = std::vector<Tensor>;

/// One result.
[[nodiscard]] inline Values single(Tensor tensor) {
  Values values;
  values.push_back(std::move(tensor));
  return values;
}
/// The same of a step that may have failed.
[[nodiscard]] Result<Values> single(Result<Tensor> tensor);
[[nodiscard]] Result<Values> single(Result<Wide> values);

/// Bytes 0 and 1 as a Bool tensor.
[[nodiscard]] Tensor truth_tensor(Array<uint8_t> values);
/// A tensor of rank 0.
[[nodiscard]] Tensor scalar_tensor(double value);
[[nodiscard]] Tensor scalar_tensor(int64_t value);
[[nodiscard]] Tensor scalar_tensor(bool value);

[[nodiscard]] inline bool is_real(DType dtype) { return is_float(dtype); }
[[nodiscard]] inline bool is_whole(DType dtype) {
  return is_integer(dtype) || dtype == DType::Bool;
}

/// An operand of arithmetic: a tensor, or a number that does not decide about element types.
struct Operand {
  Tensor tensor;  // of rank 0 for a number: Float64, Int64 or Bool
  bool number = false;
};
/// errors  Invalid (missing, neither tensor nor number)
[[nodiscard]] Result<Operand> operand(const Arguments& arguments, std::string_view name);

/// The element type of torch's result: tensors with dimensions decide before those of rank 0, those
/// before numbers, where they are of the same kind (truth value < integer < float). Float64 for
/// every float.
/// errors  Unsupported (complex, packed types)
[[nodiscard]] Result<DType> result_type(std::span<const Operand> operands);

/// Moves and comparisons happen in one element type, to which torch rounds numbers and tensors of
/// rank 0 first. The operands with those rounded to the float type of the tensors with dimensions
/// (of rank 0, when there is no other); nothing changes when all are integers. Arithmetic takes the
/// operands as they are.
[[nodiscard]] Result<std::vector<Operand>> in_common_type(std::span<const Operand> operands);
/// A number as a tensor of the element type holds it; for integers unchanged.
[[nodiscard]] double number_in(double value, DType dtype);

/// One element type for moves of several tensors into one: the common one, else the smallest that
/// holds all values.
[[nodiscard]] DType common_type(DType a, DType b);
/// The values in a type that holds them all (of common_type()); the tensor itself when it has that
/// type.
[[nodiscard]] Result<Tensor> widened(const Tensor& tensor, DType dtype);

/// Both in the common element type.
[[nodiscard]] Status join_types(Tensor& a, Tensor& b);
/// A number or a tensor of one element as a tensor of rank 0 in exactly this element type: rounded,
/// or by its low bits.
/// errors  Unsupported (complex and packed types)
[[nodiscard]] Result<Tensor> value_in(const Tensor& value, DType dtype);
/// `value` everywhere, as one element with strides of 0.
[[nodiscard]] Result<Tensor> constant(const Tensor& value, const Dims& shape);

/// torch's cast, without its rounding: floats stay as they are when the target is a float type,
/// whatever that is; floats become integers by cutting off digits (NaN and values out of range as
/// x86 converts them), integers become narrower by their low bits, everything but 0 becomes true;
/// integers to floats give Float64.
/// errors  Unsupported (complex and packed types)
[[nodiscard]] Result<Tensor> cast_to(const Tensor& tensor, DType dtype);

/// The shape that all operands broadcast to.
[[nodiscard]] Result<Dims> broadcast_shape(std::span<const Operand> operands);

/// An axis counted from the front; a tensor of rank 0 has axis 0 and -1.
/// errors  Invalid
[[nodiscard]] Result<size_t> axis(const Arguments& arguments, int64_t axis, size_t rank);

}  // namespace assay::reference::aten
