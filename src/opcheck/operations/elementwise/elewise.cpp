// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include "formats/atb_types.hpp"
#include "opcheck/operations/elementwise/expect.hpp"
#include "reference/elementwise/arithmetic.hpp"
#include "reference/elementwise/quantise.hpp"
#include "reference/movement/views.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using reference::Arithmetic;
using reference::Comparison;
using reference::Logic;
using reference::Wide;

// elewiseType   opcheck 7.2
enum Type : int64_t {
  kCast = 1,
  kMuls = 2,
  kCos = 3,
  kSin = 4,
  kNeg = 5,
  kQuant = 6,
  kLogicalNot = 7,
  kAdd = 8,
  kMul = 9,
  kRealDiv = 10,
  kLogicalAnd = 11,
  kLogicalOr = 12,
  kLess = 13,
  kGreater = 14,
  kSub = 15,
  kEqual = 16,
  kQuantPerChannel = 17,
  kDequantPerChannel = 18,
  kDynamicQuant = 19,
  kTanh = 20,
};
constexpr std::array<std::string_view, 21> kNames = {"",
                                                     "cast",
                                                     "muls",
                                                     "cos",
                                                     "sin",
                                                     "neg",
                                                     "quant",
                                                     "logical not",
                                                     "add",
                                                     "mul",
                                                     "realdiv",
                                                     "logical and",
                                                     "logical or",
                                                     "less",
                                                     "greater",
                                                     "sub",
                                                     "equal",
                                                     "quant per channel",
                                                     "dequant per channel",
                                                     "dynamic quant",
                                                     "tanh"};

constexpr Accuracy kFloat{.precision = Precision::Float};
constexpr Accuracy kQuantised{.precision = Precision::Quant};
constexpr Accuracy kInteger{.precision = Precision::Integer};
constexpr double kLargestFloat16 = 65504;

/// What quantised outputs are stored as: 8-bit floats by their name, everything else int8.
DType quantised_type(DType output) {
  return output == DType::HiFloat8 || output == DType::Float8E5M2 || output == DType::Float8E4M3FN
             ? output
             : DType::Int8;
}

/// The type that outTensorType names, if it names one.
Result<std::optional<DType>> declared_type(const Case& one) {
  ASSAY_TRY(const int64_t number,
            one.parameters.integer("outTensorType|OutTensorType", formats::kAtbUndefined));
  if (number == formats::kAtbUndefined) return std::optional<DType>();
  const std::optional<DType> type = formats::dtype_from_atb(number);
  if (!type) return fail(Errc::Unsupported, "outTensorType ", number, " is unknown");
  return type;
}

Result<Expectation> expect_cast(const Case& one, const Tensor& x) {
  ASSAY_TRY(const std::optional<DType> declared, declared_type(one));
  ASSAY_TRY(const Tensor mine, one.operands->output(0));
  const DType dtype = mine.view.dtype;
  const std::string mismatch = declared && *declared != dtype
                                   ? "outTensorType is " + std::string(name(*declared)) +
                                         ", the output in the dump " + std::string(name(dtype))
                                   : std::string();
  // Float tensors may have been converted on their way here, to be judged in another precision.
  if (!mismatch.empty() && !(is_float(*declared) && is_float(dtype)))
    return fail(Errc::Invalid, mismatch);
  Expectation output = expectation(0, {.precision = Precision::Cast},
                                   [x, dtype] { return reference::cast(x.view, dtype); });
  output.note = mismatch;
  return output;
}

Result<Wide> quantised(const Tensor& x, double scale, double offset, DType target) {
  ASSAY_TRY(Wide values, reference::widen(x.view));
  for (double& value : values.values) value = value * scale + offset;
  if (target == DType::Int8) return reference::rounded_to_int8(std::move(values));
  return reference::rounded_to_float8(std::move(values), target);
}

/// Newer devices use scale and offset, older ones ignore them, and the dump does not say which it was.
Result<Expectation> expect_quant(const Case& one, const Tensor& x) {
  ASSAY_TRY(double scale,
            one.parameters.number("quantParam.inputScale|quantInputScale|inputScale", 1.0));
  ASSAY_TRY(double offset,
            one.parameters.number("quantParam.inputOffset|quantInputOffset|inputOffset", 0.0));
  scale = reference::round_to(scale, x.view.dtype);
  offset = reference::round_to(offset, x.view.dtype);
  ASSAY_TRY(const Tensor mine, one.operands->output(0));
  const DType target = quantised_type(mine.view.dtype);
  Expectation result{.index = 0, .accuracy = kQuantised};
  const bool plain = scale == 1 && offset == 0;
  result.candidates.push_back(
      candidate(plain ? "" : "with inputScale and inputOffset",
                [x, scale, offset, target] { return quantised(x, scale, offset, target); }));
  if (!plain)
    result.candidates.push_back(candidate("without inputScale and inputOffset",
                                          [x, target] { return quantised(x, 1, 0, target); }));
  result.try_all = !plain;
  return result;
}

Result<Expectation> expect_arithmetic(const Case& one, Arithmetic operation, const Tensor& a,
                                      const Tensor& b) {
  Expectation result = expectation(
      0, kFloat, [operation, a, b] { return reference::arithmetic(operation, a.view, b.view); });
  ASSAY_TRY(const Tensor mine, one.operands->output(0));
  if (operation != Arithmetic::Multiply || mine.view.dtype != DType::Float16) return result;
  // Some devices stop at the largest float16.
  result.candidates.push_back(candidate("saturated to float16", [a, b]() -> Result<Wide> {
    ASSAY_TRY(const Tensor product, reference::arithmetic(Arithmetic::Multiply, a.view, b.view));
    ASSAY_TRY(Wide values, reference::widen(product.view));
    for (double& value : values.values) {
      if (std::fabs(value) > kLargestFloat16) value = std::copysign(kLargestFloat16, value);
    }
    return values;
  }));
  return result;
}

Result<Evaluation> evaluate_dynamic_quant(const Case& one, const Tensor& x) {
  ASSAY_TRY(const bool asymmetric,
            one.parameters.boolean("quantParam.asymmetric|asymmetric", false));
  const size_t outputs = asymmetric ? 3 : 2;
  ASSAY_TRY_STATUS(expect_counts(one, {.least_outputs = outputs, .most_outputs = outputs}));
  ASSAY_TRY(const Tensor mine, one.operands->output(0));
  const DType target = quantised_type(mine.view.dtype);
  ASSAY_TRY_STATUS(refuse_empty(x, 0));
  ASSAY_TRY(Wide values, reference::widen(x.view));
  ASSAY_TRY(QuantisedRows rows,
            expect_dynamic_quantised(one, std::move(values), asymmetric, target, 0));
  Evaluation result{
      .variant = asymmetric ? "dynamic quant, asymmetric" : "dynamic quant, symmetric",
      .outputs = {}};
  if (target != DType::Int8) result.variant += ", " + std::string(name(target));
  result.outputs.push_back(std::move(rows.values));
  result.outputs.push_back(std::move(rows.scales));
  if (rows.offsets) result.outputs.push_back(std::move(*rows.offsets));
  return result;
}

Result<Expectation> expect_quant_per_channel(const Case& one, const Tensor& x) {
  ASSAY_TRY(const Tensor scale, one.operands->input(1));
  ASSAY_TRY(const std::optional<Tensor> offset, optional_input(one, 2));
  ASSAY_TRY(Wide values, reference::widen(x.view));
  ASSAY_TRY(values, reference::quantise_per_channel(std::move(values), scale.view,
                                                    offset ? &offset->view : nullptr));
  const Tensor before = reference::to_tensor(std::move(values));
  Expectation result = expectation(0, kQuantised, [before]() -> Result<Wide> {
    ASSAY_TRY(Wide wide, reference::widen(before.view));
    return reference::rounded_to_int8(std::move(wide));
  });
  result.before_rounding = before;
  return result;
}

Result<Expectation> expect_dequant_per_channel(const Case& one, const Tensor& y) {
  ASSAY_TRY(const Tensor scale, one.operands->input(1));
  ASSAY_TRY(const std::optional<Tensor> offset, optional_input(one, 2));
  return expectation(0, kQuantised, [y, scale, offset]() -> Result<Wide> {
    ASSAY_TRY(Wide values, reference::widen(y.view));
    return reference::dequantise_per_channel(std::move(values), scale.view,
                                             offset ? &offset->view : nullptr);
  });
}

Result<Expectation> expect_one_input(const Case& one, int64_t type, const Tensor& x) {
  switch (type) {
    case kCast:
      return expect_cast(one, x);
    case kMuls: {
      if (!one.parameters.has("mulsParam.varAttr|varAttr"))
        return fail(Errc::Invalid, "parameter mulsParam.varAttr is missing");
      ASSAY_TRY(const double factor, one.parameters.number("mulsParam.varAttr|varAttr", 0));
      return expectation(0, kFloat, [x, factor] { return reference::scaled(x.view, factor); });
    }
    case kCos:
      return expectation(0, kFloat, [x] { return reference::cosine(x.view); });
    case kSin:
      return expectation(0, kFloat, [x] { return reference::sine(x.view); });
    case kNeg:
      return expectation(0, kFloat, [x] { return reference::negated(x.view); });
    case kQuant:
      return expect_quant(one, x);
    case kLogicalNot:
      return expectation(0, kInteger, [x] { return reference::logical_not(x.view); });
    default:
      return expectation(0, kQuantised, [x] { return reference::hyperbolic_tangent(x.view); });
  }
}

Result<Expectation> expect_two_inputs(const Case& one, int64_t type, const Tensor& a,
                                      const Tensor& b) {
  const auto comparing = [&](Comparison comparison) {
    return expectation(
        0, kInteger, [comparison, a, b] { return reference::compare(comparison, a.view, b.view); });
  };
  const auto deciding = [&](Logic logic) {
    return expectation(0, kInteger,
                       [logic, a, b] { return reference::logical(logic, a.view, b.view); });
  };
  switch (type) {
    case kAdd:
      return expect_arithmetic(one, Arithmetic::Add, a, b);
    case kSub:
      return expect_arithmetic(one, Arithmetic::Subtract, a, b);
    case kMul:
      return expect_arithmetic(one, Arithmetic::Multiply, a, b);
    case kRealDiv:
      return expect_arithmetic(one, Arithmetic::Divide, a, b);
    case kLogicalAnd:
      return deciding(Logic::And);
    case kLogicalOr:
      return deciding(Logic::Or);
    case kLess:
      return comparing(Comparison::Less);
    case kGreater:
      return comparing(Comparison::Greater);
    default:
      return comparing(Comparison::Equal);
  }
}

/// A small output must not make us compute what two hostile shapes would broadcast to.
Status expect_broadcast(const Case& one, const Tensor& a, const Tensor& b) {
  ASSAY_TRY(const Dims shape, reference::broadcast_shape(a.view.shape, b.view.shape));
  ASSAY_TRY(const Tensor mine, one.operands->output(0));
  if (element_count(shape) == mine.view.element_count()) return {};
  return fail(Errc::Invalid, "outtensor0 has shape ", mine.view.shape, ", the inputs give ", shape);
}

/// FRACTAL_NZ tensors are padded with zeros: what makes zero of zeros can be computed on the stored shape.
bool keeps_padding(int64_t type) {
  switch (type) {
    case kCast:
    case kMuls:
    case kSin:
    case kNeg:
    case kTanh:
    case kAdd:
    case kSub:
    case kMul:
    case kLogicalAnd:
    case kLogicalOr:
    case kLess:
    case kGreater:
      return true;
    default:
      return false;
  }
}

bool has_two_inputs(int64_t type) { return type >= kAdd && type <= kEqual; }

}  // namespace

Result<Evaluation> evaluate_elewise(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("elewiseType", 0));
  if (type < kCast || type > kTanh)
    return fail(Errc::Unsupported, "elewiseType ", type, " is unknown");
  const bool per_channel = type == kQuantPerChannel || type == kDequantPerChannel;
  if (!keeps_padding(type)) {
    ASSAY_TRY_STATUS(refuse_nz(one));
  }
  if (type == kDynamicQuant) {
    ASSAY_TRY(const Tensor x, one.operands->input(0));
    return evaluate_dynamic_quant(one, x);
  }
  const size_t inputs = has_two_inputs(type) ? 2 : per_channel ? 3 : 1;
  ASSAY_TRY_STATUS(
      expect_counts(one, {.least_inputs = per_channel ? 2 : inputs, .most_inputs = inputs}));
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  Evaluation result{.variant = std::string(kNames[static_cast<size_t>(type)]), .outputs = {}};
  if (per_channel) {
    ASSAY_TRY(Expectation output, type == kQuantPerChannel ? expect_quant_per_channel(one, x)
                                                           : expect_dequant_per_channel(one, x));
    result.outputs.push_back(std::move(output));
  } else if (inputs == 2) {
    ASSAY_TRY(const Tensor b, one.operands->input(1));
    if (one.operands->is_nz_input(0) != one.operands->is_nz_input(1))
      return fail(Errc::Unsupported, "one of the inputs is in FRACTAL_NZ, the other is not");
    ASSAY_TRY_STATUS(expect_broadcast(one, x, b));
    ASSAY_TRY(Expectation output, expect_two_inputs(one, type, x, b));
    result.outputs.push_back(std::move(output));
  } else {
    ASSAY_TRY(Expectation output, expect_one_input(one, type, x));
    result.outputs.push_back(std::move(output));
  }
  return result;
}

}  // namespace assay::opcheck
