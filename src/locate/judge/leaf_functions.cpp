// SPDX-License-Identifier: Apache-2.0
// A table from names of module classes to calls of reference operators. What a capture does not
// tell (eps, the order of a weight's axes, the kind of GELU) has one entry for each usual value.
#include "locate/judge/leaf_functions.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "reference/wide.hpp"

namespace assay::locate {
namespace {

using reference::aten::Argument;
using reference::aten::ArgumentList;
using reference::aten::Call;

/// Of norms, in the order in which they are tried: Hugging Face's, torch's, BERT's, torch's RMSNorm
/// for fp32 and bf16.
constexpr std::array<double, 6> kUsualEps = {1e-6, 1e-5, 1e-12, 1e-8, 0x1p-23, 0x1p-7};

std::string eps_text(double eps) {
  char text[32];
  std::snprintf(text, sizeof(text), "eps %.3g", eps);
  return text;
}

bool is_given(const Tensor& tensor) { return reference::aten::is_predictable(tensor); }

Result<Call> linear(const LeafTensors& tensors) {
  Call call{"aten.linear.default", {{"input", {tensors.input}}, {"weight", {tensors.weight}}}};
  if (is_given(tensors.bias)) call.arguments["bias"] = {tensors.bias};
  return call;
}

/// GPT-2's: the weight is stored [in, out].
Result<Call> transposed_linear(const LeafTensors& tensors) {
  LeafTensors turned = tensors;
  TensorView& view = turned.weight.view;
  if (view.shape.size() != 2) return fail(Errc::Invalid, "a weight of two dimensions was expected");
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return linear(turned);
}

Result<Call> embedding(const LeafTensors& tensors) {
  return Call{"aten.embedding.default",
              {{"weight", {tensors.weight}}, {"indices", {tensors.input}}}};
}

Argument shape_of(const Tensor& weight) {
  ArgumentList sizes;
  for (const int64_t size : weight.view.shape) sizes.push_back({size});
  return {sizes};
}

LeafFunction layer_norm(double eps) {
  return {eps_text(eps), [eps](const LeafTensors& tensors) -> Result<Call> {
            Call call{"aten.layer_norm.default",
                      {{"input", {tensors.input}},
                       {"normalized_shape", shape_of(tensors.weight)},
                       {"weight", {tensors.weight}},
                       {"eps", {eps}}}};
            if (is_given(tensors.bias)) call.arguments["bias"] = {tensors.bias};
            return call;
          }};
}

/// Gemma's weight is stored as its distance from one.
Result<Tensor> plus_one(const Tensor& weight) {
  ASSAY_TRY(reference::Wide wide, reference::widen(weight.view));
  for (double& value : wide.values) value += 1;
  return reference::to_tensor(std::move(wide));
}

LeafFunction rms_norm(double eps, bool adds_one) {
  LeafFunction function;
  function.setting = eps_text(eps) + (adds_one ? ", weight plus one" : "");
  function.roundings = 2;
  function.call = [eps, adds_one](const LeafTensors& tensors) -> Result<Call> {
    Tensor weight = tensors.weight;
    if (adds_one) {
      ASSAY_TRY(weight, plus_one(tensors.weight));
    }
    return Call{"aten.rms_norm.default",
                {{"input", {tensors.input}},
                 {"normalized_shape", shape_of(weight)},
                 {"weight", {weight}},
                 {"eps", {eps}}}};
  };
  return function;
}

LeafFunction activation(const std::string& name, const std::string& approximate = {}) {
  LeafFunction function;
  function.setting = approximate.empty() ? "" : "approximate " + approximate;
  function.has_weight = false;
  function.call = [name, approximate](const LeafTensors& tensors) -> Result<Call> {
    Call call{name, {{"self", {tensors.input}}}};
    if (!approximate.empty()) call.arguments["approximate"] = {approximate};
    return call;
  };
  return function;
}

bool is_one_of(std::string_view type, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, type) != names.end();
}

}  // namespace

std::vector<LeafFunction> leaf_functions(std::string_view type) {
  std::vector<LeafFunction> functions;
  if (type == "Linear" || type == "Conv1D") {  // both names are used for either order
    functions.push_back({"", linear});
    functions.push_back({"weight [in, out]", transposed_linear});
  } else if (type == "Embedding") {
    functions.push_back({"", embedding});
  } else if (type == "LayerNorm") {
    for (const double eps : kUsualEps) functions.push_back(layer_norm(eps));
  } else if (type.ends_with("RMSNorm")) {
    for (const double eps : kUsualEps) functions.push_back(rms_norm(eps, false));
    for (const double eps : kUsualEps) functions.push_back(rms_norm(eps, true));
  } else if (is_one_of(type, {"SiLU", "SiLUActivation"})) {
    functions.push_back(activation("aten.silu.default"));
  } else if (is_one_of(type, {"GELUTanh", "PytorchGELUTanh"})) {
    functions.push_back(activation("aten.gelu.default", "tanh"));
  } else if (is_one_of(type, {"GELU", "GELUActivation"})) {
    functions.push_back(activation("aten.gelu.default", "none"));
    functions.push_back(activation("aten.gelu.default", "tanh"));
  } else if (type == "ReLU") {
    functions.push_back(activation("aten.relu.default"));
  }
  return functions;
}

}  // namespace assay::locate
