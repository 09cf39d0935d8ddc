// SPDX-License-Identifier: Apache-2.0
// The parts that norms are put together from: the form by layerType, the norm of a sum, and static
// or dynamic int8 behind it, which adds outputs for scales and offsets.   docs/opcheck/norms.md
#include <string>

#include "opcheck/operations/norms/evaluate.hpp"
#include "opcheck/operations/read_inputs.hpp"
#include "reference/elementwise/quantise.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck::norms {

Result<std::vector<Tensor>> nd_inputs(const Case& one, const std::vector<std::string_view>& names) {
  for (size_t i = 0; i < one.operands->input_count(); ++i) {
    if (one.operands->is_nz_input(i))
      return fail(Errc::Unsupported, "intensor", i,
                  " is in FRACTAL_NZ, which this operation has no form for");
  }
  return opcheck::read_inputs(one, names);
}

Result<Evaluation> evaluate_layer(const Case& one, Result<Evaluation> (*alone)(const Case& one),
                                  Result<Evaluation> (*of_sum)(const Case& one, bool prenorm)) {
  ASSAY_TRY(const int64_t layer, one.parameters.integer("layerType", 0));
  if (layer == 1) return alone(one);
  if (layer == 2 || layer == 3) return of_sum(one, layer == 2);
  return fail(unknown_value("layerType", layer, "1 (NORM), 2 (PRENORM), 3 (POSTNORM)"));
}

int64_t last_size(const Tensor& tensor) {
  const Dims& shape = tensor.view.shape;
  return shape.empty() ? 0 : shape[shape.size() - 1];
}

Expectation expect_int8(size_t index, int64_t terms, reference::Wide before) {
  const Tensor unrounded = reference::to_tensor(std::move(before));
  Expectation expected = expectation(index, {Precision::Quant, terms}, [unrounded] {
    return reference::widen(unrounded.view).transform(reference::rounded_to_int8);
  });
  expected.before_rounding = unrounded;
  return expected;
}

Result<reference::Wide> Norm::compute() const {
  return reference::normalised(x.terms(), gamma.view,
                               beta ? std::optional(beta->view) : std::nullopt, options);
}

int64_t Norm::terms() const {
  const std::span<const int64_t> shape = x.shape().span();
  if (options.dims > shape.size()) return 0;
  return element_count(shape.last(options.dims)).value_or(0);
}

Result<std::vector<Expectation>> expect_quantised(size_t index, int64_t terms, reference::Wide y,
                                                  const Quantisation& quantisation,
                                                  std::span<const Tensor> parameters,
                                                  reference::ScaleUse use) {
  std::vector<Expectation> outputs;
  if (quantisation.kind == Quantisation::Kind::Static) {
    if (quantisation.in_parameters) {
      const bool divides = use == reference::ScaleUse::Divide;
      for (double& value : y.values)
        value = (divides ? value / quantisation.scale : value * quantisation.scale) +
                quantisation.offset;
    } else {
      ASSAY_TRY(y, reference::quantise_per_channel(std::move(y), parameters[0].view,
                                                   &parameters[1].view, use));
    }
    outputs.push_back(expect_int8(index, terms, std::move(y)));
    return outputs;
  }
  const bool asymmetric = quantisation.kind == Quantisation::Kind::Asymmetric;
  ASSAY_TRY(reference::DynamicQuantised quantised,
            reference::dynamic_quantise(std::move(y), asymmetric));
  outputs.push_back(expect_int8(index, terms, std::move(quantised.values)));
  if (quantised.rows_without_scale > 0)
    outputs[0].note = sentence(quantised.rows_without_scale, " rows have no scale");
  const Accuracy accuracy{Precision::Quant, terms};
  outputs.push_back(expectation_of(index + 1, accuracy, std::move(quantised.scales)));
  if (asymmetric)
    outputs.push_back(expectation_of(index + 2, accuracy, std::move(quantised.offsets)));
  return outputs;
}

Result<Quantisation> read_quantisation(const Case& one, std::string_view section,
                                       size_t dynamic_inputs) {
  const auto key = [&](std::string_view name) {
    return std::string(section) + "." + std::string(name);
  };
  Quantisation result;
  ASSAY_TRY(const int64_t type, one.parameters.integer(key("quantType"), 0));
  if (type == 0) return result;
  if (type != 2)
    return fail(Errc::Unsupported, key("quantType"), " ", type,
                " is neither 0 (none) nor 2 (int8)");
  result.kind = Quantisation::Kind::Static;
  result.in_parameters = one.parameters.has(key("quantInputScale"));
  if (result.in_parameters) {
    ASSAY_TRY(result.scale, one.parameters.number(key("quantInputScale"), 1.0));
    ASSAY_TRY(result.offset, one.parameters.number(key("quantInputOffset"), 0.0));
  }
  ASSAY_TRY(int64_t dynamic, one.parameters.integer(key("dynamicQuantType"), 0));
  const size_t outputs = one.operands->output_count();
  if (dynamic == 0 && !result.in_parameters && one.operands->input_count() == dynamic_inputs &&
      outputs >= 2)
    dynamic = outputs == 2 ? 1 : 2;
  if (dynamic < 0 || dynamic > 2)
    return fail(Errc::Unsupported, key("dynamicQuantType"), " ", dynamic,
                " is none of 0 (off), 1 (symmetric), 2 (asymmetric)");
  if (dynamic != 0 && dynamic_inputs == 0)
    return fail(Errc::Unsupported, key("dynamicQuantType"), " ", dynamic,
                ": this form of the norm has no dynamic quantisation");
  if (dynamic != 0)
    result.kind = dynamic == 1 ? Quantisation::Kind::Symmetric : Quantisation::Kind::Asymmetric;
  return result;
}

std::string_view text(Quantisation::Kind kind) {
  switch (kind) {
    case Quantisation::Kind::None:
      return "";
    case Quantisation::Kind::Static:
      return ", int8";
    case Quantisation::Kind::Symmetric:
      return ", int8 dynamic symmetric";
    case Quantisation::Kind::Asymmetric:
      return ", int8 dynamic asymmetric";
  }
  return "";
}

Result<Tensor> strided(const Tensor& input, const Tensor& strides, const Tensor& offset) {
  ASSAY_TRY(const reference::Whole steps, reference::whole(strides.view));
  ASSAY_TRY(const reference::Whole start, reference::whole(offset.view));
  ASSAY_TRY(const Tensor plain, reference::contiguous(input));
  if (steps.size() != static_cast<int64_t>(plain.view.shape.size()) || start.size() != 1)
    return fail(Errc::Invalid, "strides of shape ", strides.view.shape, " and an offset of shape ",
                offset.view.shape, " for x of shape ", plain.view.shape);
  Dims dims;
  for (const int64_t step : steps.values) dims.push_back(step);
  Result<TensorView> view = make_view(plain.view.dtype, plain.view.shape, dims,
                                      plain.view.contiguous_bytes(), start.values[0]);
  if (!view && view.error().code == Errc::Truncated)
    return fail(Errc::Unsupported, "strides ", dims, " with offset ", start.values[0],
                " reach bytes that are not in the dump");
  ASSAY_TRY(const TensorView strided_view, std::move(view));
  return Tensor{strided_view, plain.owner};
}

}  // namespace assay::opcheck::norms
