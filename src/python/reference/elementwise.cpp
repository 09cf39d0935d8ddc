// SPDX-License-Identifier: Apache-2.0
// assay.reference: activations, arithmetic, quantisation.
#include "python/reference/operators.hpp"
#include "reference/elementwise/activation.hpp"
#include "reference/elementwise/arithmetic.hpp"
#include "reference/elementwise/quantise.hpp"

namespace assay::python {
namespace {

using namespace reference;

auto arithmetic_of(Arithmetic operation) {
  return
      [operation](const TensorView& a, const TensorView& b) { return arithmetic(operation, a, b); };
}
auto comparison_of(Comparison comparison) {
  return
      [comparison](const TensorView& a, const TensorView& b) { return compare(comparison, a, b); };
}
auto logic_of(Logic logic) {
  return [logic](const TensorView& a, const TensorView& b) { return logical(logic, a, b); };
}

Result<Wide> gelu_of(const TensorView& x, bool tanh_form) {
  return gelu(x, tanh_form ? GeluForm::Tanh : GeluForm::Erf);
}

/// Types that NumPy lacks come as float64.
Result<Tensor> cast_for_numpy(const TensorView& x, DType target) {
  ASSAY_TRY(Tensor result, cast(x, target));
  if (!numpy_lacks(target)) return result;
  ASSAY_TRY(Wide wide, widen(result.view));
  return to_tensor(std::move(wide));
}

Result<Wide> quantised(const TensorView& x, const TensorView& scale, const TensorView* offset) {
  ASSAY_TRY(Wide values, widen(x));
  ASSAY_TRY(values, quantise_per_channel(std::move(values), scale, offset));
  return rounded_to_int8(std::move(values));
}

Result<Wide> dequantised(const TensorView& y, const TensorView& scale, const TensorView* offset) {
  ASSAY_TRY(Wide values, widen(y));
  return dequantise_per_channel(std::move(values), scale, offset);
}

Result<DynamicQuantised> quantised_by_row(const TensorView& x, bool asymmetric, DType target) {
  ASSAY_TRY(Wide values, widen(x));
  ASSAY_TRY(DynamicQuantised done, dynamic_quantise(std::move(values), asymmetric, target));
  ASSAY_TRY(done.values, rounded_to(std::move(done.values), target));
  return done;
}

}  // namespace

void add_elementwise(Operators& operators) {
  operators.add("relu", relu);
  operators.add("gelu", gelu_of);
  operators.add("fast_gelu", fast_gelu);
  operators.add("swish", swish);
  operators.add("sigmoid", [](const TensorView& x) { return sigmoid(x); });
  operators.add("log", [](const TensorView& x) { return reference::log(x); });
  operators.add("swiglu", swiglu);
  operators.add("swiglu_backward", swiglu_backward);
  operators.add("cos", cosine);
  operators.add("sin", sine);
  operators.add("tanh", hyperbolic_tangent);
  operators.add("negative", negated);
  operators.add("scale", scaled);
  operators.add("add", arithmetic_of(Arithmetic::Add));
  operators.add("subtract", arithmetic_of(Arithmetic::Subtract));
  operators.add("multiply", arithmetic_of(Arithmetic::Multiply));
  operators.add("divide", arithmetic_of(Arithmetic::Divide));
  operators.add("less", comparison_of(Comparison::Less));
  operators.add("greater", comparison_of(Comparison::Greater));
  operators.add("equal", comparison_of(Comparison::Equal));
  operators.add("logical_not", reference::logical_not);
  operators.add("logical_and", logic_of(Logic::And));
  operators.add("logical_or", logic_of(Logic::Or));
  operators.add("cast", cast_for_numpy);
  operators.add("quantize_per_channel", quantised);
  operators.add("dequantize_per_channel", dequantised);
  operators.add(
      "dynamic_quantize", quantised_by_row,
      kFields<&DynamicQuantised::values, &DynamicQuantised::scales, &DynamicQuantised::offsets>);
}

}  // namespace assay::python
