// SPDX-License-Identifier: Apache-2.0
// Functions of one value.
#include <cmath>
#include <limits>
#include <string>

#include "reference/aten/elementwise_map.hpp"

namespace assay::reference::aten {
namespace {

Result<Operand> self_of(const Arguments& arguments) { return operand(arguments, "self"); }

/// Always real: integers are widened.
template <double (*f)(double)>
Result<Values> real(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, self_of(arguments));
  return single(arguments, map_values(self.tensor.view, f));
}

/// Integers stay integers.
template <double (*f)(double), int64_t (*g)(int64_t)>
Result<Values> either(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, self_of(arguments));
  return zip(arguments, std::array<Operand, 1>{std::move(self)}, f, g);
}

double reciprocal(double x) { return 1 / x; }
double square_root(double x) { return std::sqrt(x); }
double inverse_root(double x) { return 1 / std::sqrt(x); }
double exponential(double x) { return std::exp(x); }
double power_of_two(double x) { return std::exp2(x); }
double exponential_less_one(double x) { return std::expm1(x); }
double logarithm(double x) { return std::log(x); }
double logarithm2(double x) { return std::log2(x); }
double logarithm10(double x) { return std::log10(x); }
double logarithm_of_one_more(double x) { return std::log1p(x); }
double sine(double x) { return std::sin(x); }
double cosine(double x) { return std::cos(x); }
double tangent(double x) { return std::tan(x); }
double arcsine(double x) { return std::asin(x); }
double arccosine(double x) { return std::acos(x); }
double arctangent(double x) { return std::atan(x); }
double hyperbolic_sine(double x) { return std::sinh(x); }
double hyperbolic_cosine(double x) { return std::cosh(x); }
double hyperbolic_tangent(double x) { return std::tanh(x); }
double error_function(double x) { return std::erf(x); }
double error_function_rest(double x) { return std::erfc(x); }
double logistic(double x) { return sigmoid(x); }
double radians(double x) { return x * (M_PI / 180); }
double entropy(double x) {
  if (std::isnan(x)) return x;
  return x > 0 ? -x * std::log(x) : x == 0 ? 0 : -std::numeric_limits<double>::infinity();
}

double negated(double x) { return -x; }
double magnitude(double x) { return std::fabs(x); }
double squared(double x) { return x * x; }
double rounded_down(double x) { return std::floor(x); }
double rounded_up(double x) { return std::ceil(x); }
double rounded(double x) { return round_half_even(x); }
double cut(double x) { return std::trunc(x); }
double fraction(double x) { return x - std::trunc(x); }
double sign(double x) { return std::isnan(x) ? 0 : static_cast<double>((x > 0) - (x < 0)); }

int64_t negated_integer(int64_t x) { return wrapping_multiply(x, -1); }
int64_t integer_magnitude(int64_t x) { return x < 0 ? wrapping_multiply(x, -1) : x; }
int64_t squared_integer(int64_t x) { return wrapping_multiply(x, x); }
int64_t integer_sign(int64_t x) { return (x > 0) - (x < 0); }
int64_t same_integer(int64_t x) { return x; }

/// To `decimals` digits behind the point, or before it where negative.
Result<Values> round_decimals(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, self_of(arguments));
  ASSAY_TRY(const int64_t decimals, arguments.integer("decimals"));
  const double power = std::pow(10.0, std::fabs(static_cast<double>(decimals)));
  const bool negative = decimals < 0;
  return zip(
      arguments, std::array<Operand, 1>{std::move(self)},
      [=](double x) {
        return negative ? round_half_even(x / power) * power : round_half_even(x * power) / power;
      },
      same_integer);
}

double largest_of(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return 65504;
    case DType::BFloat16:
      return 0x1.FEp127;
    case DType::Float32:
      return std::numeric_limits<float>::max();
    default:
      return std::numeric_limits<double>::max();
  }
}

/// Infinities become the largest values of the operand's type.
Result<Values> nan_to_num(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, self_of(arguments));
  const DType dtype = self.tensor.view.dtype;
  const double largest = largest_of(dtype);
  ASSAY_TRY(const double nan, arguments.real("nan", 0.0));
  ASSAY_TRY(const double above, arguments.real("posinf", largest));
  ASSAY_TRY(const double below, arguments.real("neginf", -largest));
  const double replaced[] = {number_in(nan, dtype), number_in(above, dtype),
                             number_in(below, dtype)};
  return zip(
      arguments, std::array<Operand, 1>{std::move(self)},
      [&](double x) {
        if (std::isnan(x)) return replaced[0];
        return std::isinf(x) ? replaced[x > 0 ? 1 : 2] : x;
      },
      same_integer);
}

/// log(x / (1 - x)), x first moved eps away from 0 and 1.
Result<Values> logit(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, self_of(arguments));
  ASSAY_TRY(const double eps, arguments.real("eps", -1.0));
  return single(arguments, map_values(self.tensor.view, [=](double x) {
                  if (eps >= 0 && !std::isnan(x)) x = x < eps ? eps : x > 1 - eps ? 1 - eps : x;
                  return std::log(x / (1 - x));
                }));
}

constexpr Overload kFunctions[] = {
    {"aten.abs.default", OperatorClass::Move, either<magnitude, integer_magnitude>},
    {"aten.acos.default", OperatorClass::Function, real<arccosine>},
    {"aten.asin.default", OperatorClass::Function, real<arcsine>},
    {"aten.atan.default", OperatorClass::Function, real<arctangent>},
    {"aten.ceil.default", OperatorClass::Move, either<rounded_up, same_integer>},
    {"aten.cos.default", OperatorClass::Trigonometric, real<cosine>},
    {"aten.cosh.default", OperatorClass::Function, real<hyperbolic_cosine>},
    {"aten.deg2rad.default", OperatorClass::Arithmetic, real<radians>},
    {"aten.erf.default", OperatorClass::Function, real<error_function>},
    {"aten.erfc.default", OperatorClass::Function, real<error_function_rest>},
    {"aten.exp.default", OperatorClass::Function, real<exponential>},
    {"aten.exp2.default", OperatorClass::Function, real<power_of_two>},
    {"aten.expm1.default", OperatorClass::Function, real<exponential_less_one>},
    {"aten.floor.default", OperatorClass::Move, either<rounded_down, same_integer>},
    {"aten.frac.default", OperatorClass::Move, real<fraction>},
    {"aten.log.default", OperatorClass::Function, real<logarithm>},
    {"aten.log10.default", OperatorClass::Function, real<logarithm10>},
    {"aten.log1p.default", OperatorClass::Function, real<logarithm_of_one_more>},
    {"aten.log2.default", OperatorClass::Function, real<logarithm2>},
    {"aten.logit.default", OperatorClass::Activation, logit},
    {"aten.nan_to_num.default", OperatorClass::Move, nan_to_num},
    {"aten.neg.default", OperatorClass::Move, either<negated, negated_integer>},
    {"aten.reciprocal.default", OperatorClass::Function, real<reciprocal>},
    {"aten.round.decimals", OperatorClass::Arithmetic, round_decimals},
    {"aten.round.default", OperatorClass::Move, either<rounded, same_integer>},
    {"aten.rsqrt.default", OperatorClass::Function, real<inverse_root>},
    {"aten.sigmoid.default", OperatorClass::Function, real<logistic>},
    {"aten.sign.default", OperatorClass::Move, either<sign, integer_sign>},
    {"aten.sin.default", OperatorClass::Trigonometric, real<sine>},
    {"aten.sinh.default", OperatorClass::Function, real<hyperbolic_sine>},
    {"aten.special_entr.default", OperatorClass::Activation, real<entropy>},
    {"aten.sqrt.default", OperatorClass::Function, real<square_root>},
    {"aten.square.default", OperatorClass::Arithmetic, either<squared, squared_integer>},
    {"aten.tan.default", OperatorClass::Softmax, real<tangent>},
    {"aten.tanh.default", OperatorClass::Softmax, real<hyperbolic_tangent>},
    {"aten.trunc.default", OperatorClass::Move, either<cut, same_integer>},
};

}  // namespace

std::span<const Overload> function_overloads() { return kFunctions; }

}  // namespace assay::reference::aten
