// SPDX-License-Identifier: Apache-2.0
// Arithmetic of tensors and numbers. Integers stay integers, of the type that torch gives the
// result, except in true division; everything else is fp64.
#include <cmath>
#include <string>

#include "reference/aten/elementwise_map.hpp"

namespace assay::reference::aten {
namespace {

using Two = std::array<Operand, 2>;

Result<Two> self_and_other(const Arguments& arguments, std::string_view first = "self",
                           std::string_view second = "other") {
  ASSAY_TRY(Operand self, operand(arguments, first));
  ASSAY_TRY(Operand other, operand(arguments, second));
  return Two{std::move(self), std::move(other)};
}

// ---- Sums and products --------------------------------------------------------------------------

/// first + alpha second. Only alpha of floats may be one.
Result<Values> scaled_sum(const Arguments& arguments, const Two& operands, double sign) {
  ASSAY_TRY(const double alpha, arguments.real("alpha", 1.0));
  const double factor = sign * alpha;
  const auto whole_factor = static_cast<int64_t>(factor);
  if (factor == 1) return zip(operands, [](double a, double b) { return a + b; }, wrapping_add);
  return zip(
      operands, [=](double a, double b) { return a + factor * b; },
      [=](int64_t a, int64_t b) { return wrapping_add(a, wrapping_multiply(whole_factor, b)); });
}

template <int sign>
Result<Values> add(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, self_and_other(arguments));
  return scaled_sum(arguments, operands, sign);
}
Result<Values> rsub(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, self_and_other(arguments, "other", "self"));
  return scaled_sum(arguments, operands, -1);
}

Result<Values> mul(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, self_and_other(arguments));
  const auto is_complex_operand = [](const Operand& one) {
    return is_complex(one.tensor.view.dtype);
  };
  if (std::any_of(operands.begin(), operands.end(), is_complex_operand))
    return single(complex_product(operands[0].tensor, operands[1].tensor));
  return zip(operands, [](double a, double b) { return a * b; }, wrapping_multiply);
}

/// self + value tensor1 tensor2, or tensor1 / tensor2.
template <bool divide>
Result<Values> add_scaled_pair(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, operand(arguments, "self"));
  ASSAY_TRY(Operand first, operand(arguments, "tensor1"));
  ASSAY_TRY(Operand second, operand(arguments, "tensor2"));
  ASSAY_TRY(const double value, arguments.real("value", 1.0));
  const std::array<Operand, 3> operands{std::move(self), std::move(first), std::move(second)};
  if (divide)
    return single(
        zip_reals(operands, [=](double x, double a, double b) { return x + value * a / b; }));
  const auto factor = static_cast<int64_t>(value);
  return zip(
      operands, [=](double x, double a, double b) { return x + value * a * b; },
      [=](int64_t x, int64_t a, int64_t b) {
        return wrapping_add(x, wrapping_multiply(factor, wrapping_multiply(a, b)));
      });
}

/// self + weight (end - self), from the nearer end.
Result<Values> lerp(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, operand(arguments, "self"));
  ASSAY_TRY(Operand end, operand(arguments, "end"));
  ASSAY_TRY(Operand weight, operand(arguments, "weight"));
  const std::array<Operand, 3> operands{std::move(self), std::move(end), std::move(weight)};
  return single(zip_reals(operands, [](double a, double b, double w) {
    return std::fabs(w) < 0.5 ? a + w * (b - a) : b - (b - a) * (1 - w);
  }));
}

// ---- Quotients and remainders -------------------------------------------------------------------

/// floor(a / b) without the rounding of a / b.
double floor_quotient(double a, double b) {
  if (b == 0) return a / b;
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double whole = std::floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

/// The sign of the divisor, as Python's %.
double real_remainder(double a, double b) {
  const double rest = std::fmod(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

// Integers: the divisor is not 0; the one quotient that overflows wraps.
int64_t integer_quotient(int64_t a, int64_t b) {
  return b == -1 ? wrapping_multiply(a, -1) : a / b;
}
int64_t integer_rest(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }
int64_t integer_floor_quotient(int64_t a, int64_t b) {
  const int64_t rest = integer_rest(a, b);
  return integer_quotient(a, b) - (rest != 0 && (b < 0) != (rest < 0) ? 1 : 0);
}
int64_t integer_remainder(int64_t a, int64_t b) {
  const int64_t rest = integer_rest(a, b);
  return rest != 0 && (b < 0) != (rest < 0) ? rest + b : rest;
}

/// Integers divided by integers that must not be 0.
template <typename Real, typename Integer>
Result<Values> divided(const Arguments& arguments, const Two& operands, Real real,
                       Integer integer) {
  bool by_zero = false;
  ASSAY_TRY(Values values, zip(operands, real, [&](int64_t a, int64_t b) {
              by_zero |= b == 0;
              return b == 0 ? 0 : integer(a, b);
            }));
  if (by_zero) return fail(arguments.invalid("an integer divided by 0"));
  return values;
}

template <auto real, auto integer>
Result<Values> quotient(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, self_and_other(arguments));
  return divided(arguments, operands, real, integer);
}

Result<Values> true_quotient(const Two& operands) {
  return single(zip_reals(operands, [](double a, double b) { return a / b; }));
}

Result<Values> div(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, self_and_other(arguments));
  ASSAY_TRY(const std::string mode, arguments.text("rounding_mode", ""));
  if (mode == "floor") return divided(arguments, operands, floor_quotient, integer_floor_quotient);
  if (mode == "trunc")
    return divided(
        arguments, operands, [](double a, double b) { return std::trunc(a / b); },
        integer_quotient);
  if (!mode.empty()) return fail(arguments.unsupported("rounding mode ", mode));
  return true_quotient(operands);
}

// ---- Powers -------------------------------------------------------------------------------------

int64_t integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 == 0 ? 1 : -1) : 0;
  int64_t power = 1;
  for (; exponent != 0; exponent >>= 1) {
    if ((exponent & 1) != 0) power = wrapping_multiply(power, base);
    base = wrapping_multiply(base, base);
  }
  return power;
}

double real_power(double base, double exponent) { return std::pow(base, exponent); }

/// Of one exponent for all, which torch computes by products and roots where it can.
Result<Wide> fixed_power(const TensorView& base, double exponent) {
  const auto of = [&](auto f) { return map_values(base, f); };
  if (exponent == 0.5) return of([](double x) { return std::sqrt(x); });
  if (exponent == 2) return of([](double x) { return x * x; });
  if (exponent == 3) return of([](double x) { return x * x * x; });
  if (exponent == -0.5) return of([](double x) { return 1 / std::sqrt(x); });
  if (exponent == -1) return of([](double x) { return 1 / x; });
  if (exponent == -2) return of([](double x) { return 1 / (x * x); });
  return of([=](double x) { return std::pow(x, exponent); });
}

Result<Values> pow(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, self_and_other(arguments, "self", "exponent"));
  ASSAY_TRY(const DType type, result_type(operands));
  if (is_real(type) && operands[1].number) {
    ASSAY_TRY(const double exponent, arguments.real("exponent"));
    return single(fixed_power(operands[0].tensor.view, exponent));
  }
  return zip(operands, real_power, integer_power);
}

Result<Values> float_power(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two operands, self_and_other(arguments, "self", "exponent"));
  if (operands[1].number) {
    ASSAY_TRY(const double exponent, arguments.real("exponent"));
    return single(fixed_power(operands[0].tensor.view, exponent));
  }
  return single(zip_reals(operands, real_power));
}

// ---- The smaller and the larger -----------------------------------------------------------------

// NaN wins.
double smaller(double a, double b) { return std::isnan(a) || a < b ? a : b; }
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }
int64_t smaller_integer(int64_t a, int64_t b) { return std::min(a, b); }
int64_t larger_integer(int64_t a, int64_t b) { return std::max(a, b); }

template <size_t N>
Result<std::array<Operand, N>> exact(const std::array<Operand, N>& operands) {
  ASSAY_TRY(const std::vector<Operand> rounded, in_common_type(operands));
  std::array<Operand, N> result;
  std::copy(rounded.begin(), rounded.end(), result.begin());
  return result;
}

template <double (*real)(double, double), int64_t (*integer)(int64_t, int64_t)>
Result<Values> chosen(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Two given, self_and_other(arguments));
  ASSAY_TRY(const Two operands, exact(given));
  return zip(operands, real, integer);
}

double smaller_number(double a, double b) { return std::fmin(a, b); }
double larger_number(double a, double b) { return std::fmax(a, b); }

/// Bounds that are absent do nothing.
Result<Values> clamped(const Arguments& arguments, bool lower_bound, bool upper_bound) {
  constexpr std::string_view lower = "min", upper = "max";
  ASSAY_TRY(Operand self, operand(arguments, "self"));
  const bool has_lower = lower_bound && arguments.has(lower);
  const bool has_upper = upper_bound && arguments.has(upper);
  if (!has_lower && !has_upper) return single(self.tensor);
  if (has_lower && has_upper) {
    ASSAY_TRY(Operand low, operand(arguments, lower));
    ASSAY_TRY(Operand high, operand(arguments, upper));
    const std::array<Operand, 3> given{std::move(self), std::move(low), std::move(high)};
    ASSAY_TRY(const auto operands, exact(given));
    return zip(
        operands, [](double x, double a, double b) { return smaller(larger(x, a), b); },
        [](int64_t x, int64_t a, int64_t b) { return std::min(std::max(x, a), b); });
  }
  ASSAY_TRY(Operand bound, operand(arguments, has_lower ? lower : upper));
  ASSAY_TRY(const Two operands, exact(Two{std::move(self), std::move(bound)}));
  if (has_lower) return zip(operands, larger, larger_integer);
  return zip(operands, smaller, smaller_integer);
}

Result<Values> clamp(const Arguments& arguments, const EvaluateOptions&) {
  if (!arguments.has("min") && !arguments.has("max"))
    return fail(arguments.invalid("neither min nor max"));
  return clamped(arguments, true, true);
}
// ---- Functions of two values --------------------------------------------------------------------

double log_of_sum(double a, double b) {
  if (std::isinf(a) && a == b) return a;
  const double top = larger(a, b);
  return top + std::log1p(std::exp(-std::fabs(a - b)));
}
double log2_of_sum(double a, double b) {
  if (std::isinf(a) && a == b) return a;
  const double top = larger(a, b);
  return top + std::log1p(std::exp2(-std::fabs(a - b))) / M_LN2;
}
double x_log_y(double x, double y) {
  if (std::isnan(y)) return y;
  return x == 0 ? 0 : x * std::log(y);
}

constexpr auto kWithSign = [](double a, double b) { return std::copysign(a, b); };

template <auto f>
Result<Values> function(const Arguments& arguments, const EvaluateOptions&) {
  const std::string_view second = arguments.has("other") ? "other" : "values";
  ASSAY_TRY(const Two operands, self_and_other(arguments, "self", second));
  return single(zip_reals(operands, f));
}

constexpr Overloads kElementwise[] = {
    {"add.Scalar add.Tensor", OperatorClass::Arithmetic, add<1>},
    {"addcdiv.default", OperatorClass::Fused, add_scaled_pair<true>},
    {"addcmul.default", OperatorClass::Fused, add_scaled_pair<false>},
    {"atan2.default", OperatorClass::Function,
     function<[](double y, double x) { return std::atan2(y, x); }>},
    {"clamp.Tensor clamp.default", OperatorClass::Move, clamp},
    {"clamp_max.Tensor clamp_max.default", OperatorClass::Move, fixed<clamped, false, true>},
    {"clamp_min.Tensor clamp_min.default", OperatorClass::Move, fixed<clamped, true, false>},
    {"copysign.Scalar copysign.Tensor", OperatorClass::Move, function<kWithSign>},
    {"div.Scalar div.Scalar_mode div.Tensor div.Tensor_mode true_divide.Scalar true_divide.Tensor",
     OperatorClass::Arithmetic, div},
    {"float_power.Scalar float_power.Tensor_Scalar float_power.Tensor_Tensor",
     OperatorClass::Softmax, float_power},
    {"floor_divide.Scalar floor_divide.default", OperatorClass::Arithmetic,
     quotient<floor_quotient, integer_floor_quotient>},
    {"fmax.default", OperatorClass::Move, chosen<larger_number, larger_integer>},
    {"fmin.default", OperatorClass::Move, chosen<smaller_number, smaller_integer>},
    {"fmod.Scalar fmod.Tensor", OperatorClass::Arithmetic,
     quotient<[](double a, double b) { return std::fmod(a, b); }, integer_rest>},
    {"heaviside.default", OperatorClass::Move,
     function<[](double x, double at_zero) { return (x == 0  ? at_zero
                                                     : x > 0 ? 1
                                                             : 0); }>},
    {"hypot.default", OperatorClass::Function,
     function<[](double a, double b) { return std::hypot(a, b); }>},
    {"lerp.Scalar lerp.Tensor", OperatorClass::Fused, lerp},
    {"logaddexp.default", OperatorClass::Activation, function<log_of_sum>},
    {"logaddexp2.default", OperatorClass::Activation, function<log2_of_sum>},
    {"maximum.default", OperatorClass::Move, chosen<larger, larger_integer>},
    {"minimum.default", OperatorClass::Move, chosen<smaller, smaller_integer>},
    {"mul.Scalar mul.Tensor", OperatorClass::Arithmetic, mul},
    {"pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor", OperatorClass::Softmax, pow},
    {"remainder.Scalar remainder.Scalar_Tensor remainder.Tensor", OperatorClass::Arithmetic,
     quotient<real_remainder, integer_remainder>},
    {"rsub.Scalar rsub.Tensor", OperatorClass::Arithmetic, rsub},
    {"sub.Scalar sub.Tensor", OperatorClass::Arithmetic, add<-1>},
    {"xlogy.Scalar_Other xlogy.Scalar_Self xlogy.Tensor", OperatorClass::Function,
     function<x_log_y>},
};

}  // namespace

Tensor truth_result(const Whole& values) {
  Array<uint8_t> bytes(values.shape);
  std::transform(values.values.begin(), values.values.end(), bytes.values.begin(),
                 [](int64_t value) { return static_cast<uint8_t>(value != 0); });
  return truth_tensor(std::move(bytes));
}

Tensor whole_result(Whole values, DType dtype) {
  if (dtype == DType::Bool) return truth_result(values);
  if (info(dtype).element_bits < 64) {
    for (int64_t& value : values.values) value = wrap_to(value, dtype);
  }
  return to_tensor(std::move(values));
}

std::span<const Overloads> elementwise_overloads() { return kElementwise; }

}  // namespace assay::reference::aten
