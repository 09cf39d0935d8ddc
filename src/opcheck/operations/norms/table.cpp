// SPDX-License-Identifier: Apache-2.0
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

constexpr Operator kOperators[] = {
    {.name = "CohereLayerNormOperation",
     .variants = "norm without mean shift, one weight a head",
     .parameters = "epsilon",
     .outputs = "y",
     .precision = "FLOAT",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_cohere_layer_norm},
    {.name = "DynamicNTKOperation",
     .variants = "rotary tables",
     .parameters = "outputType|outDataType",
     .outputs = "sin, cos",
     .precision = "FLOAT",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_dynamic_ntk},
    {.name = "FastSoftMaxGradOperation",
     .variants = "backward",
     .parameters = "headNum qSeqLen|c_qSeqLen",
     .outputs = "dx",
     .precision = "FLOAT",
     .evaluate = evaluate_fast_softmax_grad},
    {.name = "FastSoftMaxOperation",
     .variants = "forward",
     .parameters = "headNum qSeqLen|c_qSeqLen",
     .outputs = "y",
     .precision = "FLOAT",
     .evaluate = evaluate_fast_softmax},
    {.name = "GatherPreRmsNormOperation",
     .variants = "gather, add, norm",
     .parameters = "epsilon",
     .outputs = "y, res_out",
     .precision = "FLOAT",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_gather_pre_rms_norm},
    {.name = "LayerNormOperation",
     .variants = "norm, prenorm, postnorm; int8 static (norm, postnorm) and dynamic (norm)",
     .parameters = kLayerNormParameters,
     .outputs = "y | y, scale [, offset] | z, sum | z, z int8",
     .precision = "FLOAT, VECTOR_FUSION, QUANT",
     .evaluate = evaluate_layer_norm},
    {.name = "LayerNormWithStrideOperation",
     .variants = "norm",
     .parameters = kLayerNormParameters,
     .outputs = "y",
     .precision = "FLOAT",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_layer_norm_with_stride},
    {.name = "NormRopeReshapeOperation",
     .variants = "rotaryCoeff 2",
     .parameters = "precisionMode rotaryCoeff epsilon",
     .outputs = "key cache",
     .precision = "FLOAT",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_norm_rope_reshape},
    {.name = "RmsNormBackwardOperation",
     .variants = "backward",
     .parameters = "",
     .outputs = "dx, dgamma",
     .precision = "VECTOR_FUSION",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_rms_norm_backward},
    {.name = "RmsNormOperation",
     .variants = "norm (rstd, gemma, high performance), prenorm, postnorm; bias; int8 static, and "
                 "dynamic (norm)",
     .parameters = kRmsNormParameters,
     .outputs = "y [, rstd] | y, scale [, offset] | y, res_out",
     .precision = "VECTOR_FUSION, QUANT",
     .evaluate = evaluate_rms_norm},
    {.name = "RmsNormWithStrideOperation",
     .variants = "norm",
     .parameters = kRmsNormParameters,
     .outputs = "y",
     .precision = "VECTOR_FUSION",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_rms_norm_with_stride},
    {.name = "RopeGradOperation",
     .variants = "backward",
     .parameters = "c_qSeqLen|qSeqLen",
     .outputs = "dq, dk",
     .precision = "FLOAT",
     .evaluate = evaluate_rope_grad},
    {.name = "RopeOperation",
     .variants = "halves (rotaryCoeff 2), halves in two groups (4), interleaved pairs (others)",
     .parameters = "rotaryCoeff cosFormat",
     .outputs = "q, k",
     .precision = "FLOAT",
     .evaluate = evaluate_rope},
    {.name = "RopeQConcatOperation",
     .variants = "halves",
     .parameters = "",
     .outputs = "q beside concat",
     .precision = "FLOAT",
     .origin = Operator::Origin::Ours,
     .evaluate = evaluate_rope_q_concat},
};

}  // namespace

std::span<const Operator> norm_operators() { return kOperators; }

}  // namespace assay::opcheck
