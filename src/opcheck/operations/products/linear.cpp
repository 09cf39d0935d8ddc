// SPDX-License-Identifier: Apache-2.0
// Linear and the operations that the library had in its place before.   docs/opcheck/products.md
#include <utility>

#include "opcheck/operations/products/evaluate.hpp"
#include "reference/elementwise/activation.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using namespace products;
using reference::LinearOptions;
using reference::Wide;

const TensorView* view_or_null(const std::optional<Tensor>& tensor) {
  return tensor ? &tensor->view : nullptr;
}

// aclDataType
constexpr int64_t kUndefined = -1, kFloat16 = 1, kBFloat16 = 27;
constexpr std::string_view kOutputTypes = "-1 (none), 1 (float16), 27 (bfloat16)";

/// The parameters of Linear.
struct Layer {
  bool transpose_x = false;
  bool has_bias = true;
  bool accumulates = false;
  bool per_token = false;
  bool per_batch = false;
  int64_t output_type = kUndefined;
};

/// Files of early 2024 say linearType: 0 float16, 1 bfloat16, 2 int8 to float16, 3 int8 to
/// bfloat16.
Result<int64_t> output_type_of(const Parameters& parameters) {
  if (parameters.has("outDataType") || !parameters.has("linearType")) {
    ASSAY_TRY(const int64_t type, parameters.integer("outDataType", kUndefined));
    if (type != kUndefined && type != kFloat16 && type != kBFloat16)
      return fail(unknown_value("outDataType", type, kOutputTypes));
    return type;
  }
  ASSAY_TRY(const int64_t type, parameters.integer("linearType", 0));
  if (type < 0 || type > 3)
    return fail(unknown_value("linearType", type, "0 (float16), 1 (bfloat16), 2 and 3 (int8)"));
  if (type == 2) return kFloat16;
  return type == 3 ? kBFloat16 : kUndefined;
}

Result<Layer> read_layer(const Parameters& parameters) {
  Layer layer;
  ASSAY_TRY(layer.transpose_x, parameters.boolean("transposeA|transA|trans_a", false));
  ASSAY_TRY(layer.has_bias, parameters.boolean("hasBias", true));
  ASSAY_TRY(layer.accumulates, parameters.boolean("enAccum", false));
  ASSAY_TRY(layer.output_type, output_type_of(parameters));
  ASSAY_TRY(const int64_t kind, parameters.integer("matmulType", 0));
  if (kind != 0 && kind != 1)
    return fail(unknown_value("matmulType", kind, "0 (normal), 1 (EIN_SUM)"));
  ASSAY_TRY(const int64_t mode, parameters.integer("quantMode", 0));
  if (mode < 0 || mode > 2)
    return fail(unknown_value("quantMode", mode, "0, 1 (per channel), 2 (per token)"));
  layer.per_batch = kind == 1;
  layer.per_token = mode == 2;
  return layer;
}

/// Columns that only fill up blocks of an NZ weight may have a bias and a scale, too.
Tensor without_padding(Tensor term, const Product& product) {
  const int64_t n = product.shape[product.shape.size() - 1];
  const size_t rank = term.view.shape.size();
  if (rank == 0 || !product.blocked_weight) return term;
  const int64_t columns = term.view.shape[rank - 1];
  if (columns > n && columns - n < 32) term.view = reference::section(term.view, rank - 1, 0, n);
  return term;
}

Result<std::pair<Tensor, Tensor>> read_operands(const Operands& operands) {
  if (operands.input_count() < 2)
    return fail(Errc::Invalid, operands.input_count(), " inputs, but x and weight are needed");
  ASSAY_TRY(Tensor x, operands.input(0));
  ASSAY_TRY(Tensor weight, operands.input(1));
  return std::pair{std::move(x), std::move(weight)};
}

void warn_of_scratch_inputs(const Case& one, const Tensor& weight, Expectation* expectation) {
  if (is_blocked_weight(*one.operands, weight) && !one.operands->has_before())
    expectation->note =
        "weight is FRACTAL_NZ and inputs were dumped after the operation only: kernels of Atlas "
        "300I Duo may have overwritten them";
}

/// Products of int8 with an optional int32 bias, scaled to floats.
Result<Evaluation> dequantised(const Case& one, const Tensor& x, const Tensor& weight,
                               bool transpose_x, bool transpose_w, bool has_bias, bool per_token,
                               Precision precision, std::string_view extra_input) {
  std::vector<std::string_view> names = {"x", "weight"};
  if (has_bias) names.emplace_back("bias");
  names.emplace_back("deqScale");
  if (per_token) names.emplace_back("perTokenScale");
  if (!extra_input.empty()) names.push_back(extra_input);
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, names));
  ASSAY_TRY(const Product product, product_of(one, x, weight, transpose_x, transpose_w));
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, product.shape));
  std::optional<Tensor> bias;
  if (has_bias) bias = without_padding(inputs[2], product);
  const Tensor scale = without_padding(inputs[has_bias ? 3 : 2], product);
  std::optional<Tensor> row_scale;
  if (per_token) row_scale = inputs[has_bias ? 4 : 3];

  Evaluation evaluation;
  evaluation.variant = "int8, dequantised";
  if (has_bias) evaluation.variant += ", bias";
  if (per_token) evaluation.variant += ", per token";
  evaluation.variant += product.traits;
  evaluation.outputs.push_back(expectation(
      0, {precision, product.terms}, [product, bias, scale, row_scale]() -> Result<Wide> {
        return reference::quantised_linear(product.x.view, product.weight.view, view_or_null(bias),
                                           scale.view, view_or_null(row_scale), product.options);
      }));
  warn_of_scratch_inputs(one, weight, &evaluation.outputs.back());
  return evaluation;
}

/// x . w [+ bias] of floats.
Result<Evaluation> plain(const Case& one, const Tensor& x, const Tensor& weight, bool transpose_x,
                         bool transpose_w, bool has_bias) {
  std::vector<std::string_view> names = {"x", "weight"};
  if (has_bias) names.emplace_back("bias");
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, names));
  ASSAY_TRY(Product product, product_of(one, x, weight, transpose_x, transpose_w));
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, product.shape));
  std::optional<Tensor> bias;
  if (has_bias) bias = without_padding(inputs[2], product);
  product.options.product_type = product_type_of(bias ? &*bias : nullptr);

  Evaluation evaluation;
  evaluation.variant = (has_bias ? "float, bias" : "float") + product.traits;
  evaluation.outputs.push_back(
      expectation(0, {Precision::Float, product.terms}, [product, bias]() -> Result<Wide> {
        return reference::linear(product.x.view, product.weight.view, view_or_null(bias),
                                 product.options);
      }));
  warn_of_scratch_inputs(one, weight, &evaluation.outputs.back());
  return evaluation;
}

/// The product is added to input 2, a float32 tensor that is the output, too.
Result<Evaluation> accumulating(const Case& one, const Tensor& x, const Tensor& weight,
                                bool transpose_x, bool transpose_w) {
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"x", "weight", "accum"}));
  if (!one.operands->has_before()) return fail(not_supported("needs before data"));
  ASSAY_TRY(const Product product, product_of(one, x, weight, transpose_x, transpose_w));
  const Tensor accum = inputs[2];
  if (accum.view.element_count() != element_count(product.shape))
    return fail(Errc::Invalid, "accum has shape ", accum.view.shape, ", the product ",
                product.shape);
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, product.shape));

  Expectation expected =
      expectation(0, {Precision::Float, product.terms}, [product, accum]() -> Result<Wide> {
        ASSAY_TRY(const Tensor start, reference::reshaped(accum, product.shape));
        return reference::linear(product.x.view, product.weight.view, &start.view, product.options);
      });
  if (!one.operands->has_output(0)) {
    expected.in_place = true;
    expected.index = 2;
  }
  return evaluation("float, accumulating" + product.traits, std::move(expected));
}

/// EIN_SUM: rows of x belong to batches in its middle dimension.
Result<Evaluation> per_batch(const Case& one, const Tensor& x, const Tensor& weight_given,
                             bool transpose_w, bool has_bias) {
  std::vector<std::string_view> names = {"x", "weight"};
  if (has_bias) names.emplace_back("bias");
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, names));
  if (x.view.shape.size() != 3)
    return fail(Errc::Invalid, "intensor0 has shape ", x.view.shape, ", EIN_SUM needs [m, b, k]");
  const int64_t k = x.view.shape[2];
  ASSAY_TRY(const Tensor weight, matrices_of_weight(*one.operands, weight_given, transpose_w, k,
                                                    output_columns(*one.operands)));
  const size_t rank = weight.view.shape.size();
  if (rank < 2 || rank > 3)
    return fail(Errc::Invalid, "intensor1 has shape ", weight.view.shape,
                ", EIN_SUM needs [k, n] or [b, k, n]");
  const Dims shape{x.view.shape[0], x.view.shape[1],
                   weight.view.shape[transpose_w ? rank - 2 : rank - 1]};
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, shape));
  std::optional<Tensor> bias;
  if (has_bias) bias = inputs[2];
  const LinearOptions options{.transpose_w = transpose_w, .jobs = one.jobs};
  Evaluation evaluation;
  evaluation.variant = has_bias ? "float, EIN_SUM, bias" : "float, EIN_SUM";
  if (is_blocked_weight(*one.operands, weight_given)) evaluation.variant += ", NZ weight";
  evaluation.outputs.push_back(
      expectation(0, {Precision::Float, k}, [x, weight, bias, options]() -> Result<Wide> {
        return reference::linear_per_batch(x.view, weight.view, view_or_null(bias), options);
      }));
  return evaluation;
}

/// hasBias; a file that does not say counts the inputs.
Result<bool> has_bias(const Case& one, size_t inputs_without) {
  if (one.parameters.has("hasBias")) return one.parameters.boolean("hasBias", false);
  return one.operands->input_count() > inputs_without;
}

// ---- Activations of LinearActivation ----------------------------------------------------------

using Activate = Result<Wide> (*)(const TensorView& x);
struct Activation {
  Activate compute;
  std::string_view text;
};
Result<Activation> activation_of(const Parameters& parameters) {
  ASSAY_TRY(const int64_t type,
            parameters.integer("activationFuncType|activationType|activationFunc", 0));
  switch (type) {
    case 1:
      return Activation{reference::relu, "relu"};
    case 2:
      return Activation{
          [](const TensorView& x) { return reference::gelu(x, reference::GeluForm::Tanh); },
          "gelu tanh"};
    case 3:
      return Activation{reference::fast_gelu, "fast gelu"};
    case 4:
      return Activation{[](const TensorView& x) { return reference::swish(x); }, "swish"};
    case 5:
      return Activation{reference::log, "log"};
    default:
      return fail(unknown_value("activationFuncType", type,
                                "1 (relu), 2 (gelu), 3 (fast gelu), 4 (swish), 5 (log)"));
  }
}

/// The same evaluation with a function of each golden value behind it.
Evaluation activated(Evaluation evaluation, const Activation& activation) {
  evaluation.variant += ", " + std::string(activation.text);
  for (Expectation& expected : evaluation.outputs) {
    for (Candidate& candidate : expected.candidates)
      candidate.golden = [before = std::move(candidate.golden),
                          compute = activation.compute]() -> Result<Tensor> {
        ASSAY_TRY(const Tensor product, before());
        ASSAY_TRY(Wide golden, compute(product.view));
        return reference::to_tensor(std::move(golden));
      };
  }
  return evaluation;
}

}  // namespace

Result<Evaluation> evaluate_linear(const Case& one) {
  ASSAY_TRY(Layer layer, read_layer(one.parameters));
  ASSAY_TRY(const bool transpose_w, one.parameters.boolean("transposeB|transB|trans_b", true));
  ASSAY_TRY(const auto operands, read_operands(*one.operands));
  const auto& [x, weight] = operands;
  const bool quantised = is_int8(x) && is_int8(weight);
  if (!one.parameters.has("hasBias") && !layer.accumulates) {
    const size_t without = quantised ? (layer.per_token ? 4u : 3u) : 2u;
    ASSAY_TRY(layer.has_bias, has_bias(one, without));
  }
  if (layer.accumulates && !one.parameters.has("hasBias")) layer.has_bias = false;

  if (!quantised && (is_int8(x) || is_int8(weight)))
    return fail(not_supported("x of type " + std::string(name(x.view.dtype)) +
                              " with a weight of type " + std::string(name(weight.view.dtype))));
  if (!quantised && (layer.output_type != kUndefined || layer.per_token))
    return fail(Errc::Invalid, "outDataType and quantMode ask for int8 operands, intensor0 is ",
                x.view.dtype);
  if (quantised) {
    if (layer.accumulates || layer.per_batch)
      return fail(not_supported("int8 operands with enAccum or EIN_SUM"));
    if (layer.per_token && layer.has_bias)
      return fail(not_supported("a bias beside scales of tokens"));
    return dequantised(one, x, weight, layer.transpose_x, transpose_w, layer.has_bias,
                       layer.per_token, Precision::Float, {});
  }
  if (layer.accumulates) {
    if (layer.has_bias || layer.per_batch)
      return fail(not_supported("enAccum with a bias or EIN_SUM"));
    return accumulating(one, x, weight, layer.transpose_x, transpose_w);
  }
  if (layer.per_batch) {
    if (layer.transpose_x) return fail(not_supported("EIN_SUM with transposeA"));
    return per_batch(one, x, weight, transpose_w, layer.has_bias);
  }
  return plain(one, x, weight, layer.transpose_x, transpose_w, layer.has_bias);
}

Result<Evaluation> evaluate_linear_sparse(const Case& one) {
  ASSAY_TRY(const bool transpose_x, one.parameters.boolean("transposeA", false));
  ASSAY_TRY(const bool transpose_w, one.parameters.boolean("transposeB", true));
  ASSAY_TRY(const auto operands, read_operands(*one.operands));
  const auto& [x, weight] = operands;
  if (weight.view.shape.size() == 1)
    return fail(not_supported("the weight is compressed; how is not public"));
  if (!is_int8(x) || !is_int8(weight))
    return fail(Errc::Invalid, "x is ", x.view.dtype, " and weight ", weight.view.dtype,
                ", not int8");
  return dequantised(one, x, weight, transpose_x, transpose_w, true, false, Precision::Quant,
                     "idx");
}

Result<Evaluation> evaluate_matmul(const Case& one) {
  ASSAY_TRY(const bool transpose_x, one.parameters.boolean("transposeA|transA|trans_a", false));
  ASSAY_TRY(const auto operands, read_operands(*one.operands));
  const auto& [x, weight] = operands;
  ASSAY_TRY(const bool transpose_w, weight_is_transposed(one, x, weight));
  return plain(one, x, weight, transpose_x, transpose_w, false);
}

Result<Evaluation> evaluate_linear_quant(const Case& one) {
  ASSAY_TRY(const bool transpose_x, one.parameters.boolean("transposeA", false));
  ASSAY_TRY(const auto operands, read_operands(*one.operands));
  const auto& [x, weight] = operands;
  ASSAY_TRY(const bool transpose_w, weight_is_transposed(one, x, weight));
  ASSAY_TRY(const bool bias_there, has_bias(one, 3));
  if (is_int8(x) && is_int8(weight))
    return dequantised(one, x, weight, transpose_x, transpose_w, bias_there, false,
                       Precision::Float, {});
  if (!is_float(x.view.dtype) || !is_int8(weight))
    return fail(not_supported("x of type " + std::string(name(x.view.dtype)) +
                              " with a weight of type " + std::string(name(weight.view.dtype))));

  // Hosts that keep activations in floats quantise each row while they multiply; bias is a float,
  // added last.
  std::vector<std::string_view> names = {"x", "weight"};
  if (bias_there) names.emplace_back("bias");
  names.emplace_back("deqScale");
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, names));
  ASSAY_TRY(const Product product, product_of(one, x, weight, transpose_x, transpose_w));
  ASSAY_TRY_STATUS(check_output(*one.operands, 0, product.shape));
  std::optional<Tensor> bias;
  if (bias_there) bias = inputs[2];
  const Tensor scale = inputs.back();
  Evaluation evaluation;
  evaluation.variant = "dynamic per-token quantised activation";
  if (bias_there) evaluation.variant += ", bias";
  evaluation.variant += product.traits;
  Expectation expected;
  expected.accuracy = {Precision::Float, product.terms};
  // The integers are what a kernel's own arithmetic makes of them: float32 first.
  for (const auto& [label, row_scale] :
       {std::pair{"row scales in float32", reference::RowScale::Float32},
        std::pair{"exact row scales", reference::RowScale::Exact}})
    expected.candidates.push_back({label, [product, bias, scale, row_scale]() -> Result<Tensor> {
                                     ASSAY_TRY(Wide golden,
                                               reference::dynamic_quantised_linear(
                                                   product.x.view, product.weight.view, scale.view,
                                                   view_or_null(bias), row_scale, product.options));
                                     return reference::to_tensor(std::move(golden));
                                   }});
  evaluation.outputs.push_back(std::move(expected));
  return evaluation;
}

Result<Evaluation> evaluate_linear_activation(const Case& one) {
  ASSAY_TRY(const Activation activation, activation_of(one.parameters));
  ASSAY_TRY(const bool transpose_x, one.parameters.boolean("transposeA", false));
  ASSAY_TRY(const auto operands, read_operands(*one.operands));
  const auto& [x, weight] = operands;
  ASSAY_TRY(const bool transpose_w, weight_is_transposed(one, x, weight));
  ASSAY_TRY(const bool bias_there, has_bias(one, 2));
  ASSAY_TRY(Evaluation product, plain(one, x, weight, transpose_x, transpose_w, bias_there));
  return activated(std::move(product), activation);
}

Result<Evaluation> evaluate_linear_activation_quant(const Case& one) {
  ASSAY_TRY(const Activation activation, activation_of(one.parameters));
  ASSAY_TRY(const bool transpose_x, one.parameters.boolean("transposeA", false));
  ASSAY_TRY(const auto operands, read_operands(*one.operands));
  const auto& [x, weight] = operands;
  ASSAY_TRY(const bool transpose_w, weight_is_transposed(one, x, weight));
  ASSAY_TRY(const bool bias_there, has_bias(one, 3));
  if (!is_int8(x) || !is_int8(weight))
    return fail(Errc::Invalid, "x is ", x.view.dtype, " and weight ", weight.view.dtype,
                ", not int8");
  ASSAY_TRY(Evaluation product, dequantised(one, x, weight, transpose_x, transpose_w, bias_there,
                                            false, Precision::Float, {}));
  return activated(std::move(product), activation);
}

}  // namespace assay::opcheck
