// SPDX-License-Identifier: Apache-2.0
// LayerNorm and its relatives.   docs/opcheck/norms.md
#include "reference/norms/layer_norm.hpp"

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

struct Norm {
  Addends x;
  Tensor gamma;
  Tensor beta;
  reference::LayerNormOptions options = {};

  [[nodiscard]] Result<Wide> compute() const {
    return reference::layer_norm(x.terms(), gamma.view, beta.view, options);
  }
  /// What the quantised forms go on with.
  [[nodiscard]] Result<Wide> compute_in_float16() const {
    ASSAY_TRY(Wide y, compute());
    reference::round_row_to_float16(y.data(), y.size());
    return y;
  }
  /// Elements that one mean is taken over; 0 for impossible dimensions.
  [[nodiscard]] int64_t terms() const {
    const std::span<const int64_t> shape = x.shape().span();
    if (options.dims > shape.size()) return 0;
    return element_count(shape.last(options.dims)).value_or(0);
  }
};

/// y * scale + offset before rounding.
Result<Wide> quantised(Wide y, const Quantisation& quantisation, const Tensor* scale,
                       const Tensor* offset) {
  if (quantisation.in_parameters) {
    for (double& value : y.values) value = value * quantisation.scale + quantisation.offset;
    return y;
  }
  return reference::quantise_per_channel(std::move(y), scale->view, &offset->view,
                                         reference::ScaleUse::Multiply);
}

Result<Evaluation> norm_alone(const Case& one) {
  ASSAY_TRY(const double eps, one.parameters.number("normParam.epsilon", norms::kEpsilon));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, "normParam", 3));
  Evaluation evaluation{"norm" + std::string(norms::text(quantisation.kind)), {}};
  const bool with_tensors =
      quantisation.kind == Quantisation::Kind::Static && !quantisation.in_parameters;
  ASSAY_TRY(auto inputs, with_tensors ? read_inputs(one, {"x", "gamma", "beta", "scale", "offset"})
                                      : read_inputs(one, {"x", "gamma", "beta"}));
  Norm norm{.x = {}, .gamma = inputs[1], .beta = inputs[2], .options = {.eps = eps}};
  norm.x.add(inputs[0]);
  if (quantisation.kind == Quantisation::Kind::None) {
    ASSAY_TRY(const int64_t begin, one.parameters.integer("normParam.beginNormAxis", 0));
    const size_t rank = inputs[0].view.shape.size();
    Result<size_t> axis = reference::axis_of(begin, rank);
    if (!axis) return fail(Errc::Invalid, "normParam.beginNormAxis: " + axis.error().message);
    norm.options.dims = rank - *axis;
    evaluation.outputs.push_back(
        expect(0, {Precision::Float, norm.terms()}, [norm] { return norm.compute(); }));
    return evaluation;
  }
  ASSAY_TRY(Wide y, norm.compute_in_float16());
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

Result<Evaluation> norm_of_sum(const Case& one, bool prenorm) {
  const std::string section = prenorm ? "preNormParam" : "postNormParam";
  ASSAY_TRY(const double eps, one.parameters.number(section + ".epsilon", norms::kEpsilon));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, section, 0));
  Evaluation evaluation{
      (prenorm ? "prenorm" : "postnorm") + std::string(norms::text(quantisation.kind)), {}};
  if (quantisation.kind == Quantisation::Kind::None) {
    ASSAY_TRY(const double zoom,
              one.parameters.number(section + ".zoomScaleValue|" + section + ".zoomScale", 1.0));
    ASSAY_TRY(auto inputs, read_inputs(one, {"x1", "x2", "gamma", "beta"}));
    Norm norm{.x = {}, .gamma = inputs[2], .beta = inputs[3], .options = {.eps = eps}};
    norm.x.add(inputs[0]);
    norm.x.add(inputs[1], zoom);
    const Accuracy accuracy{Precision::VectorFusion, norm.terms()};
    evaluation.outputs.push_back(expect(0, accuracy, [norm] { return norm.compute(); }));
    if (prenorm)
      evaluation.outputs.push_back(
          expect(1, accuracy, [x = norm.x] { return reference::sum_of(x.terms()); }));
    return evaluation;
  }
  if (prenorm)
    return fail(Errc::Unsupported, "a quantised prenorm of LayerNorm has no public golden");
  ASSAY_TRY(auto inputs, quantisation.in_parameters
                             ? read_inputs(one, {"x1", "x2", "gamma", "beta"})
                             : read_inputs(one, {"x1", "x2", "gamma", "beta", "scale", "offset"}));
  Norm norm{.x = {}, .gamma = inputs[2], .beta = inputs[3], .options = {.eps = eps}};
  norm.x.add(inputs[0]);
  norm.x.add(inputs[1]);
  double alpha = 1.0;
  if (quantisation.in_parameters) {
    ASSAY_TRY(alpha, one.parameters.number(section + ".quantInputAlpha", 1.0));
  }
  evaluation.outputs.push_back(expect(0, {Precision::Quant, norm.terms()}, [norm, alpha] {
    return norm.compute().transform([alpha](Wide z) {
      for (double& value : z.values) value *= alpha;
      return z;
    });
  }));
  ASSAY_TRY(Wide y, norm.compute_in_float16());
  ASSAY_TRY(Wide before,
            quantised(std::move(y), quantisation, quantisation.in_parameters ? nullptr : &inputs[4],
                      quantisation.in_parameters ? nullptr : &inputs[5]));
  evaluation.outputs.push_back(norms::expect_int8(1, norm.terms(), std::move(before)));
  return evaluation;
}

}  // namespace

Result<Evaluation> evaluate_layer_norm(const Case& one) {
  ASSAY_TRY(const int64_t layer, one.parameters.integer("layerType", 0));
  switch (layer) {
    case 1:
      return norm_alone(one);
    case 2:
      return norm_of_sum(one, true);
    case 3:
      return norm_of_sum(one, false);
    default:
      return fail(Errc::Unsupported, "layerType " + std::to_string(layer) +
                                         " is none of 1 (NORM), 2 (PRENORM), 3 (POSTNORM)");
  }
}

Result<Evaluation> evaluate_layer_norm_with_stride(const Case& one) {
  ASSAY_TRY(const int64_t layer, one.parameters.integer("layerType", 0));
  ASSAY_TRY(const double eps, one.parameters.number("normParam.epsilon", norms::kEpsilon));
  ASSAY_TRY(const Quantisation quantisation, norms::read_quantisation(one, "normParam", 0));
  if (layer != 1 || quantisation.kind != Quantisation::Kind::None)
    return fail(Errc::Unsupported,
                "only layerType 1 (NORM) without quantisation has strides; layerType is " +
                    std::to_string(layer));
  ASSAY_TRY(auto inputs, read_inputs(one, {"x", "gamma", "beta", "strides", "offset"}));
  ASSAY_TRY(Tensor x, norms::strided(inputs[0], inputs[3], inputs[4]));
  Norm norm{.x = {}, .gamma = inputs[1], .beta = inputs[2], .options = {.eps = eps}};
  // The dimensions of gamma are normalised, whatever beginNormAxis says.
  norm.options.dims =
      std::max<size_t>(1, reference::without_leading_ones(inputs[1].view.shape).size());
  norm.x.add(std::move(x));
  Evaluation evaluation{"norm, strided", {}};
  evaluation.outputs.push_back(
      expect(0, {Precision::Float, norm.terms()}, [norm] { return norm.compute(); }));
  return evaluation;
}

Result<Evaluation> evaluate_cohere_layer_norm(const Case& one) {
  ASSAY_TRY(const double eps, one.parameters.number("epsilon", norms::kEpsilon));
  ASSAY_TRY(auto inputs, read_inputs(one, {"x", "weight"}));
  Evaluation evaluation{"norm of every head", {}};
  evaluation.outputs.push_back(
      expect(0, {Precision::Float, norms::last_size(inputs[0])}, [inputs, eps] {
        const reference::Term x[] = {{inputs[0].view}};
        return reference::layer_norm(x, inputs[1].view, std::nullopt, {.eps = eps});
      }));
  return evaluation;
}

}  // namespace assay::opcheck
