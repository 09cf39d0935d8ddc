// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "opcheck/operations/norms/evaluate.hpp"
#include "opcheck/operations/read_inputs.hpp"
#include "reference/elementwise/quantise.hpp"

namespace assay::opcheck::norms {

Result<std::vector<Tensor>> read_inputs(const Case& one,
                                        std::initializer_list<std::string_view> names) {
  for (size_t i = 0; i < one.operands->input_count(); ++i) {
    if (one.operands->is_nz_input(i))
      return fail(Errc::Unsupported, "intensor" + std::to_string(i) +
                                         " is in FRACTAL_NZ, which this operation has no form for");
  }
  return opcheck::read_inputs(one, names);
}

int64_t last_size(const Tensor& tensor) {
  const Dims& shape = tensor.view.shape;
  return shape.empty() ? 0 : shape[shape.size() - 1];
}

Expectation expect_values(size_t index, Accuracy accuracy, reference::Wide values) {
  Expectation expectation;
  expectation.index = index;
  expectation.accuracy = accuracy;
  expectation.candidates.push_back(
      {{},
       [tensor = reference::to_tensor(std::move(values))]() -> Result<Tensor> { return tensor; }});
  return expectation;
}

Expectation expect_int8(size_t index, int64_t terms, reference::Wide before) {
  const Tensor unrounded = reference::to_tensor(std::move(before));
  Expectation expectation = expect(index, {Precision::Quant, terms}, [unrounded] {
    return reference::widen(unrounded.view).transform(reference::rounded_to_int8);
  });
  expectation.before_rounding = unrounded;
  return expectation;
}

Result<std::vector<Expectation>> expect_dynamic_int8(int64_t terms, reference::Wide values,
                                                     bool asymmetric) {
  ASSAY_TRY(reference::DynamicQuantised quantised,
            reference::dynamic_quantise(std::move(values), asymmetric));
  std::vector<Expectation> outputs;
  outputs.push_back(expect_int8(0, terms, std::move(quantised.values)));
  if (quantised.rows_without_scale > 0)
    outputs[0].note = std::to_string(quantised.rows_without_scale) + " rows have no scale";
  const Accuracy accuracy{Precision::Quant, terms};
  outputs.push_back(expect_values(1, accuracy, std::move(quantised.scales)));
  if (asymmetric) outputs.push_back(expect_values(2, accuracy, std::move(quantised.offsets)));
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
    return fail(Errc::Unsupported, key("quantType") + " " + std::to_string(type) +
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
    return fail(Errc::Unsupported, key("dynamicQuantType") + " " + std::to_string(dynamic) +
                                       " is none of 0 (off), 1 (symmetric), 2 (asymmetric)");
  if (dynamic != 0 && dynamic_inputs == 0)
    return fail(Errc::Unsupported, key("dynamicQuantType") + " " + std::to_string(dynamic) +
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
    return fail(Errc::Invalid, "strides of shape " + list_text(strides.view.shape.span()) +
                                   " and an offset of shape " +
                                   list_text(offset.view.shape.span()) + " for x of shape " +
                                   list_text(plain.view.shape.span()));
  Dims dims;
  for (const int64_t step : steps.values) dims.push_back(step);
  Result<TensorView> view = make_view(plain.view.dtype, plain.view.shape, dims,
                                      plain.view.contiguous_bytes(), start.values[0]);
  if (!view && view.error().code == Errc::Truncated)
    return fail(Errc::Unsupported, "strides " + list_text(dims.span()) + " with offset " +
                                       std::to_string(start.values[0]) +
                                       " reach bytes that are not in the dump");
  ASSAY_TRY(const TensorView strided_view, std::move(view));
  return Tensor{strided_view, plain.owner};
}

}  // namespace assay::opcheck::norms
