// SPDX-License-Identifier: Apache-2.0
// Casts and copies. A float stays the number it is when the target is a float type: the rounding of a cast is the
// error that a correct kernel may have, so the reference has none.
#include "reference/movement/views.hpp"

#include <string>

#include "reference/aten/values.hpp"

namespace assay::reference::aten {
namespace {

/// self in the type, or as it is without one.
Result<Values> cast(const Arguments& arguments, std::string_view operand,
                    std::optional<DType> dtype) {
  ASSAY_TRY(Tensor self, arguments.tensor(operand));
  if (!dtype) return single(std::move(self));
  return single(arguments, cast_to(self, *dtype));
}

Result<Values> to(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const std::optional<DType> dtype, arguments.dtype());
  return cast(arguments, "self", dtype);
}

Result<Values> type_of_other(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor other, arguments.tensor("other"));
  return cast(arguments, "self", other.view.dtype);
}

template <DType dtype>
Result<Values> to_named(const Arguments& arguments, const EvaluateOptions&) {
  return cast(arguments, "self", dtype);
}

Result<Values> same(const Arguments& arguments, const EvaluateOptions&) {
  return cast(arguments, "self", std::nullopt);
}

/// src in self's shape and type.
Result<Values> copy(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  const std::string_view source = arguments.has("src") ? "src" : "other";
  ASSAY_TRY(const Operand src, operand(arguments, source));
  Result<Tensor> whole = broadcast_to(src.tensor, self.view.shape);
  if (!whole) return fail(named(arguments, std::move(whole).error()));
  return single(arguments, cast_to(*whole, self.view.dtype));
}

constexpr Overload kCasts[] = {
    {"aten._cast_Float.default", OperatorClass::Cast, to_named<DType::Float32>},
    {"aten._cast_Half.default", OperatorClass::Cast, to_named<DType::Float16>},
    {"aten._cast_Long.default", OperatorClass::Cast, to_named<DType::Int64>},
    {"aten._to_copy.default", OperatorClass::Cast, to},
    {"aten.clone.default", OperatorClass::Move, same},
    {"aten.contiguous.default", OperatorClass::Move, same, true},
    {"aten.copy.default", OperatorClass::Cast, copy},
    {"aten.copy_.Tensor", OperatorClass::Cast, copy},
    {"aten.copy_.float", OperatorClass::Cast, copy},
    {"aten.copy_.int", OperatorClass::Cast, copy},
    {"aten.to.device", OperatorClass::Cast, to},
    {"aten.to.dtype", OperatorClass::Cast, to},
    {"aten.to.dtype_layout", OperatorClass::Cast, to},
    {"aten.to.other", OperatorClass::Cast, type_of_other},
    {"aten.type_as.default", OperatorClass::Cast, type_of_other},
};

}  // namespace

std::span<const Overload> cast_overloads() { return kCasts; }

}  // namespace assay::reference::aten
