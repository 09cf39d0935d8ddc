// SPDX-License-Identifier: Apache-2.0
// Functions of single elements by name (UNARY), and gated linear units (GLU).
//
// ggml's gelu is the one with tanh. The CPU back end looks it and gelu_quick up in a table of float16: argument and
// result are rounded to float16, so that their error is 2^-11 (|y| + |slope| |x|).
#include <cmath>
#include <numbers>

#include "base/ascii.hpp"
#include "reference/ggml/volume.hpp"

namespace assay::reference::ggml {
namespace {

constexpr double kActivation = 16 * kFloat32Roundoff;
/// The largest slope of gelu and gelu_quick is 1.13.
constexpr double kLargestSlope = 1.13;
/// Half the distance of the smallest float16 values.
constexpr double kSmallestFloat16 = 0x1p-25;

double gelu(double x) {
  const double inner = std::sqrt(2 / std::numbers::pi) * x * (1 + 0.044715 * x * x);
  return 0.5 * x * (1 + std::tanh(inner));
}
double gelu_erf(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }
double gelu_quick(double x) { return x * sigmoid(1.702 * x); }
double silu(double x) { return x * sigmoid(x); }
double relu(double x) { return x > 0 ? x : 0; }
/// x min(1, max(0, (x + 3) / 6)) and its factor.
double hard_sigmoid(double x) { return std::fmin(1.0, std::fmax(0.0, (x + 3) / 6)); }
double hard_swish(double x) { return x * hard_sigmoid(x); }
/// Beyond 20 ggml returns x.
double softplus(double x) { return x > 20 ? x : std::log1p(std::exp(x)); }
double sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
double step(double x) { return x > 0 ? 1 : 0; }
double negative(double x) { return -x; }
double elu(double x) { return x > 0 ? x : std::expm1(x); }
double absolute(double x) { return std::fabs(x); }
double hyperbolic(double x) { return std::tanh(x); }
double exponential(double x) { return std::exp(x); }
double exponential_less_one(double x) { return std::expm1(x); }
double floor_of(double x) { return std::floor(x); }
double ceiling(double x) { return std::ceil(x); }
double half_away(double x) { return std::round(x); }
double truncated(double x) { return std::trunc(x); }

enum class Rounding : uint8_t {
  None,
  Relative,  // 16 u max(|x|, |y|)
  Absolute,  // the same, and 16 u: exp(x) - 1
  Table,     // of float16
};
struct Function {
  std::string_view name;  // of ggml_unary_op_name(), in lower case
  double (*compute)(double);
  Rounding error;
};
constexpr Function kFunctions[] = {
    {"abs", absolute, Rounding::None},
    {"ceil", ceiling, Rounding::None},
    {"elu", elu, Rounding::Relative},
    {"exp", exponential, Rounding::Relative},
    {"expm1", exponential_less_one, Rounding::Absolute},
    {"floor", floor_of, Rounding::None},
    {"gelu", gelu, Rounding::Table},
    {"gelu_erf", gelu_erf, Rounding::Relative},
    {"gelu_quick", gelu_quick, Rounding::Table},
    {"hardsigmoid", hard_sigmoid, Rounding::Relative},
    {"hardswish", hard_swish, Rounding::Relative},
    {"neg", negative, Rounding::None},
    {"relu", relu, Rounding::None},
    {"round", half_away, Rounding::None},
    {"sgn", sign, Rounding::None},
    {"sigmoid", sigmoid, Rounding::Relative},
    {"silu", silu, Rounding::Relative},
    {"softplus", softplus, Rounding::Relative},
    {"step", step, Rounding::None},
    {"tanh", hyperbolic, Rounding::Relative},
    {"trunc", truncated, Rounding::None},
};

Result<const Function*> function_named(const Arguments& arguments, std::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return fail(arguments.unsupported("no reference for '" + std::string(name) + "'"));
}

struct Allowed {
  double w = 0;
  double v = 0;
};
Allowed error_of(const Function& function, double x, double y) {
  if (function.error == Rounding::None) return {};
  if (function.error != Rounding::Table) {
    const double least = function.error == Rounding::Absolute ? 1 : 0;
    const double w = kActivation * std::fmax(std::fmax(std::fabs(x), std::fabs(y)), least);
    return {w, w * w / 12};
  }
  const double slope = kLargestSlope * std::fabs(x);
  const double mean = kMeanRounding * kFloat16Roundoff;
  return {kFloat16Roundoff * (std::fabs(y) + slope) + 2 * kSmallestFloat16,
          mean * mean * (y * y + slope * slope)};
}

// ---- UNARY ------------------------------------------------------------------------------------

Result<const Function*> unary_of(const Arguments& arguments) {
  ASSAY_TRY(const std::string name, arguments.text("op", ""));
  return function_named(arguments, lower_case(name));
}

Result<Values> unary(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Function* function, unary_of(arguments));
  ASSAY_TRY(Volume y, source(arguments, "src0"));
  for (double& value : y.values.values) value = function->compute(value);
  return single(std::move(y));
}

Result<Magnitudes> rounding_of_unary(const Arguments& arguments, int) {
  ASSAY_TRY(const Function* function, unary_of(arguments));
  ASSAY_TRY(const Volume x, source(arguments, "src0"));
  Magnitudes rounding{Wide(x.values.shape), Wide(x.values.shape), {}, 1, Wide(x.values.shape)};
  for (size_t i = 0; i < x.values.values.size(); ++i) {
    const double value = x.values.values[i];
    const double y = function->compute(value);
    const Allowed allowed = error_of(*function, value, y);
    rounding.c.values[i] = std::fmax(std::fabs(value), std::fabs(y));
    rounding.allowed.values[i] = allowed.w;
    rounding.variance.values[i] = allowed.v;
  }
  return rounding;
}

// ---- GLU --------------------------------------------------------------------------------------

/// Which function is applied to the gate: the other half is multiplied.
constexpr std::pair<std::string_view, std::string_view> kGates[] = {
    {"geglu", "gelu"}, {"geglu_erf", "gelu_erf"}, {"geglu_quick", "gelu_quick"},
    {"reglu", "relu"}, {"swiglu", "silu"},
};

/// Gate and up: two sources, or the halves of the rows of one, in the other order when swapped.
struct Halves {
  Volume gate, up;
};
Result<Halves> halves_of(const Arguments& arguments) {
  Halves halves;
  ASSAY_TRY(Volume first, source(arguments, "src0"));
  if (arguments.has("src1")) {
    ASSAY_TRY(halves.up, source(arguments, "src1"));
    halves.gate = std::move(first);
    if (halves.gate.ne != halves.up.ne)
      return fail(arguments.invalid("gate " + text_of(halves.gate.ne) + " and up " +
                                    text_of(halves.up.ne)));
    return halves;
  }
  ASSAY_TRY(const bool swapped, truth(arguments, "swapped", 1, false));
  Sizes ne = first.ne;
  ne[0] /= 2;
  halves.gate = Volume(ne);
  halves.up = Volume(ne);
  for (int64_t row = 0; row < first.rows(); ++row) {
    const double* from = first.values.data() + row * first.ne[0];
    for (int64_t i = 0; i < ne[0]; ++i) {
      halves.gate.values.data()[row * ne[0] + i] = from[i + (swapped ? ne[0] : 0)];
      halves.up.values.data()[row * ne[0] + i] = from[i + (swapped ? 0 : ne[0])];
    }
  }
  return halves;
}

/// gate' sigmoid(alpha gate') (1 + up'), the gate limited from above, up on both sides.
struct ClampedSwiglu {
  double alpha = 0;
  double limit = 0;
  [[nodiscard]] double gated(double gate) const {
    const double limited = std::fmin(gate, limit);
    return limited * sigmoid(alpha * limited);
  }
  [[nodiscard]] double factor(double up) const {
    return 1 + std::fmin(std::fmax(up, -limit), limit);
  }
};
Result<ClampedSwiglu> clamped_swiglu(const Arguments& arguments) {
  ClampedSwiglu swiglu;
  ASSAY_TRY(swiglu.alpha, real(arguments, "alpha", 2));
  ASSAY_TRY(swiglu.limit, real(arguments, "limit", 3));
  return swiglu;
}

Result<std::string> glu_name(const Arguments& arguments) {
  ASSAY_TRY(const std::string name, arguments.text("op", ""));
  return lower_case(name);
}
Result<const Function*> gate_function(const Arguments& arguments, std::string_view name) {
  for (const auto& [unit, function] : kGates) {
    if (unit == name) return function_named(arguments, function);
  }
  return fail(arguments.unsupported("no reference for '" + std::string(name) + "'"));
}

Result<Values> glu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const std::string name, glu_name(arguments));
  ASSAY_TRY(Halves halves, halves_of(arguments));
  auto& gate = halves.gate.values.values;
  const auto& up = halves.up.values.values;
  if (name == "swiglu_oai") {
    ASSAY_TRY(const ClampedSwiglu swiglu, clamped_swiglu(arguments));
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = swiglu.gated(gate[i]) * swiglu.factor(up[i]);
    return single(std::move(halves.gate));
  }
  ASSAY_TRY(const Function* function, gate_function(arguments, name));
  for (size_t i = 0; i < gate.size(); ++i) gate[i] = function->compute(gate[i]) * up[i];
  return single(std::move(halves.gate));
}

/// The error of the function times |up|, and one rounding of the product.
Result<Magnitudes> rounding_of_glu(const Arguments& arguments, int) {
  ASSAY_TRY(const std::string name, glu_name(arguments));
  ASSAY_TRY(const Halves halves, halves_of(arguments));
  const auto& gate = halves.gate.values.values;
  const auto& up = halves.up.values.values;
  Wide c(halves.gate.values.shape);
  if (name == "swiglu_oai") {
    ASSAY_TRY(const ClampedSwiglu swiglu, clamped_swiglu(arguments));
    for (size_t i = 0; i < gate.size(); ++i)
      c.values[i] = std::fabs(std::fmin(gate[i], swiglu.limit)) *
                    (1 + std::fmin(std::fabs(up[i]), swiglu.limit));
    return scaled_rounding(std::move(c), kActivation);
  }
  ASSAY_TRY(const Function* function, gate_function(arguments, name));
  Magnitudes rounding{Wide(c.shape), Wide(c.shape), {}, 1, Wide(c.shape)};
  for (size_t i = 0; i < gate.size(); ++i) {
    const double y = function->compute(gate[i]);
    const Allowed allowed = error_of(*function, gate[i], y);
    const double size = std::fabs(up[i]);
    const double last = kFloat32Roundoff * std::fabs(y) * size;
    rounding.c.values[i] = size * std::fmax(std::fabs(gate[i]), std::fabs(y));
    rounding.allowed.values[i] = allowed.w * size + last;
    rounding.variance.values[i] = allowed.v * size * size + last * last / 12;
  }
  return rounding;
}

}  // namespace

std::span<const Operator> activation_operators() {
  static constexpr Operator kTable[] = {
      {"ggml.glu", OperatorClass::Activation, glu, rounding_of_glu},
      {"ggml.unary", OperatorClass::Activation, unary, rounding_of_unary},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
