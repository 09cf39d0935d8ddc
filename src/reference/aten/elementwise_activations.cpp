// SPDX-License-Identifier: Apache-2.0
// Activation functions.
#include <cmath>
#include <string>

#include "reference/aten/elementwise_map.hpp"
#include "reference/aten/shapes.hpp"
#include "reference/elementwise/activation.hpp"

namespace assay::reference::aten {
namespace {

/// `f` of every value of self, in fp64.
template <typename F>
Result<Values> activated(const Arguments& arguments, F f) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  return single(map_values(self.tensor.view, f));
}

/// max(x, 0); NaN stays NaN.
double relu_of(double x) { return x < 0 ? 0 : x; }
double relu6_of(double x) { return x < 0 ? 0 : x > 6 ? 6 : x; }
double softplus_of(double x) {
  return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}
double mish_of(double x) { return x * std::tanh(softplus_of(x)); }
double hardswish_of(double x) { return x * relu6_of(x + 3) / 6; }
double hardsigmoid_of(double x) { return relu6_of(x + 3) / 6; }
double log_sigmoid_of(double x) { return -softplus_of(-x); }
double selu_of(double x) {
  constexpr double kAlpha = 1.6732632423543772848170429916717;
  constexpr double kScale = 1.0507009873554804934193349852946;
  return kScale * (x > 0 ? x : kAlpha * std::expm1(x));
}
template <double (*f)(double)>
Result<Values> activation(const Arguments& arguments, const EvaluateOptions&) {
  return activated(arguments, f);
}

Result<Values> relu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, operand(arguments, "self"));
  return zip(std::array<Operand, 1>{std::move(self)}, relu_of,
             [](int64_t x) { return std::max<int64_t>(x, 0); });
}

Result<Values> silu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  return single(swish(self.tensor.view));
}

Result<Values> gelu(const Arguments& arguments, const EvaluateOptions&) {
  // Not moved out of the result: g++ 12 would take the comparison for one of undefined bytes.
  const Result<std::string> form = arguments.text("approximate", "none");
  if (!form) return fail(form.error());
  if (*form != "none" && *form != "tanh") return fail(arguments.unsupported("form ", *form));
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  return single(
      reference::gelu(self.tensor.view, *form == "none" ? GeluForm::Erf : GeluForm::Tanh));
}

Result<Values> elu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const double alpha, arguments.real("alpha", 1.0));
  ASSAY_TRY(const double scale, arguments.real("scale", 1.0));
  ASSAY_TRY(const double input_scale, arguments.real("input_scale", 1.0));
  return activated(arguments, [=](double x) {
    return x > 0 ? x * scale : alpha * scale * std::expm1(x * input_scale);
  });
}

Result<Values> celu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const double alpha, arguments.real("alpha", 1.0));
  return activated(arguments, [=](double x) { return x > 0 ? x : alpha * std::expm1(x / alpha); });
}

Result<Values> leaky_relu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const double slope, arguments.real("negative_slope", 0.01));
  return activated(arguments, [=](double x) { return x > 0 ? x : x * slope; });
}

/// log(1 + e^(beta x)) / beta; x itself where beta x exceeds the threshold.
Result<Values> softplus(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const double beta, arguments.real("beta", 1.0));
  ASSAY_TRY(const double threshold, arguments.real("threshold", 20.0));
  return activated(arguments, [=](double x) {
    return x * beta > threshold ? x : std::log1p(std::exp(x * beta)) / beta;
  });
}

/// Bounds as the operand's type holds them: the result is one of its values.
Result<Values> hardtanh(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, operand(arguments, "self"));
  const DType dtype = self.tensor.view.dtype;
  ASSAY_TRY(const double lower, arguments.real("min_val", -1.0));
  ASSAY_TRY(const double upper, arguments.real("max_val", 1.0));
  const double low = number_in(lower, dtype);
  const double high = number_in(upper, dtype);
  return zip(
      std::array<Operand, 1>{std::move(self)},
      [=](double x) { return x < low    ? low
                             : x > high ? high
                                        : x; },
      [=](int64_t x) {
        return std::clamp(x, static_cast<int64_t>(low), static_cast<int64_t>(high));
      });
}

/// x above the threshold, else the value; NaN stays NaN.
Result<Values> threshold(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, operand(arguments, "self"));
  const DType dtype = self.tensor.view.dtype;
  ASSAY_TRY(const double limit, arguments.real("threshold"));
  ASSAY_TRY(const double value, arguments.real("value"));
  const double edge = number_in(limit, dtype);
  const double below = number_in(value, dtype);
  return zip(
      std::array<Operand, 1>{std::move(self)}, [=](double x) { return x <= edge ? below : x; },
      [=](int64_t x) { return static_cast<double>(x) <= edge ? static_cast<int64_t>(below) : x; });
}

/// 0 where |x| is at most lambda.
Result<Values> hardshrink(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  ASSAY_TRY(const double given, arguments.real("lambd", 0.5));
  const double limit = number_in(given, self.tensor.view.dtype);
  return activated(arguments, [=](double x) { return x >= -limit && x <= limit ? 0 : x; });
}

Result<Values> softshrink(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const double limit, arguments.real("lambd", 0.5));
  return activated(arguments, [=](double x) {
    return x > limit ? x - limit : x < -limit ? x + limit : std::isnan(x) ? x : 0;
  });
}

/// One weight a channel (axis 1), or one for all.
Result<Values> prelu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Operand self, operand(arguments, "self"));
  ASSAY_TRY(Operand weight, operand(arguments, "weight"));
  const size_t rank = self.tensor.view.shape.size();
  if (weight.tensor.view.shape.size() == 1 && rank != 0) {
    Dims shape(std::vector<int64_t>(rank, 1));
    shape[rank > 1 ? 1 : 0] = weight.tensor.view.shape[0];
    ASSAY_TRY(weight.tensor, viewed(weight.tensor, shape));
  }
  const std::array<Operand, 2> operands{std::move(self), std::move(weight)};
  return single(zip_reals(operands, [](double x, double w) { return x > 0 ? x : w * x; }));
}

/// The first half times the sigmoid of the second.
Result<Values> glu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  const Dims& shape = self.view.shape;
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", shape.size(), -1));
  if (shape.empty() || shape[at] % 2 != 0)
    return fail(arguments.invalid("an axis of odd size in ", shape));
  const int64_t half = shape[at] / 2;
  const std::array<Operand, 2> operands{Operand{ranged(self, at, {0, half, 1})},
                                        Operand{ranged(self, at, {half, half, 1})}};
  return single(zip_reals(operands, [](double a, double b) { return a * sigmoid(b); }));
}

/// The second output is a buffer of the gradient, empty on devices other than the CPU.
Result<Values> log_sigmoid_forward(const Arguments& arguments, const EvaluateOptions& options) {
  ASSAY_TRY(Values values, activation<log_sigmoid_of>(arguments, options));
  values.push_back(Tensor{});
  return values;
}

constexpr Overloads kActivations[] = {
    {"_prelu_kernel.default prelu.default", OperatorClass::Arithmetic, prelu},
    {"celu.default", OperatorClass::Activation, celu},
    {"elu.default", OperatorClass::Activation, elu},
    {"gelu.default", OperatorClass::Activation, gelu},
    {"glu.default", OperatorClass::Activation, glu},
    {"hardshrink.default", OperatorClass::Move, hardshrink},
    {"hardsigmoid.default", OperatorClass::Activation, activation<hardsigmoid_of>},
    {"hardswish.default", OperatorClass::Activation, activation<hardswish_of>},
    {"hardtanh.default", OperatorClass::Move, hardtanh},
    {"leaky_relu.default", OperatorClass::Activation, leaky_relu},
    {"log_sigmoid.default", OperatorClass::Activation, activation<log_sigmoid_of>},
    {"log_sigmoid_forward.default", OperatorClass::Activation, log_sigmoid_forward},
    {"mish.default", OperatorClass::Activation, activation<mish_of>},
    {"relu.default", OperatorClass::Move, relu},
    {"relu6.default", OperatorClass::Move, activation<relu6_of>},
    {"selu.default", OperatorClass::Activation, activation<selu_of>},
    {"silu.default", OperatorClass::Activation, silu},
    {"softplus.default", OperatorClass::Activation, softplus},
    {"softshrink.default", OperatorClass::Arithmetic, softshrink},
    {"threshold.default", OperatorClass::Move, threshold},
};

}  // namespace

std::span<const Overloads> activation_overloads() { return kActivations; }

}  // namespace assay::reference::aten
