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
template <auto f>
Result<Values> real(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, self_of(arguments));
  return single(map_values(self.tensor.view, f));
}

/// Integers stay integers.
template <auto f, auto g>
Result<Values> either(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, self_of(arguments));
  return zip(std::array<Operand, 1>{std::move(self)}, f, g);
}

double entropy(double x) {
  if (std::isnan(x)) return x;
  return x > 0 ? -x * std::log(x) : x == 0 ? 0 : -std::numeric_limits<double>::infinity();
}

constexpr auto kSame = [](int64_t x) { return x; };

/// To `decimals` digits behind the point, or before it where negative.
Result<Values> round_decimals(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, self_of(arguments));
  ASSAY_TRY(const int64_t decimals, arguments.integer("decimals"));
  const double power = std::pow(10.0, std::fabs(static_cast<double>(decimals)));
  const bool negative = decimals < 0;
  return zip(
      std::array<Operand, 1>{std::move(self)},
      [=](double x) {
        return negative ? round_half_even(x / power) * power : round_half_even(x * power) / power;
      },
      kSame);
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
      std::array<Operand, 1>{std::move(self)},
      [&](double x) {
        if (std::isnan(x)) return replaced[0];
        return std::isinf(x) ? replaced[x > 0 ? 1 : 2] : x;
      },
      kSame);
}

/// log(x / (1 - x)), x first moved eps away from 0 and 1.
Result<Values> logit(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, self_of(arguments));
  ASSAY_TRY(const double eps, arguments.real("eps", -1.0));
  return single(map_values(self.tensor.view, [=](double x) {
    if (eps >= 0 && !std::isnan(x)) x = x < eps ? eps : x > 1 - eps ? 1 - eps : x;
    return std::log(x / (1 - x));
  }));
}

}  // namespace

std::span<const Overloads> function_overloads() {
  using enum OperatorClass;
  static constexpr Overloads kTable[] = {
      {"abs.default", Move,
       either<[](double x) { return std::fabs(x); },
              [](int64_t x) { return x < 0 ? wrapping_multiply(x, -1) : x; }>},
      {"acos.default", Function, real<[](double x) { return std::acos(x); }>},
      {"asin.default", Function, real<[](double x) { return std::asin(x); }>},
      {"atan.default", Function, real<[](double x) { return std::atan(x); }>},
      {"ceil.default", Move, either<[](double x) { return std::ceil(x); }, kSame>},
      {"cos.default", Trigonometric, real<[](double x) { return std::cos(x); }>},
      {"cosh.default", Function, real<[](double x) { return std::cosh(x); }>},
      {"deg2rad.default", Arithmetic, real<[](double x) { return x * (M_PI / 180); }>},
      {"erf.default", Function, real<[](double x) { return std::erf(x); }>},
      {"erfc.default", Function, real<[](double x) { return std::erfc(x); }>},
      {"exp.default", Function, real<[](double x) { return std::exp(x); }>},
      {"exp2.default", Function, real<[](double x) { return std::exp2(x); }>},
      {"expm1.default", Function, real<[](double x) { return std::expm1(x); }>},
      {"floor.default", Move, either<[](double x) { return std::floor(x); }, kSame>},
      {"frac.default", Move, real<[](double x) { return x - std::trunc(x); }>},
      {"log.default", Function, real<[](double x) { return std::log(x); }>},
      {"log10.default", Function, real<[](double x) { return std::log10(x); }>},
      {"log1p.default", Function, real<[](double x) { return std::log1p(x); }>},
      {"log2.default", Function, real<[](double x) { return std::log2(x); }>},
      {"logit.default", Activation, logit},
      {"nan_to_num.default", Move, nan_to_num},
      {"neg.default", Move,
       either<[](double x) { return -x; }, [](int64_t x) { return wrapping_multiply(x, -1); }>},
      {"reciprocal.default", Function, real<[](double x) { return 1 / x; }>},
      {"round.decimals", Arithmetic, round_decimals},
      {"round.default", Move, either<[](double x) { return round_half_even(x); }, kSame>},
      {"rsqrt.default", Function, real<[](double x) { return 1 / std::sqrt(x); }>},
      {"sigmoid.default", Function, real<[](double x) { return sigmoid(x); }>},
      {"sign.default", Move,
       either<[](double x) { return std::isnan(x) ? 0 : static_cast<double>((x > 0) - (x < 0)); },
              [](int64_t x) { return (x > 0) - (x < 0); }>},
      {"sin.default", Trigonometric, real<[](double x) { return std::sin(x); }>},
      {"sinh.default", Function, real<[](double x) { return std::sinh(x); }>},
      {"special_entr.default", Activation, real<entropy>},
      {"sqrt.default", Function, real<[](double x) { return std::sqrt(x); }>},
      {"square.default", Arithmetic,
       either<[](double x) { return x * x; }, [](int64_t x) { return wrapping_multiply(x, x); }>},
      {"tan.default", Softmax, real<[](double x) { return std::tan(x); }>},
      {"tanh.default", Softmax, real<[](double x) { return std::tanh(x); }>},
      {"trunc.default", Move, either<[](double x) { return std::trunc(x); }, kSame>},
  };
  return kTable;
}

}  // namespace assay::reference::aten
