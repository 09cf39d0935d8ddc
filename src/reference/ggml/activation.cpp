// SPDX-License-Identifier: Apache-2.0
// Functions of single elements by name (UNARY), and gated linear units (GLU).
//
// ggml's gelu is the one with tanh. The CPU back end looks it and gelu_quick up in a table of
// float16: argument and
// result are rounded to float16, so that their error is 2^-11 (|y| + |slope| |x|).
#include <cmath>

#include "base/ascii.hpp"
#include "reference/elementwise/activation.hpp"
#include "reference/elementwise/map.hpp"
#include "reference/ggml/dialect.hpp"
#include "reference/products/matmul.hpp"

namespace assay::reference::ggml {
namespace {

constexpr double kActivation = 16 * kFloat32Roundoff;
/// The largest slope of gelu and gelu_quick is 1.13.
constexpr double kLargestSlope = 1.13;
/// Half the distance of the smallest float16 values.
constexpr double kSmallestFloat16 = 0x1p-25;

enum class Rounding : uint8_t {
  None,
  Relative,  // 16 u max(|x|, |y|)
  Absolute,  // the same, and 16 u: exp(x) - 1
  Table,     // of float16
};
struct Function {
  std::string_view name;  // of ggml_unary_op_name(), in lower case
  Rounding error;
  std::string_view same_as;                              // an operator of aten, or
  Result<Wide> (*compute)(const TensorView&) = nullptr;  // what aten has none for
};
constexpr Function kFunctions[] = {
    {"abs", Rounding::None, "aten.abs.default"},
    {"ceil", Rounding::None, "aten.ceil.default"},
    {"elu", Rounding::Relative, "aten.elu.default"},
    {"exp", Rounding::Relative, "aten.exp.default"},
    {"expm1", Rounding::Absolute, "aten.expm1.default"},
    {"floor", Rounding::None, "aten.floor.default"},
    {"gelu", Rounding::Table, {}, [](const TensorView& x) { return gelu(x, GeluForm::Tanh); }},
    {"gelu_erf", Rounding::Relative, "aten.gelu.default"},
    {"gelu_quick", Rounding::Table, {}, fast_gelu},
    {"hardsigmoid", Rounding::Relative, "aten.hardsigmoid.default"},
    {"hardswish", Rounding::Relative, "aten.hardswish.default"},
    {"neg", Rounding::None, "aten.neg.default"},
    {"relu", Rounding::None, "aten.relu.default"},
    // Halves away from zero.
    {"round",
     Rounding::None,
     {},
     [](const TensorView& x) {
       return map_values(x, [](double value) { return std::round(value); });
     }},
    {"sgn", Rounding::None, "aten.sign.default"},
    {"sigmoid", Rounding::Relative, "aten.sigmoid.default"},
    {"silu", Rounding::Relative, "aten.silu.default"},
    {"softplus", Rounding::Relative, "aten.softplus.default"},
    {"step",
     Rounding::None,
     {},
     [](const TensorView& x) {
       return map_values(x, [](double value) { return value > 0 ? 1.0 : 0.0; });
     }},
    {"tanh", Rounding::Relative, "aten.tanh.default"},
    {"trunc", Rounding::None, "aten.trunc.default"},
};

Result<Wide> applied(const Function& function, const Tensor& x) {
  if (function.compute != nullptr) return function.compute(x.view);
  Call call;
  call.name = function.same_as;
  set(&call, "self", x);
  ASSAY_TRY(const Values y, aten::evaluate(call));
  return widen(y[0].view);
}

Result<const Function*> function_named(const Arguments& arguments, std::string_view name) {
  for (const Function& function : kFunctions) {
    if (function.name == name) return &function;
  }
  return fail(arguments.unsupported("no reference for '", name, "'"));
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
  ASSAY_TRY(const Source x, source(arguments, "src0"));
  ASSAY_TRY(Wide y, applied(*function, x.tensor));
  return result_of(std::move(y));
}

Result<Magnitudes> rounding_of_unary(const Arguments& arguments, int) {
  ASSAY_TRY(const Function* function, unary_of(arguments));
  ASSAY_TRY(const Source given, source(arguments, "src0"));
  ASSAY_TRY(const Wide x, values_of(arguments, "src0"));
  ASSAY_TRY(const Wide y, applied(*function, given.tensor));
  Magnitudes rounding = no_rounding(x.shape);
  for (size_t i = 0; i < x.values.size(); ++i) {
    const Allowed allowed = error_of(*function, x.values[i], y.values[i]);
    rounding.c.values[i] = std::fmax(std::fabs(x.values[i]), std::fabs(y.values[i]));
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
  Tensor gate, up;
};
Result<Halves> halves_of(const Arguments& arguments) {
  ASSAY_TRY(const Source first, source(arguments, "src0"));
  if (arguments.has("src1")) {
    ASSAY_TRY(const Source second, source(arguments, "src1"));
    if (first.ne != second.ne)
      return fail(arguments.invalid("gate ", text_of(first.ne), " and up ", text_of(second.ne)));
    return Halves{first.tensor, second.tensor};
  }
  ASSAY_TRY(const bool swapped, truth(arguments, "swapped", 1, false));
  Halves halves{first.tensor, first.tensor};
  const int64_t size = first.ne[0] / 2;
  halves.gate.view = section(first.view(), 3, swapped ? size : 0, size);
  halves.up.view = section(first.view(), 3, swapped ? 0 : size, size);
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
  return fail(arguments.unsupported("no reference for '", name, "'"));
}

Result<Values> glu(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const std::string name, glu_name(arguments));
  ASSAY_TRY(const Halves halves, halves_of(arguments));
  ASSAY_TRY(const Wide up, widen(halves.up.view));
  if (name == "swiglu_oai") {
    ASSAY_TRY(const ClampedSwiglu swiglu, clamped_swiglu(arguments));
    ASSAY_TRY(Wide gate, widen(halves.gate.view));
    for (size_t i = 0; i < gate.values.size(); ++i)
      gate.values[i] = swiglu.gated(gate.values[i]) * swiglu.factor(up.values[i]);
    return result_of(std::move(gate));
  }
  ASSAY_TRY(const Function* function, gate_function(arguments, name));
  ASSAY_TRY(Wide gated, applied(*function, halves.gate));
  for (size_t i = 0; i < gated.values.size(); ++i) gated.values[i] *= up.values[i];
  return result_of(std::move(gated));
}

/// The error of the function times |up|, and one rounding of the product.
Result<Magnitudes> rounding_of_glu(const Arguments& arguments, int) {
  ASSAY_TRY(const std::string name, glu_name(arguments));
  ASSAY_TRY(const Halves halves, halves_of(arguments));
  ASSAY_TRY(Wide gate, widen(halves.gate.view));
  ASSAY_TRY(const Wide up, widen(halves.up.view));
  if (name == "swiglu_oai") {
    ASSAY_TRY(const ClampedSwiglu swiglu, clamped_swiglu(arguments));
    for (size_t i = 0; i < gate.values.size(); ++i)
      gate.values[i] = std::fabs(std::fmin(gate.values[i], swiglu.limit)) *
                       (1 + std::fmin(std::fabs(up.values[i]), swiglu.limit));
    return scaled_rounding(std::move(gate), kActivation);
  }
  ASSAY_TRY(const Function* function, gate_function(arguments, name));
  ASSAY_TRY(const Wide gated, applied(*function, halves.gate));
  Magnitudes rounding = no_rounding(gate.shape);
  for (size_t i = 0; i < gate.values.size(); ++i) {
    const double x = gate.values[i];
    const double y = gated.values[i];
    const Allowed allowed = error_of(*function, x, y);
    const double size = std::fabs(up.values[i]);
    const double last = kFloat32Roundoff * std::fabs(y) * size;
    rounding.c.values[i] = size * std::fmax(std::fabs(x), std::fabs(y));
    rounding.allowed.values[i] = allowed.w * size + last;
    rounding.variance.values[i] = allowed.v * size * size + last * last / 12;
  }
  return rounding;
}

}  // namespace

std::span<const DialectRow> activation_operators() {
  static constexpr auto kActivations = OperatorClass::Activation;
  static constexpr DialectRow kTable[] = {
      own("ggml.glu", kActivations, glu, rounding_of_glu),
      own("ggml.unary", kActivations, unary, rounding_of_unary),
  };
  return kTable;
}

}  // namespace assay::reference::ggml
