// SPDX-License-Identifier: Apache-2.0
#include "reference/elementwise/activation.hpp"

#include "opcheck/operations/elementwise/expect.hpp"
#include "reference/elementwise/quantise.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

// activationType   opcheck 7.2
constexpr int64_t kRelu = 1;
constexpr int64_t kGelu = 2;
constexpr int64_t kFastGelu = 3;
constexpr int64_t kSwish = 4;
constexpr int64_t kLog = 5;
constexpr int64_t kSwigluForward = 6;
constexpr int64_t kSwigluBackward = 7;
constexpr int64_t kSigmoid = 8;
constexpr int64_t kFasterGelu = 9;

/// The form is not among the parameters that the library writes: both count, unless it is given.
Result<Expectation> expect_gelu(const Case& one, const Tensor& x) {
  ASSAY_TRY(const int64_t mode, one.parameters.integer("geluMode", -1));
  const bool given = one.parameters.has("geluMode");
  if (given && mode != 0 && mode != 1)
    return fail(Errc::Unsupported, "geluMode ", mode, " is unknown");
  Expectation result{.index = 0, .accuracy = {.precision = Precision::Float}};
  if (!given || mode == 0)
    result.candidates.push_back(candidate(given ? "" : "geluMode tanh", [x] {
      return reference::gelu(x.view, reference::GeluForm::Tanh);
    }));
  if (!given || mode == 1)
    result.candidates.push_back(candidate(given ? "" : "geluMode none (erf)", [x] {
      return reference::gelu(x.view, reference::GeluForm::Erf);
    }));
  result.try_all = !given;
  return result;
}

}  // namespace

Result<Evaluation> evaluate_activation(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("activationType", 0));
  if (type < kRelu || type > kFasterGelu)
    return fail(Errc::Unsupported, "activationType ", type, " is unknown");
  const size_t inputs = type == kSwigluBackward ? 2 : 1;
  ASSAY_TRY_STATUS(expect_counts(one, {.least_inputs = inputs, .most_inputs = inputs}));
  // FRACTAL_NZ tensors are padded with zeros, of which these do not make zeros; and halves lie elsewhere.
  if (type == kSwigluForward || type == kSwigluBackward || type == kLog || type == kSigmoid) {
    ASSAY_TRY_STATUS(refuse_nz(one));
  }
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  ASSAY_TRY(const int64_t axis, one.parameters.integer("dim", -1));
  ASSAY_TRY(const double scale, one.parameters.number("scale", 1.0));

  const Accuracy exact{.precision = Precision::Float};
  const Accuracy fused{.precision = Precision::VectorFusion};
  Evaluation result;
  switch (type) {
    case kRelu:
      result.variant = "relu";
      result.outputs.push_back(expectation(0, exact, [x] { return reference::relu(x.view); }));
      break;
    case kGelu: {
      result.variant = "gelu";
      ASSAY_TRY(Expectation output, expect_gelu(one, x));
      result.outputs.push_back(std::move(output));
      break;
    }
    case kFastGelu:
    case kFasterGelu:
      result.variant = type == kFastGelu ? "fast gelu" : "faster gelu";
      result.outputs.push_back(expectation(0, exact, [x] { return reference::fast_gelu(x.view); }));
      break;
    case kSwish:
      result.variant = "swish";
      result.outputs.push_back(
          expectation(0, fused, [x, scale] { return reference::swish(x.view, scale); }));
      break;
    case kLog:
      result.variant = "log";
      result.outputs.push_back(expectation(0, exact, [x] { return reference::log(x.view); }));
      break;
    case kSwigluForward:
      result.variant = "swiglu";
      result.outputs.push_back(
          expectation(0, fused, [x, axis] { return reference::swiglu(x.view, axis); }));
      break;
    case kSwigluBackward: {
      result.variant = "swiglu backward";
      ASSAY_TRY(const Tensor input, one.operands->input(1));
      result.outputs.push_back(expectation(0, fused, [dy = x, input, axis] {
        return reference::swiglu_backward(dy.view, input.view, axis);
      }));
      break;
    }
    case kSigmoid:
    default:
      result.variant = "sigmoid";
      result.outputs.push_back(expectation(0, fused, [x] { return reference::sigmoid(x.view); }));
  }
  return result;
}

Result<Evaluation> evaluate_swiglu_quant(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("quantType", 0));
  if (type != 0) return fail(Errc::Unsupported, "quantType ", type, " is unknown");
  ASSAY_TRY_STATUS(expect_counts(one, {.least_outputs = 2, .most_outputs = 2}));
  ASSAY_TRY_STATUS(refuse_nz(one));
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  ASSAY_TRY_STATUS(refuse_empty(x, 0));
  ASSAY_TRY(reference::Wide y, reference::swiglu(x.view, -1));
  ASSAY_TRY(QuantisedRows rows, expect_dynamic_quantised(one, std::move(y), false, DType::Int8, 0));
  return evaluation("per token", std::move(rows.values), std::move(rows.scales));
}

}  // namespace assay::opcheck
