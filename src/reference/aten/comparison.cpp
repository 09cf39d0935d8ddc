// SPDX-License-Identifier: Apache-2.0
// Comparison and logic. Truth values are exact, so numbers are first rounded to the tensor's type,
// as torch does.
#include <algorithm>
#include <cmath>
#include <functional>
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
Result<Values> compared(const Two& given, Compare compare) {
  ASSAY_TRY(const DType type, result_type(given));
  ASSAY_TRY(const std::vector<Operand> common, in_common_type(given));
  const Two operands{common[0], common[1]};
  if (!is_real(type)) {
    // In the common type, which may be too narrow for a number.
    const DType common_integer = type == DType::Bool ? DType::Int64 : type;
    ASSAY_TRY(const Whole values, zip_integers(views_of(operands), [&](int64_t a, int64_t b) {
                return static_cast<int64_t>(
                    compare(wrap_to(a, common_integer), wrap_to(b, common_integer)));
              }));
    return single(truth_result(values));
  }
  ASSAY_TRY(Array<uint8_t> result, zip_values<uint8_t>(views_of(operands), compare));
  return single(truth_tensor(std::move(result)));
}

// Everything but 0 is true, NaN too.
constexpr auto kAnd = [](auto a, auto b) { return a != 0 && b != 0; };
constexpr auto kOr = [](auto a, auto b) { return a != 0 || b != 0; };
constexpr auto kXor = [](auto a, auto b) { return (a != 0) != (b != 0); };

template <auto kCompare>
Result<Values> compare(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, both(arguments));
  return compared(operands, kCompare);
}

/// Bool of every value. Test: bool(double).
template <typename Test>
Result<Values> tested(const Arguments& arguments, Test test) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  ASSAY_TRY(const Wide values,
            map_values(self.tensor.view, [&](double x) { return static_cast<double>(test(x)); }));
  Array<uint8_t> result(values.shape);
  std::transform(values.values.begin(), values.values.end(), result.values.begin(),
                 [](double x) { return static_cast<uint8_t>(x); });
  return single(truth_tensor(std::move(result)));
}

template <auto predicate>
Result<Values> test(const Arguments& arguments, const EvaluateOptions&) {
  return tested(arguments, predicate);
}

/// The bits of integers; of truth values their logic. `last` is the shift that leaves nothing, or
/// the sign.
template <typename Bits>
Result<Values> combined_bits(const Arguments& arguments, Bits bits) {
  ASSAY_TRY(const Two operands, both(arguments));
  ASSAY_TRY(const DType type, result_type(operands));
  if (is_real(type)) return fail(arguments.invalid("operands that are no integers"));
  const int64_t width = info(type).element_bits;
  const int64_t last = info(type).kind == DTypeKind::SignedInt ? width - 1 : width;
  return zip(
      operands, [](double, double) { return 0.0; },
      [=](int64_t a, int64_t b) { return bits(a, b, last); });
}

constexpr auto kAndBits = [](int64_t a, int64_t b, int64_t) { return a & b; };
constexpr auto kOrBits = [](int64_t a, int64_t b, int64_t) { return a | b; };
constexpr auto kXorBits = [](int64_t a, int64_t b, int64_t) { return a ^ b; };
int64_t shift_left(int64_t a, int64_t b, int64_t last) {
  return b < 0 || b > last ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t shift_right(int64_t a, int64_t b, int64_t last) {
  return a >> (b < 0 || b > last ? last : b);
}

template <auto bits>
Result<Values> bitwise(const Arguments& arguments, const EvaluateOptions&) {
  return combined_bits(arguments, bits);
}

Result<Values> bitwise_not(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  const DType type = self.tensor.view.dtype;
  if (!is_whole(type)) return fail(arguments.invalid("an operand that is no integer"));
  ASSAY_TRY(Whole values, zip_integers(Views<1>{self.tensor.view}, [&](int64_t x) {
              return type == DType::Bool ? static_cast<int64_t>(x == 0) : ~x;
            }));
  return single(whole_result(std::move(values), type));
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
  return compared(operands, close);
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
  ASSAY_TRY(const std::vector<Operand> common, in_common_type(given));
  ASSAY_TRY(const Wide values, widen(common[0].tensor.view));
  ASSAY_TRY(Wide list, widen(common[1].tensor.view));
  // NaN equals nothing, and would spoil the order.
  std::erase_if(list.values, [](double x) { return std::isnan(x); });
  Tensor found = found_in(values, std::move(list));
  return single(std::move(found));
}

}  // namespace

std::span<const Overloads> comparison_overloads() {
  using enum OperatorClass;
  static constexpr Overloads kTable[] = {
      {"bitwise_and.Scalar bitwise_and.Scalar_Tensor bitwise_and.Tensor", Integer,
       bitwise<kAndBits>},
      {"bitwise_left_shift.Scalar_Tensor bitwise_left_shift.Tensor "
       "bitwise_left_shift.Tensor_Scalar __lshift__.Scalar __lshift__.Tensor",
       Integer, bitwise<shift_left>},
      {"__rshift__.Scalar __rshift__.Tensor bitwise_right_shift.Scalar_Tensor "
       "bitwise_right_shift.Tensor bitwise_right_shift.Tensor_Scalar",
       Integer, bitwise<shift_right>},
      {"bitwise_not.default", Integer, bitwise_not},
      {"bitwise_or.Scalar bitwise_or.Scalar_Tensor bitwise_or.Tensor", Integer, bitwise<kOrBits>},
      {"bitwise_xor.Scalar bitwise_xor.Scalar_Tensor bitwise_xor.Tensor", Integer,
       bitwise<kXorBits>},
      {"eq.Scalar eq.Tensor", Integer, compare<std::equal_to<>{}>},
      {"ge.Scalar ge.Tensor", Integer, compare<std::greater_equal<>{}>},
      {"gt.Scalar gt.Tensor", Integer, compare<std::greater<>{}>},
      {"isclose.default", Integer, isclose},
      {"isfinite.default", Integer, test<[](double x) { return std::isfinite(x); }>},
      {"isin.Scalar_Tensor isin.Tensor_Scalar isin.Tensor_Tensor", Integer, isin},
      {"isinf.default", Integer, test<[](double x) { return std::isinf(x); }>},
      {"isnan.default", Integer, test<[](double x) { return std::isnan(x); }>},
      {"isneginf.default", Integer, test<[](double x) { return std::isinf(x) && (x < 0); }>},
      {"isposinf.default", Integer, test<[](double x) { return std::isinf(x) && (x > 0); }>},
      {"le.Scalar le.Tensor", Integer, compare<std::less_equal<>{}>},
      {"logical_and.default", Integer, compare<kAnd>},
      {"logical_not.default", Integer, test<[](double x) { return x == 0; }>},
      {"logical_or.default", Integer, compare<kOr>},
      {"logical_xor.default", Integer, compare<kXor>},
      {"lt.Scalar lt.Tensor", Integer, compare<std::less<>{}>},
      {"ne.Scalar ne.Tensor", Integer, compare<std::not_equal_to<>{}>},
      {"signbit.default", Integer, test<[](double x) { return std::signbit(x); }>},
  };
  return kTable;
}

}  // namespace assay::reference::aten
