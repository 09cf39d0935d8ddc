// SPDX-License-Identifier: Apache-2.0
// LayerNorm and its relatives.   docs/opcheck/norms.md
#include "reference/norms/layer_norm.hpp"

#include <string>

#include "opcheck/operations/norms/evaluate.hpp"
#include "reference/elementwise/quantise.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using norms::Addends;
using norms::nd_inputs;
using norms::Norm;
using norms::Quantisation;
using reference::Wide;

/// The layer norm of a sum; beta stands behind gamma.
Norm layer_norm_of(Addends x, std::span<const Tensor> gamma_and_beta, double eps) {
  return {.x = std::move(x),
          .gamma = gamma_and_beta[0],
          .beta = gamma_and_beta[1],
          .options = {.centred = true, .eps = eps}};
}

/// y * scale + offset of values that the quantised forms round to float16 first.
Result<std::vector<Expectation>> expect_quantised(size_t index, const Norm& norm,
                                                  const Quantisation& quantisation,
                                                  std::span<const Tensor> parameters) {
  ASSAY_TRY(Wide y, norm.compute());
  reference::round_row_to_float16(y.data(), y.size());
  return norms::expect_quantised(index, norm.terms(), std::move(y), quantisation, parameters,
                                 reference::ScaleUse::Multiply);
}

Result<Evaluation> norm_alone(const Case& one) {
  ASSAY_TRY(const double eps, one.parameters.number("normParam.epsilon", norms::kEpsilon));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, "normParam", 3));
  const std::string variant = "norm" + std::string(norms::text(quantisation.kind));
  ASSAY_TRY(const auto inputs, quantisation.has_tensors()
                                   ? nd_inputs(one, {"x", "gamma", "beta", "scale", "offset"})
                                   : nd_inputs(one, {"x", "gamma", "beta"}));
  const std::span<const Tensor> rest(inputs);
  Norm norm = layer_norm_of(Addends({inputs[0]}), rest.subspan(1), eps);
  if (quantisation.kind != Quantisation::Kind::None) {
    ASSAY_TRY(auto outputs, expect_quantised(0, norm, quantisation, rest.subspan(3)));
    return Evaluation{variant, std::move(outputs)};
  }
  ASSAY_TRY(const int64_t begin, one.parameters.integer("normParam.beginNormAxis", 0));
  const size_t rank = inputs[0].view.shape.size();
  const Result<size_t> axis = reference::axis_of(begin, rank);
  if (!axis) return fail(Errc::Invalid, "normParam.beginNormAxis: ", axis.error().message);
  norm.options.dims = rank - *axis;
  return evaluation(variant, norms::expect_norm(0, Precision::Float, norm));
}

Result<Evaluation> norm_of_sum(const Case& one, bool prenorm) {
  const std::string section = prenorm ? "preNormParam" : "postNormParam";
  ASSAY_TRY(const double eps, one.parameters.number(section + ".epsilon", norms::kEpsilon));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, section, 0));
  Evaluation made{(prenorm ? "prenorm" : "postnorm") + std::string(norms::text(quantisation.kind)),
                  {}};
  if (quantisation.kind == Quantisation::Kind::None) {
    ASSAY_TRY(const double zoom,
              one.parameters.number(section + ".zoomScaleValue|" + section + ".zoomScale", 1.0));
    ASSAY_TRY(const auto inputs, nd_inputs(one, {"x1", "x2", "gamma", "beta"}));
    Addends x({inputs[0]});
    x.add(inputs[1], zoom);
    const Norm norm = layer_norm_of(x, std::span(inputs).subspan(2), eps);
    made.outputs.push_back(norms::expect_norm(0, Precision::VectorFusion, norm));
    if (prenorm) made.outputs.push_back(norms::expect_sum(1, Precision::VectorFusion, norm));
    return made;
  }
  if (prenorm)
    return fail(Errc::Unsupported, "a quantised prenorm of LayerNorm has no public golden");
  ASSAY_TRY(const auto inputs,
            quantisation.in_parameters
                ? nd_inputs(one, {"x1", "x2", "gamma", "beta"})
                : nd_inputs(one, {"x1", "x2", "gamma", "beta", "scale", "offset"}));
  const std::span<const Tensor> rest(inputs);
  const Norm norm = layer_norm_of(Addends({inputs[0], inputs[1]}), rest.subspan(2), eps);
  double alpha = 1.0;
  if (quantisation.in_parameters) {
    ASSAY_TRY(alpha, one.parameters.number(section + ".quantInputAlpha", 1.0));
  }
  made.outputs.push_back(expectation(0, {Precision::Quant, norm.terms()}, [norm, alpha] {
    return norm.compute().transform([alpha](Wide z) {
      for (double& value : z.values) value *= alpha;
      return z;
    });
  }));
  ASSAY_TRY(auto outputs, expect_quantised(1, norm, quantisation, rest.subspan(4)));
  made.outputs.push_back(std::move(outputs[0]));
  return made;
}

}  // namespace

Result<Evaluation> evaluate_layer_norm(const Case& one) {
  return norms::evaluate_layer(one, norm_alone, norm_of_sum);
}

Result<Evaluation> evaluate_layer_norm_with_stride(const Case& one) {
  ASSAY_TRY(const int64_t layer, one.parameters.integer("layerType", 0));
  ASSAY_TRY(const double eps, one.parameters.number("normParam.epsilon", norms::kEpsilon));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, "normParam", 0));
  if (layer != 1 || quantisation.kind != Quantisation::Kind::None)
    return fail(
        Errc::Unsupported,
        sentence("only layerType 1 (NORM) without quantisation has strides; layerType is ", layer));
  ASSAY_TRY(auto inputs, nd_inputs(one, {"x", "gamma", "beta", "strides", "offset"}));
  ASSAY_TRY(Tensor x, norms::strided(inputs[0], inputs[3], inputs[4]));
  Norm norm = layer_norm_of(Addends({std::move(x)}), std::span(inputs).subspan(1), eps);
  // The dimensions of gamma are normalised, whatever beginNormAxis says.
  norm.options.dims =
      std::max<size_t>(1, reference::without_leading_ones(inputs[1].view.shape).size());
  return evaluation("norm, strided", norms::expect_norm(0, Precision::Float, norm));
}

Result<Evaluation> evaluate_cohere_layer_norm(const Case& one) {
  ASSAY_TRY(const double eps, one.parameters.number("epsilon", norms::kEpsilon));
  ASSAY_TRY(auto inputs, nd_inputs(one, {"x", "weight"}));
  return evaluation("norm of every head",
                    expectation(0, {Precision::Float, norms::last_size(inputs[0])}, [inputs, eps] {
                      const reference::Term x[] = {{inputs[0].view}};
                      return reference::layer_norm(x, inputs[1].view, std::nullopt, {.eps = eps});
                    }));
}

}  // namespace assay::opcheck
