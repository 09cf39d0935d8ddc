// SPDX-License-Identifier: Apache-2.0
// Comparison and logic. Truth values are exact, so numbers are first rounded to the tensor's type, as torch does.
#include <algorithm>
#include <cmath>
#include <string>

#include "reference/aten/elementwise_map.hpp"

namespace assay::reference::aten {
namespace {

using Two = std::array<Operand, 2>;

Result<Two> both(const Arguments& arguments) {
  ASSAY_TRY(Operand self, operand(arguments, "self"));
  ASSAY_TRY(Operand other, operand(arguments, "other"));
  return Two{std::move(self), std::move(other)};
}

/// Bool of a comparison that real values and integers share.
template <typename Compare>
Result<Values> compared(const Arguments& arguments, const Two& given, Compare compare) {
  const Result<DType> type = result_type(given);
  if (!type) return fail(named(arguments, type.error()));
  const Result<std::vector<Operand>> common = in_common_type(given);
  if (!common) return fail(named(arguments, common.error()));
  const Two operands{(*common)[0], (*common)[1]};
  if (!is_real(*type)) {
    // In the common type, which may be too narrow for a number.
    const DType common_integer = *type == DType::Bool ? DType::Int64 : *type;
    const Result<Whole> values = zip_integers(operands, [&](int64_t a, int64_t b) {
      return static_cast<int64_t>(compare(wrap_to(a, common_integer), wrap_to(b, common_integer)));
    });
    if (!values) return fail(named(arguments, values.error()));
    return single(truth_result(*values));
  }
  const Result<Dims> shape = broadcast_shape(operands);
  if (!shape) return fail(named(arguments, shape.error()));
  ASSAY_TRY_STATUS(checked_count(*shape));
  ASSAY_TRY(const BroadcastValues a, BroadcastValues::make(operands[0].tensor.view, *shape));
  ASSAY_TRY(const BroadcastValues b, BroadcastValues::make(operands[1].tensor.view, *shape));
  Array<uint8_t> result(*shape);
  std::array<double, kBlock> left;
  std::array<double, kBlock> right;
  for (int64_t first = 0; first < result.size(); first += kBlock) {
    const int64_t count = std::min(kBlock, result.size() - first);
    a.read(first, count, left.data());
    b.read(first, count, right.data());
    uint8_t* out = result.data() + first;
    for (int64_t i = 0; i < count; ++i) {
      const auto k = static_cast<size_t>(i);
      out[i] = static_cast<uint8_t>(compare(left[k], right[k]));
    }
  }
  return single(truth_tensor(std::move(result)));
}

struct Equal {
  bool operator()(auto a, auto b) const { return a == b; }
};
struct NotEqual {
  bool operator()(auto a, auto b) const { return a != b; }
};
struct Less {
  bool operator()(auto a, auto b) const { return a < b; }
};
struct LessEqual {
  bool operator()(auto a, auto b) const { return a <= b; }
};
struct Greater {
  bool operator()(auto a, auto b) const { return a > b; }
};
struct GreaterEqual {
  bool operator()(auto a, auto b) const { return a >= b; }
};
// Everything but 0 is true, NaN too.
struct And {
  bool operator()(auto a, auto b) const { return a != 0 && b != 0; }
};
struct Or {
  bool operator()(auto a, auto b) const { return a != 0 || b != 0; }
};
struct Xor {
  bool operator()(auto a, auto b) const { return (a != 0) != (b != 0); }
};

template <typename Compare>
Result<Values> compare(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, both(arguments));
  return compared(arguments, operands, Compare());
}

/// Bool of every value. Test: bool(double).
template <typename Test>
Result<Values> tested(const Arguments& arguments, Test test) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  const Result<Wide> values =
      map_values(self.tensor.view, [&](double x) { return static_cast<double>(test(x)); });
  if (!values) return fail(named(arguments, values.error()));
  Array<uint8_t> result(values->shape);
  std::transform(values->values.begin(), values->values.end(), result.values.begin(),
                 [](double x) { return static_cast<uint8_t>(x); });
  return single(truth_tensor(std::move(result)));
}

bool is_nan(double x) { return std::isnan(x); }
bool is_infinite(double x) { return std::isinf(x); }
bool is_finite(double x) { return std::isfinite(x); }
bool is_positive_infinity(double x) { return std::isinf(x) && x > 0; }
bool is_negative_infinity(double x) { return std::isinf(x) && x < 0; }
bool is_zero(double x) { return x == 0; }
bool has_sign(double x) { return std::signbit(x); }

template <bool (*predicate)(double)>
Result<Values> test(const Arguments& arguments, const EvaluateOptions&) {
  return tested(arguments, predicate);
}

/// The bits of integers; of truth values their logic. `last` is the shift that leaves nothing, or the sign.
template <typename Bits>
Result<Values> combined_bits(const Arguments& arguments, Bits bits) {
  ASSAY_TRY(const Two operands, both(arguments));
  const Result<DType> type = result_type(operands);
  if (!type) return fail(named(arguments, type.error()));
  if (is_real(*type)) return fail(arguments.invalid("operands that are no integers"));
  const int64_t width = info(*type).element_bits;
  const int64_t last = info(*type).kind == DTypeKind::SignedInt ? width - 1 : width;
  return zip(
      arguments, operands, [](double, double) { return 0.0; },
      [=](int64_t a, int64_t b) { return bits(a, b, last); });
}

int64_t and_bits(int64_t a, int64_t b, int64_t) { return a & b; }
int64_t or_bits(int64_t a, int64_t b, int64_t) { return a | b; }
int64_t xor_bits(int64_t a, int64_t b, int64_t) { return a ^ b; }
int64_t shift_left(int64_t a, int64_t b, int64_t last) {
  return b < 0 || b > last ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t shift_right(int64_t a, int64_t b, int64_t last) {
  return a >> (b < 0 || b > last ? last : b);
}

template <int64_t (*bits)(int64_t, int64_t, int64_t)>
Result<Values> bitwise(const Arguments& arguments, const EvaluateOptions&) {
  return combined_bits(arguments, bits);
}

Result<Values> bitwise_not(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  const DType type = self.tensor.view.dtype;
  if (!is_whole(type)) return fail(arguments.invalid("an operand that is no integer"));
  Result<Whole> values = zip_integers(std::array<Operand, 1>{self}, [&](int64_t x) {
    return type == DType::Bool ? static_cast<int64_t>(x == 0) : ~x;
  });
  if (!values) return fail(named(arguments, std::move(values).error()));
  return single(whole_result(*std::move(values), type));
}

/// |self - other| <= atol + rtol |other|
Result<Values> isclose(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, both(arguments));
  ASSAY_TRY(const double relative, arguments.real("rtol", 1e-5));
  ASSAY_TRY(const double absolute, arguments.real("atol", 1e-8));
  ASSAY_TRY(const bool equal_nan, arguments.truth("equal_nan", false));
  const auto close = [=](auto left, auto right) {
    const auto a = static_cast<double>(left);
    const auto b = static_cast<double>(right);
    if (left == right || (equal_nan && std::isnan(a) && std::isnan(b))) return true;
    return std::isfinite(b) && std::fabs(a - b) <= absolute + std::fabs(relative * b) &&
           std::isfinite(a);
  };
  return compared(arguments, operands, close);
}

/// Which elements stand among the others.
Result<Values> isin(const Arguments& arguments, const EvaluateOptions&) {
  const bool many = arguments.has("elements");
  const bool tests = arguments.has("test_elements");
  ASSAY_TRY(const Operand elements, operand(arguments, many ? "elements" : "element"));
  ASSAY_TRY(const Operand wanted, operand(arguments, tests ? "test_elements" : "test_element"));
  ASSAY_TRY(const bool invert, arguments.truth("invert", false));
  const auto found_in = [&]<typename T>(const Array<T>& values, Array<T> list) {
    std::sort(list.values.begin(), list.values.end());
    Array<uint8_t> found(values.shape);
    std::transform(values.values.begin(), values.values.end(), found.values.begin(), [&](T x) {
      return std::binary_search(list.values.begin(), list.values.end(), x) != invert;
    });
    return truth_tensor(std::move(found));
  };
  if (is_whole(elements.tensor.view.dtype) && is_whole(wanted.tensor.view.dtype)) {
    ASSAY_TRY(const Whole values, whole(elements.tensor.view));
    ASSAY_TRY(Whole list, whole(wanted.tensor.view));
    return single(found_in(values, std::move(list)));
  }
  const Operand given[] = {elements, wanted};
  const Result<std::vector<Operand>> common = in_common_type(given);
  if (!common) return fail(named(arguments, common.error()));
  ASSAY_TRY(const Wide values, widen((*common)[0].tensor.view));
  ASSAY_TRY(Wide list, widen((*common)[1].tensor.view));
  // NaN equals nothing, and would spoil the order.
  std::erase_if(list.values, [](double x) { return std::isnan(x); });
  Tensor found = found_in(values, std::move(list));
  return single(std::move(found));
}

constexpr Overload kComparisons[] = {
    {"aten.bitwise_and.Scalar", OperatorClass::Integer, bitwise<and_bits>},
    {"aten.bitwise_and.Scalar_Tensor", OperatorClass::Integer, bitwise<and_bits>},
    {"aten.bitwise_and.Tensor", OperatorClass::Integer, bitwise<and_bits>},
    {"aten.bitwise_left_shift.Scalar_Tensor", OperatorClass::Integer, bitwise<shift_left>},
    {"aten.bitwise_left_shift.Tensor", OperatorClass::Integer, bitwise<shift_left>},
    {"aten.bitwise_left_shift.Tensor_Scalar", OperatorClass::Integer, bitwise<shift_left>},
    {"aten.__lshift__.Scalar", OperatorClass::Integer, bitwise<shift_left>},
    {"aten.__lshift__.Tensor", OperatorClass::Integer, bitwise<shift_left>},
    {"aten.__rshift__.Scalar", OperatorClass::Integer, bitwise<shift_right>},
    {"aten.__rshift__.Tensor", OperatorClass::Integer, bitwise<shift_right>},
    {"aten.bitwise_not.default", OperatorClass::Integer, bitwise_not},
    {"aten.bitwise_or.Scalar", OperatorClass::Integer, bitwise<or_bits>},
    {"aten.bitwise_or.Scalar_Tensor", OperatorClass::Integer, bitwise<or_bits>},
    {"aten.bitwise_or.Tensor", OperatorClass::Integer, bitwise<or_bits>},
    {"aten.bitwise_right_shift.Scalar_Tensor", OperatorClass::Integer, bitwise<shift_right>},
    {"aten.bitwise_right_shift.Tensor", OperatorClass::Integer, bitwise<shift_right>},
    {"aten.bitwise_right_shift.Tensor_Scalar", OperatorClass::Integer, bitwise<shift_right>},
    {"aten.bitwise_xor.Scalar", OperatorClass::Integer, bitwise<xor_bits>},
    {"aten.bitwise_xor.Scalar_Tensor", OperatorClass::Integer, bitwise<xor_bits>},
    {"aten.bitwise_xor.Tensor", OperatorClass::Integer, bitwise<xor_bits>},
    {"aten.eq.Scalar", OperatorClass::Integer, compare<Equal>},
    {"aten.eq.Tensor", OperatorClass::Integer, compare<Equal>},
    {"aten.ge.Scalar", OperatorClass::Integer, compare<GreaterEqual>},
    {"aten.ge.Tensor", OperatorClass::Integer, compare<GreaterEqual>},
    {"aten.gt.Scalar", OperatorClass::Integer, compare<Greater>},
    {"aten.gt.Tensor", OperatorClass::Integer, compare<Greater>},
    {"aten.isclose.default", OperatorClass::Integer, isclose},
    {"aten.isfinite.default", OperatorClass::Integer, test<is_finite>},
    {"aten.isin.Scalar_Tensor", OperatorClass::Integer, isin},
    {"aten.isin.Tensor_Scalar", OperatorClass::Integer, isin},
    {"aten.isin.Tensor_Tensor", OperatorClass::Integer, isin},
    {"aten.isinf.default", OperatorClass::Integer, test<is_infinite>},
    {"aten.isnan.default", OperatorClass::Integer, test<is_nan>},
    {"aten.isneginf.default", OperatorClass::Integer, test<is_negative_infinity>},
    {"aten.isposinf.default", OperatorClass::Integer, test<is_positive_infinity>},
    {"aten.le.Scalar", OperatorClass::Integer, compare<LessEqual>},
    {"aten.le.Tensor", OperatorClass::Integer, compare<LessEqual>},
    {"aten.logical_and.default", OperatorClass::Integer, compare<And>},
    {"aten.logical_not.default", OperatorClass::Integer, test<is_zero>},
    {"aten.logical_or.default", OperatorClass::Integer, compare<Or>},
    {"aten.logical_xor.default", OperatorClass::Integer, compare<Xor>},
    {"aten.lt.Scalar", OperatorClass::Integer, compare<Less>},
    {"aten.lt.Tensor", OperatorClass::Integer, compare<Less>},
    {"aten.ne.Scalar", OperatorClass::Integer, compare<NotEqual>},
    {"aten.ne.Tensor", OperatorClass::Integer, compare<NotEqual>},
    {"aten.signbit.default", OperatorClass::Integer, test<has_sign>},
};

}  // namespace

std::span<const Overload> comparison_overloads() { return kComparisons; }

}  // namespace assay::reference::aten
