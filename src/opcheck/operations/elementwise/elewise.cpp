// SPDX-License-Identifier: Apache-2.0
// elewiseType selects a row of one table. Where devices differ an output has several candidates:
// with and without a scale, with and without saturation.
//   docs/opcheck/elementwise.md, "ElewiseOperation"
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

constexpr Accuracy kFloat{.precision = Precision::Float};
constexpr Accuracy kQuantised{.precision = Precision::Quant};
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

Result<Expectation> expect_cast(const Case& one, const Tensor& x, const Tensor& /*none*/) {
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
  return reference::rounded_to(std::move(values), target);
}

/// Newer devices use scale and offset, older ones ignore them, and the dump does not say which it
/// was.
Result<Expectation> expect_quant(const Case& one, const Tensor& x, const Tensor& /*none*/) {
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

template <Arithmetic operation>
Result<Expectation> arithmetic(const Case& one, const Tensor& a, const Tensor& b) {
  Expectation result =
      expectation(0, kFloat, [a, b] { return reference::arithmetic(operation, a.view, b.view); });
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

Result<Expectation> expect_quant_per_channel(const Case& one, const Tensor& x,
                                             const Tensor& scale) {
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

Result<Expectation> expect_dequant_per_channel(const Case& one, const Tensor& y,
                                               const Tensor& scale) {
  ASSAY_TRY(const std::optional<Tensor> offset, optional_input(one, 2));
  return expectation(0, kQuantised, [y, scale, offset]() -> Result<Wide> {
    ASSAY_TRY(Wide values, reference::widen(y.view));
    return reference::dequantise_per_channel(std::move(values), scale.view,
                                             offset ? &offset->view : nullptr);
  });
}

Result<Expectation> expect_muls(const Case& one, const Tensor& x, const Tensor& /*none*/) {
  if (!one.parameters.has("mulsParam.varAttr|varAttr"))
    return fail(Errc::Invalid, "parameter mulsParam.varAttr is missing");
  ASSAY_TRY(const double factor, one.parameters.number("mulsParam.varAttr|varAttr", 0));
  return expectation(0, kFloat, [x, factor] { return reference::scaled(x.view, factor); });
}

template <auto function, Precision precision = Precision::Float>
Result<Expectation> mapped(const Case& /*one*/, const Tensor& x, const Tensor& /*none*/) {
  return expectation(0, {.precision = precision}, [x] { return function(x.view); });
}
template <auto function, auto operation>
Result<Expectation> decided(const Case& /*one*/, const Tensor& a, const Tensor& b) {
  return expectation(0, {.precision = Precision::Integer},
                     [a, b] { return function(operation, a.view, b.view); });
}

/// keeps_padding   FRACTAL_NZ tensors are padded with zeros: what makes zero of zeros can be
///                 computed on the stored shape
struct Elewise {
  std::string_view name;
  size_t least_inputs, most_inputs;
  bool keeps_padding;
  Result<Expectation> (*expect)(const Case& one, const Tensor& x, const Tensor& second);
};

// elewiseType, from 1 on   docs/opcheck/elementwise.md
constexpr int64_t kDynamicQuant = 19;
constexpr std::array<Elewise, 20> kElewise = {{
    {"cast", 1, 1, true, expect_cast},
    {"muls", 1, 1, true, expect_muls},
    {"cos", 1, 1, false, mapped<reference::cosine>},
    {"sin", 1, 1, true, mapped<reference::sine>},
    {"neg", 1, 1, true, mapped<reference::negated>},
    {"quant", 1, 1, false, expect_quant},
    {"logical not", 1, 1, false, mapped<reference::logical_not, Precision::Integer>},
    {"add", 2, 2, true, arithmetic<Arithmetic::Add>},
    {"mul", 2, 2, true, arithmetic<Arithmetic::Multiply>},
    {"realdiv", 2, 2, false, arithmetic<Arithmetic::Divide>},
    {"logical and", 2, 2, true, decided<reference::logical, Logic::And>},
    {"logical or", 2, 2, true, decided<reference::logical, Logic::Or>},
    {"less", 2, 2, true, decided<reference::compare, Comparison::Less>},
    {"greater", 2, 2, true, decided<reference::compare, Comparison::Greater>},
    {"sub", 2, 2, true, arithmetic<Arithmetic::Subtract>},
    {"equal", 2, 2, false, decided<reference::compare, Comparison::Equal>},
    {"quant per channel", 2, 3, false, expect_quant_per_channel},
    {"dequant per channel", 2, 3, false, expect_dequant_per_channel},
    {"dynamic quant", 1, 1, false, nullptr},
    {"tanh", 1, 1, true, mapped<reference::hyperbolic_tangent, Precision::Quant>},
}};

/// A small output must not make us compute what two hostile shapes would broadcast to.
Status expect_broadcast(const Case& one, const Tensor& a, const Tensor& b) {
  ASSAY_TRY(const Dims shape, reference::broadcast_shape(a.view.shape, b.view.shape));
  ASSAY_TRY(const Tensor mine, one.operands->output(0));
  if (element_count(shape) == mine.view.element_count()) return {};
  return fail(Errc::Invalid, "outtensor0 has shape ", mine.view.shape, ", the inputs give ", shape);
}

}  // namespace

Result<Evaluation> evaluate_elewise(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("elewiseType", 0));
  if (type < 1 || type > std::ssize(kElewise))
    return fail(Errc::Unsupported, "elewiseType ", type, " is unknown");
  const Elewise& elewise = kElewise[static_cast<size_t>(type - 1)];
  if (!elewise.keeps_padding) {
    ASSAY_TRY_STATUS(refuse_nz(one));
  }
  if (type == kDynamicQuant) {
    ASSAY_TRY(const Tensor x, one.operands->input(0));
    return evaluate_dynamic_quant(one, x);
  }
  ASSAY_TRY_STATUS(expect_counts(
      one, {.least_inputs = elewise.least_inputs, .most_inputs = elewise.most_inputs}));
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  Tensor second;
  if (elewise.least_inputs == 2) {
    ASSAY_TRY(second, one.operands->input(1));
  }
  if (elewise.most_inputs == 2) {
    if (one.operands->is_nz_input(0) != one.operands->is_nz_input(1))
      return fail(Errc::Unsupported, "one of the inputs is in FRACTAL_NZ, the other is not");
    ASSAY_TRY_STATUS(expect_broadcast(one, x, second));
  }
  ASSAY_TRY(Expectation output, elewise.expect(one, x, second));
  return evaluation(std::string(elewise.name), std::move(output));
}

}  // namespace assay::opcheck
