// SPDX-License-Identifier: Apache-2.0
// Casts and copies. A float stays the number it is when the target is a float type: the rounding of
// a cast is the
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
  return single(cast_to(self, *dtype));
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
  ASSAY_TRY(Tensor whole, broadcast_to(src.tensor, self.view.shape));
  return single(cast_to(whole, self.view.dtype));
}

constexpr Overloads kCasts[] = {
    {"_cast_Float.default", OperatorClass::Cast, to_named<DType::Float32>},
    {"_cast_Half.default", OperatorClass::Cast, to_named<DType::Float16>},
    {"_cast_Long.default", OperatorClass::Cast, to_named<DType::Int64>},
    {"_to_copy.default to.device to.dtype to.dtype_layout", OperatorClass::Cast, to},
    {"clone.default", OperatorClass::Move, same},
    {"contiguous.default", OperatorClass::Move, same, true},
    {"copy.default copy_.Tensor copy_.float copy_.int", OperatorClass::Cast, copy},
    {"to.other type_as.default", OperatorClass::Cast, type_of_other},
};

}  // namespace

std::span<const Overloads> cast_overloads() { return kCasts; }

}  // namespace assay::reference::aten
