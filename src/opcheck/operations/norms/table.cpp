// SPDX-License-Identifier: Apache-2.0
// The norms, rotary embeddings and softmax of unpadded scores: what each accepts and returns, as
// `assay opcheck --ops-list` prints it, and the function that evaluates it.   docs/opcheck/norms.md
#include "opcheck/operations/norms/evaluate.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {
namespace {

constexpr std::string_view kRmsNormParameters =
    "layerType "
    "normParam.quantType normParam.epsilon normParam.layerNormEps normParam.rstd "
    "normParam.precisionMode normParam.modelType normParam.dynamicQuantType "
    "normParam.quantInputScale normParam.quantInputOffset normParam.quantInputAlpha "
    "preNormParam.quantType preNormParam.epsilon preNormParam.hasBias "
    "preNormParam.quantInputScale preNormParam.quantInputOffset preNormParam.quantInputAlpha "
    "postNormParam.quantType postNormParam.epsilon postNormParam.hasBias "
    "postNormParam.quantInputScale postNormParam.quantInputOffset postNormParam.quantInputAlpha";
constexpr std::string_view kLayerNormParameters =
    "layerType "
    "normParam.quantType normParam.epsilon normParam.beginNormAxis normParam.beginParamsAxis "
    "normParam.dynamicQuantType "
    "normParam.quantInputScale normParam.quantInputOffset normParam.quantInputAlpha "
    "preNormParam.quantType preNormParam.epsilon preNormParam.opMode "
    "preNormParam.zoomScaleValue|preNormParam.zoomScale "
    "preNormParam.quantInputScale preNormParam.quantInputOffset preNormParam.quantInputAlpha "
    "postNormParam.quantType postNormParam.epsilon postNormParam.opMode "
    "postNormParam.zoomScaleValue|postNormParam.zoomScale "
    "postNormParam.quantInputScale postNormParam.quantInputOffset postNormParam.quantInputAlpha";

}  // namespace

std::span<const OperationRow> norm_operators() {
  using enum OperationRow::Origin;
  // Name, variants, parameters (other spellings after "|"), outputs, precision, origin, function.
  static constexpr OperationRow kOperators[] = {
      {"CohereLayerNormOperation", "norm without mean shift, one weight a head", "epsilon", "y",
       "FLOAT", Ours, evaluate_cohere_layer_norm},
      {"DynamicNTKOperation", "rotary tables", "outputType|outDataType", "sin, cos", "FLOAT", Ours,
       evaluate_dynamic_ntk},
      {"FastSoftMaxGradOperation", "backward", "headNum qSeqLen|c_qSeqLen", "dx", "FLOAT", Original,
       evaluate_fast_softmax_grad},
      {"FastSoftMaxOperation", "forward", "headNum qSeqLen|c_qSeqLen", "y", "FLOAT", Original,
       evaluate_fast_softmax},
      {"GatherPreRmsNormOperation", "gather, add, norm", "epsilon", "y, res_out", "FLOAT", Ours,
       evaluate_gather_pre_rms_norm},
      {"LayerNormOperation",
       "norm, prenorm, postnorm; int8 static (norm, postnorm) and dynamic (norm)",
       kLayerNormParameters, "y | y, scale [, offset] | z, sum | z, z int8",
       "FLOAT, VECTOR_FUSION, QUANT", Original, evaluate_layer_norm},
      {"LayerNormWithStrideOperation", "norm", kLayerNormParameters, "y", "FLOAT", Ours,
       evaluate_layer_norm_with_stride},
      {"NormRopeReshapeOperation", "rotaryCoeff 2", "precisionMode rotaryCoeff epsilon",
       "key cache", "FLOAT", Ours, evaluate_norm_rope_reshape},
      {"RmsNormBackwardOperation", "backward", "", "dx, dgamma", "VECTOR_FUSION", Ours,
       evaluate_rms_norm_backward},
      {"RmsNormOperation",
       "norm (rstd, gemma, high performance), prenorm, postnorm; bias; int8 static, and dynamic "
       "(norm)",
       kRmsNormParameters, "y [, rstd] | y, scale [, offset] | y, res_out", "VECTOR_FUSION, QUANT",
       Original, evaluate_rms_norm},
      {"RmsNormWithStrideOperation", "norm", kRmsNormParameters, "y", "VECTOR_FUSION", Ours,
       evaluate_rms_norm_with_stride},
      {"RopeGradOperation", "backward", "c_qSeqLen|qSeqLen", "dq, dk", "FLOAT", Original,
       evaluate_rope_grad},
      {"RopeOperation",
       "halves (rotaryCoeff 2), halves in two groups (4), interleaved pairs (others)",
       "rotaryCoeff cosFormat", "q, k", "FLOAT", Original, evaluate_rope},
      {"RopeQConcatOperation", "halves", "", "q beside concat", "FLOAT", Ours,
       evaluate_rope_q_concat},
  };
  return kOperators;
}

}  // namespace assay::opcheck
