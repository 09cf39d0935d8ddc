// SPDX-License-Identifier: Apache-2.0
// RmsNorm and its relatives.   docs/opcheck/norms.md
#include "reference/norms/rms_norm.hpp"

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

/// The rms norm of a sum over the dimensions that gamma has.
Norm rms_norm_of(Addends x, const Tensor& gamma, reference::NormOptions options) {
  options.dims = reference::without_leading_ones(gamma.view.shape).size();
  return {.x = std::move(x), .gamma = gamma, .options = options};
}

/// What a norm without a sum is told.
Result<reference::NormOptions> read_options(const Parameters& parameters) {
  reference::NormOptions options;
  ASSAY_TRY(options.eps, parameters.number("normParam.epsilon", norms::kEpsilon));
  ASSAY_TRY(const int64_t precision, parameters.integer("normParam.precisionMode", 0));
  if (precision != 0 && precision != 1)
    return fail(unknown_value("normParam.precisionMode", precision,
                              "0 (high precision), 1 (high performance)"));
  ASSAY_TRY(const int64_t model, parameters.integer("normParam.modelType", 0));
  if (model != 0 && model != 1)
    return fail(unknown_value("normParam.modelType", model, "0 (LLAMA), 1 (GEMMA)"));
  options.round_to_float16 = precision == 1;
  options.unit_offset = model == 1;
  return options;
}

std::string norm_text(const reference::NormOptions& options, Quantisation::Kind kind) {
  std::string result = "norm";
  if (options.unit_offset) result += ", gemma";
  if (options.round_to_float16) result += ", high performance";
  return result.append(norms::text(kind));
}

Result<Evaluation> norm_with_rstd(const Case& one, const reference::NormOptions& options) {
  if (options.round_to_float16 || options.unit_offset)
    return fail(Errc::Unsupported, "rstd together with precisionMode 1 or modelType 1");
  ASSAY_TRY(const auto inputs, nd_inputs(one, {"x", "gamma"}));
  const Norm norm = rms_norm_of(Addends({inputs[0]}), inputs[1], options);
  return evaluation("norm, rstd", norms::expect_norm(0, Precision::VectorFusion, norm),
                    expectation(1, {Precision::VectorFusion, norm.terms()},
                                [x = inputs[0], options = norm.options] {
                                  return reference::reciprocal_rms(x.view, options.dims,
                                                                   options.eps);
                                }));
}

/// y / scale + offset.
Result<std::vector<Expectation>> expect_quantised(const Norm& norm,
                                                  const Quantisation& quantisation,
                                                  std::span<const Tensor> parameters) {
  ASSAY_TRY(Wide y, norm.compute());
  return norms::expect_quantised(0, norm.terms(), std::move(y), quantisation, parameters,
                                 reference::ScaleUse::Divide);
}

Result<Evaluation> norm_alone(const Case& one) {
  ASSAY_TRY(const reference::NormOptions options, read_options(one.parameters));
  ASSAY_TRY(const bool rstd, one.parameters.boolean("normParam.rstd", false));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, "normParam", 3));
  const std::string variant = norm_text(options, quantisation.kind);
  if (quantisation.kind == Quantisation::Kind::None) {
    if (rstd) return norm_with_rstd(one, options);
    ASSAY_TRY(const auto inputs, nd_inputs(one, {"x", "gamma"}));
    return evaluation(variant,
                      norms::expect_norm(0, Precision::VectorFusion,
                                         rms_norm_of(Addends({inputs[0]}), inputs[1], options)));
  }
  if (rstd) return fail(Errc::Unsupported, "rstd of a quantised norm");
  ASSAY_TRY(const auto inputs, quantisation.has_tensors()
                                   ? nd_inputs(one, {"x", "gamma", "beta", "scale", "offset"})
                                   : nd_inputs(one, {"x", "gamma", "beta"}));
  Norm norm = rms_norm_of(Addends({inputs[0]}), inputs[1], options);
  norm.beta = inputs[2];
  ASSAY_TRY(auto outputs, expect_quantised(norm, quantisation, std::span(inputs).subspan(3)));
  return Evaluation{variant, std::move(outputs)};
}

/// Norm of a sum; of a prenorm the sum is an output of its own.
Result<Evaluation> norm_of_sum(const Case& one, bool prenorm) {
  const std::string section = prenorm ? "preNormParam" : "postNormParam";
  reference::NormOptions options;
  ASSAY_TRY(options.eps, one.parameters.number(section + ".epsilon", norms::kEpsilon));
  ASSAY_TRY(const bool has_bias, one.parameters.boolean(section + ".hasBias", false));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, section, 0));
  Evaluation made{prenorm ? "prenorm" : "postnorm", {}};
  if (has_bias) made.variant += ", bias";
  made.variant += norms::text(quantisation.kind);

  if (quantisation.kind == Quantisation::Kind::None) {
    ASSAY_TRY(const auto inputs, has_bias ? nd_inputs(one, {"x", "bias", "res_in", "gamma"})
                                          : nd_inputs(one, {"x", "res_in", "gamma"}));
    Addends x;
    for (size_t i = 0; i + 1 < inputs.size(); ++i) x.add(inputs[i]);
    const Norm norm = rms_norm_of(x, inputs.back(), options);
    made.outputs.push_back(norms::expect_norm(0, Precision::VectorFusion, norm));
    if (prenorm) made.outputs.push_back(norms::expect_sum(1, Precision::VectorFusion, norm));
    return made;
  }
  if (has_bias) return fail(Errc::Unsupported, section, ".hasBias of a quantised norm");

  std::vector<std::string_view> names = {"x", "res_in", "gamma"};
  if (prenorm) names.emplace_back("beta");
  const size_t plain = names.size();
  if (quantisation.has_tensors()) names.insert(names.end(), {"scale", "offset"});
  ASSAY_TRY(const auto inputs, nd_inputs(one, names));
  Norm norm = rms_norm_of(Addends({inputs[0], inputs[1]}), inputs[2], options);
  if (prenorm) norm.beta = inputs[3];
  ASSAY_TRY(made.outputs, expect_quantised(norm, quantisation, std::span(inputs).subspan(plain)));
  Expectation sum = norms::expect_sum(1, Precision::Quant, norm);
  if (!prenorm) {
    // The list of operations calls it res_out, the library's own check expects the normalised
    // values.
    Expectation normalised = norms::expect_norm(1, Precision::Quant, norm);
    normalised.candidates[0].label = "normalised values";
    sum.candidates[0].label = "sum of x and res_in";
    normalised.candidates.push_back(std::move(sum.candidates[0]));
    normalised.try_all = true;
    sum = std::move(normalised);
  }
  made.outputs.push_back(std::move(sum));
  return made;
}

}  // namespace

Result<Evaluation> evaluate_rms_norm(const Case& one) {
  return norms::evaluate_layer(one, norm_alone, norm_of_sum);
}

Result<Evaluation> evaluate_rms_norm_with_stride(const Case& one) {
  ASSAY_TRY(const int64_t layer, one.parameters.integer("layerType", 0));
  ASSAY_TRY(const bool rstd, one.parameters.boolean("normParam.rstd", false));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, "normParam", 0));
  if (layer != 1 || rstd || quantisation.kind != Quantisation::Kind::None)
    return fail(
        Errc::Unsupported,
        sentence("only layerType 1 (NORM) without rstd and quantisation has strides; layerType is ",
                 layer));
  ASSAY_TRY(const reference::NormOptions options, read_options(one.parameters));
  ASSAY_TRY(auto inputs, nd_inputs(one, {"x", "gamma", "strides", "offset"}));
  ASSAY_TRY(Tensor x, norms::strided(inputs[0], inputs[2], inputs[3]));
  return evaluation(norm_text(options, Quantisation::Kind::None) + ", strided",
                    norms::expect_norm(0, Precision::VectorFusion,
                                       rms_norm_of(Addends({x}), inputs[1], options)));
}

Result<Evaluation> evaluate_rms_norm_backward(const Case& one) {
  ASSAY_TRY(auto inputs, nd_inputs(one, {"dy", "x", "rstd", "gamma"}));
  ASSAY_TRY(
      reference::RmsNormGradient gradient,
      reference::rms_norm_gradient(inputs[0].view, inputs[1].view, inputs[2].view, inputs[3].view));
  const int64_t length = std::max<int64_t>(inputs[3].view.element_count(), 1);
  const int64_t rows = inputs[1].view.element_count() / length;
  return evaluation("backward",
                    expectation_of(0, {Precision::VectorFusion, length}, std::move(gradient.dx)),
                    expectation_of(1, {Precision::VectorFusion, rows}, std::move(gradient.dgamma)));
}

}  // namespace assay::opcheck
