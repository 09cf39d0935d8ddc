// SPDX-License-Identifier: Apache-2.0
// RmsNorm and its relatives.   docs/opcheck/norms.md
#include "reference/norms/rms_norm.hpp"

#include <string>

#include "opcheck/operations/norms/evaluate.hpp"
#include "reference/elementwise/quantise.hpp"

namespace assay::opcheck {
namespace {

using norms::Addends;
using norms::expect;
using norms::Quantisation;
using norms::read_inputs;
using reference::Wide;

Error unknown_value(std::string_view key, int64_t value, std::string_view known) {
  return {Errc::Unsupported,
          {},
          std::nullopt,
          std::string(key) + " " + std::to_string(value) + " is none of " + std::string(known)};
}

struct Common {
  double eps = norms::kEpsilon;
  bool gemma = false;
  bool half = false;  // precisionMode 1
};

/// Everything of a norm but the sum in front of it.
struct Norm {
  Addends x;
  Tensor gamma;
  std::optional<Tensor> beta = {};
  Common common = {};

  [[nodiscard]] Result<Wide> compute() const {
    reference::RmsNormOptions options{
        .eps = common.eps, .unit_offset = common.gemma, .round_to_float16 = common.half};
    if (beta) options.beta = beta->view;
    return reference::rms_norm(x.terms(), gamma.view, options);
  }
  /// Elements that one mean is taken over.
  [[nodiscard]] int64_t terms() const { return gamma.view.element_count(); }
};

/// y / scale + offset before rounding.
Result<Wide> quantised(Wide y, const Quantisation& quantisation, const Tensor* scale,
                       const Tensor* offset) {
  if (quantisation.in_parameters) {
    for (double& value : y.values) value = value / quantisation.scale + quantisation.offset;
    return y;
  }
  return reference::quantise_per_channel(std::move(y), scale->view, &offset->view);
}

Result<Common> read_norm_common(const Parameters& parameters) {
  Common common;
  ASSAY_TRY(common.eps, parameters.number("normParam.epsilon", norms::kEpsilon));
  ASSAY_TRY(const int64_t precision, parameters.integer("normParam.precisionMode", 0));
  if (precision != 0 && precision != 1)
    return fail(unknown_value("normParam.precisionMode", precision,
                              "0 (high precision), 1 (high performance)"));
  ASSAY_TRY(const int64_t model, parameters.integer("normParam.modelType", 0));
  if (model != 0 && model != 1)
    return fail(unknown_value("normParam.modelType", model, "0 (LLAMA), 1 (GEMMA)"));
  common.half = precision == 1;
  common.gemma = model == 1;
  return common;
}

std::string norm_text(const Common& common, Quantisation::Kind kind) {
  std::string result = "norm";
  if (common.gemma) result += ", gemma";
  if (common.half) result += ", high performance";
  return result.append(norms::text(kind));
}

Result<Evaluation> norm_with_rstd(const Case& one, const Common& common) {
  if (common.half || common.gemma)
    return fail(Errc::Unsupported, "rstd together with precisionMode 1 or modelType 1");
  ASSAY_TRY(auto inputs, read_inputs(one, {"x", "gamma"}));
  Norm norm{.x = {}, .gamma = inputs[1], .common = common};
  norm.x.add(inputs[0]);
  const Accuracy accuracy{Precision::VectorFusion, norm.terms()};
  Evaluation evaluation{"norm, rstd", {}};
  evaluation.outputs.push_back(expect(0, accuracy, [norm] { return norm.compute(); }));
  evaluation.outputs.push_back(
      expect(1, accuracy, [x = inputs[0], gamma = inputs[1], eps = common.eps] {
        const size_t dims = reference::without_leading_ones(gamma.view.shape).size();
        return reference::reciprocal_rms(x.view, dims, eps);
      }));
  return evaluation;
}

Result<Evaluation> norm_alone(const Case& one) {
  ASSAY_TRY(const Common common, read_norm_common(one.parameters));
  ASSAY_TRY(const bool rstd, one.parameters.boolean("normParam.rstd", false));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, "normParam", 3));
  Evaluation evaluation{norm_text(common, quantisation.kind), {}};
  if (quantisation.kind == Quantisation::Kind::None) {
    if (rstd) return norm_with_rstd(one, common);
    ASSAY_TRY(auto inputs, read_inputs(one, {"x", "gamma"}));
    Norm norm{.x = {}, .gamma = inputs[1], .common = common};
    norm.x.add(inputs[0]);
    evaluation.outputs.push_back(
        expect(0, {Precision::VectorFusion, norm.terms()}, [norm] { return norm.compute(); }));
    return evaluation;
  }
  if (rstd) return fail(Errc::Unsupported, "rstd of a quantised norm");
  const bool with_tensors =
      quantisation.kind == Quantisation::Kind::Static && !quantisation.in_parameters;
  ASSAY_TRY(auto inputs, with_tensors ? read_inputs(one, {"x", "gamma", "beta", "scale", "offset"})
                                      : read_inputs(one, {"x", "gamma", "beta"}));
  Norm norm{.x = {}, .gamma = inputs[1], .beta = inputs[2], .common = common};
  norm.x.add(inputs[0]);
  ASSAY_TRY(Wide y, norm.compute());
  if (quantisation.kind != Quantisation::Kind::Static) {
    ASSAY_TRY(evaluation.outputs,
              norms::expect_dynamic_int8(norm.terms(), std::move(y),
                                         quantisation.kind == Quantisation::Kind::Asymmetric));
    return evaluation;
  }
  ASSAY_TRY(Wide before, quantised(std::move(y), quantisation, with_tensors ? &inputs[3] : nullptr,
                                   with_tensors ? &inputs[4] : nullptr));
  evaluation.outputs.push_back(norms::expect_int8(0, norm.terms(), std::move(before)));
  return evaluation;
}

/// Norm of a sum; of a prenorm the sum is an output of its own.
Result<Evaluation> norm_of_sum(const Case& one, bool prenorm) {
  const std::string section = prenorm ? "preNormParam" : "postNormParam";
  Common common;
  ASSAY_TRY(common.eps, one.parameters.number(section + ".epsilon", norms::kEpsilon));
  ASSAY_TRY(const bool has_bias, one.parameters.boolean(section + ".hasBias", false));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, section, 0));
  Evaluation evaluation{prenorm ? "prenorm" : "postnorm", {}};
  if (has_bias) evaluation.variant += ", bias";
  evaluation.variant += norms::text(quantisation.kind);

  if (quantisation.kind == Quantisation::Kind::None) {
    ASSAY_TRY(auto inputs, has_bias ? read_inputs(one, {"x", "bias", "res_in", "gamma"})
                                    : read_inputs(one, {"x", "res_in", "gamma"}));
    Norm norm{.x = {}, .gamma = inputs.back(), .common = common};
    for (size_t i = 0; i + 1 < inputs.size(); ++i) norm.x.add(inputs[i]);
    const Accuracy accuracy{Precision::VectorFusion, norm.terms()};
    evaluation.outputs.push_back(expect(0, accuracy, [norm] { return norm.compute(); }));
    if (prenorm)
      evaluation.outputs.push_back(
          expect(1, accuracy, [x = norm.x] { return reference::sum_of(x.terms()); }));
    return evaluation;
  }
  if (has_bias) return fail(Errc::Unsupported, section + ".hasBias of a quantised norm");

  std::vector<Tensor> inputs;
  if (prenorm && quantisation.in_parameters) {
    ASSAY_TRY(inputs, read_inputs(one, {"x", "res_in", "gamma", "beta"}));
  } else if (prenorm) {
    ASSAY_TRY(inputs, read_inputs(one, {"x", "res_in", "gamma", "beta", "scale", "offset"}));
  } else if (quantisation.in_parameters) {
    ASSAY_TRY(inputs, read_inputs(one, {"x", "res_in", "gamma"}));
  } else {
    ASSAY_TRY(inputs, read_inputs(one, {"x", "res_in", "gamma", "scale", "offset"}));
  }
  Norm norm{.x = {}, .gamma = inputs[2], .common = common};
  norm.x.add(inputs[0]);
  norm.x.add(inputs[1]);
  if (prenorm) norm.beta = inputs[3];
  const size_t scale = prenorm ? 4 : 3;
  ASSAY_TRY(Wide y, norm.compute());
  ASSAY_TRY(Wide before, quantised(std::move(y), quantisation,
                                   quantisation.in_parameters ? nullptr : &inputs[scale],
                                   quantisation.in_parameters ? nullptr : &inputs[scale + 1]));
  evaluation.outputs.push_back(norms::expect_int8(0, norm.terms(), std::move(before)));

  const Accuracy accuracy{Precision::Quant, norm.terms()};
  Expectation sum = expect(1, accuracy, [x = norm.x] { return reference::sum_of(x.terms()); });
  if (!prenorm) {
    // The list of operations calls it res_out, the library's own check expects the normalised values.
    Expectation normalised = expect(1, accuracy, [norm] { return norm.compute(); });
    normalised.candidates[0].label = "normalised values";
    sum.candidates[0].label = "sum of x and res_in";
    normalised.candidates.push_back(std::move(sum.candidates[0]));
    normalised.try_all = true;
    evaluation.outputs.push_back(std::move(normalised));
    return evaluation;
  }
  evaluation.outputs.push_back(std::move(sum));
  return evaluation;
}

}  // namespace

Result<Evaluation> evaluate_rms_norm(const Case& one) {
  ASSAY_TRY(const int64_t layer, one.parameters.integer("layerType", 0));
  switch (layer) {
    case 1:
      return norm_alone(one);
    case 2:
      return norm_of_sum(one, true);
    case 3:
      return norm_of_sum(one, false);
    default:
      return fail(unknown_value("layerType", layer, "1 (NORM), 2 (PRENORM), 3 (POSTNORM)"));
  }
}

Result<Evaluation> evaluate_rms_norm_with_stride(const Case& one) {
  ASSAY_TRY(const int64_t layer, one.parameters.integer("layerType", 0));
  ASSAY_TRY(const bool rstd, one.parameters.boolean("normParam.rstd", false));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, "normParam", 0));
  if (layer != 1 || rstd || quantisation.kind != Quantisation::Kind::None)
    return fail(Errc::Unsupported,
                "only layerType 1 (NORM) without rstd and quantisation has strides; layerType is " +
                    std::to_string(layer));
  ASSAY_TRY(const Common common, read_norm_common(one.parameters));
  ASSAY_TRY(auto inputs, read_inputs(one, {"x", "gamma", "strides", "offset"}));
  ASSAY_TRY(Tensor x, norms::strided(inputs[0], inputs[2], inputs[3]));
  Norm norm{.x = {}, .gamma = inputs[1], .common = common};
  norm.x.add(std::move(x));
  Evaluation evaluation{norm_text(common, Quantisation::Kind::None) + ", strided", {}};
  evaluation.outputs.push_back(
      expect(0, {Precision::VectorFusion, norm.terms()}, [norm] { return norm.compute(); }));
  return evaluation;
}

Result<Evaluation> evaluate_rms_norm_backward(const Case& one) {
  ASSAY_TRY(auto inputs, read_inputs(one, {"dy", "x", "rstd", "gamma"}));
  ASSAY_TRY(
      reference::RmsNormGradient gradient,
      reference::rms_norm_gradient(inputs[0].view, inputs[1].view, inputs[2].view, inputs[3].view));
  const int64_t length = std::max<int64_t>(inputs[3].view.element_count(), 1);
  const int64_t rows = inputs[1].view.element_count() / length;
  Evaluation evaluation{"backward", {}};
  evaluation.outputs.push_back(
      norms::expect_values(0, {Precision::VectorFusion, length}, std::move(gradient.dx)));
  evaluation.outputs.push_back(
      norms::expect_values(1, {Precision::VectorFusion, rows}, std::move(gradient.dgamma)));
  return evaluation;
}

}  // namespace assay::opcheck
