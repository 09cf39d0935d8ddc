// SPDX-License-Identifier: Apache-2.0
// activationType selects a row of one table, which has the reference function; gelu, whose form the
// dump does not tell, and the backward of swiglu have expectations of their own.
//   docs/opcheck/elementwise.md, "ActivationOperation"
#include "reference/elementwise/activation.hpp"

#include <array>
#include <string>

#include "opcheck/operations/elementwise/expect.hpp"
#include "reference/elementwise/quantise.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

/// The library does not write which form it computed: without geluMode the output may match either.
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

using Function = Result<reference::Wide> (*)(const TensorView& x, double scale, int64_t axis);

/// function        of one input; the others have expectations of their own
/// keeps_padding   makes zeros of the zeros that FRACTAL_NZ tensors are padded with, so that the
///                 stored shape can be computed; halves of a row lie elsewhere in it
struct Activation {
  std::string_view name;
  Precision precision;
  bool keeps_padding;
  Function function;
};
constexpr auto kExact = Precision::Float;
constexpr auto kFused = Precision::VectorFusion;

template <auto function>
Result<reference::Wide> plain(const TensorView& x, double /*scale*/, int64_t /*axis*/) {
  return function(x);
}
Result<reference::Wide> swish(const TensorView& x, double scale, int64_t /*axis*/) {
  return reference::swish(x, scale);
}
Result<reference::Wide> swiglu(const TensorView& x, double /*scale*/, int64_t axis) {
  return reference::swiglu(x, axis);
}

// activationType, from 1 on   docs/opcheck/elementwise.md
constexpr int64_t kGelu = 2;
constexpr int64_t kSwigluBackward = 7;
constexpr std::array<Activation, 9> kActivations = {{
    {"relu", kExact, true, plain<reference::relu>},
    {"gelu", kExact, true, nullptr},
    {"fast gelu", kExact, true, plain<reference::fast_gelu>},
    {"swish", kFused, true, swish},
    {"log", kExact, false, plain<reference::log>},
    {"swiglu", kFused, false, swiglu},
    {"swiglu backward", kFused, false, nullptr},
    {"sigmoid", kFused, false,
     plain<static_cast<Result<reference::Wide> (*)(const TensorView&)>(reference::sigmoid)>},
    {"faster gelu", kExact, true, plain<reference::fast_gelu>},
}};

}  // namespace

Result<Evaluation> evaluate_activation(const Case& one) {
  ASSAY_TRY(const int64_t type, one.parameters.integer("activationType", 0));
  if (type < 1 || type > std::ssize(kActivations))
    return fail(Errc::Unsupported, "activationType ", type, " is unknown");
  const Activation& activation = kActivations[static_cast<size_t>(type - 1)];
  const size_t inputs = type == kSwigluBackward ? 2 : 1;
  ASSAY_TRY_STATUS(expect_counts(one, {.least_inputs = inputs, .most_inputs = inputs}));
  if (!activation.keeps_padding) {
    ASSAY_TRY_STATUS(refuse_nz(one));
  }
  ASSAY_TRY(const Tensor x, one.operands->input(0));
  ASSAY_TRY(const int64_t axis, one.parameters.integer("dim", -1));
  ASSAY_TRY(const double scale, one.parameters.number("scale", 1.0));
  const std::string name(activation.name);
  const Accuracy accuracy{.precision = activation.precision};
  if (type == kGelu) {
    ASSAY_TRY(Expectation output, expect_gelu(one, x));
    return evaluation(name, std::move(output));
  }
  if (type == kSwigluBackward) {
    ASSAY_TRY(const Tensor input, one.operands->input(1));
    return evaluation(name, expectation(0, accuracy, [dy = x, input, axis] {
                        return reference::swiglu_backward(dy.view, input.view, axis);
                      }));
  }
  return evaluation(name, expectation(0, accuracy, [x, scale, axis, of = activation.function] {
                      return of(x.view, scale, axis);
                    }));
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
