// SPDX-License-Identifier: Apache-2.0
#include <array>

#include "opcheck/operations/attention/evaluate.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {

std::span<const Operator> attention_operators() {
  static const std::array kOperators = {
      Operator{
          .name = "SelfAttentionOperation",
          .variants =
              "fused with caches or bypass, PA_ENCODER, PREFIX_ENCODER; masks 0 to 9, clamp, logN, "
              "int8 offline and online, values inside keys, BNSD",
          .parameters = "headNum kvHeadNum qScale qkScale calcType|coderType isEncoder maskType "
                        "isSupportAlibi isTriuMask kernelType|isFp32 clampType|isClamp clampMin "
                        "clampMax kvcacheCfg batchRunStatusEnable inputLayout scaleType quantType "
                        "outDataType mlaVHeadSize windowSize cacheType headDim",
          .outputs = "attnOut",
          .precision = "CV_FUSION",
          .origin = Operator::Origin::Original,
          .evaluate = evaluate_self_attention},
      Operator{
          .name = "PagedAttentionOperation",
          .variants =
              "masks 0 to 5, int8 caches, int8 offline and online, KVHEAD, KVHEAD_ROPE, several "
              "rows a sequence, values inside keys, logN",
          .parameters = "headNum kvHeadNum qkScale qScale maskType batchRunStatusEnable quantType "
                        "hasQuantOffset compressType calcType mlaVHeadSize scaleType outDataType "
                        "inputLayout",
          .outputs = "attnOut",
          .precision = "CV_FUSION",
          .origin = Operator::Origin::Original,
          .evaluate = evaluate_paged_attention},
      Operator{.name = "LaserAttentionOperation",
               .variants = "BNSD with or without mask, window preTokens",
               .parameters = "headNum inputLayout scaleValue keepProb preTokens nextTokens "
                             "sparseMode innerPrecise",
               .outputs = "softmaxMax, softmaxSum, softmaxOut (not judged), attentionOut",
               .precision = "CV_FUSION",
               .origin = Operator::Origin::Ours,
               .evaluate = evaluate_laser_attention},
      Operator{.name = "LaserAttentionGradOperation",
               .variants = "BNSD with or without mask, window preTokens",
               .parameters = "headNum inputLayout scaleValue keepProb preTokens nextTokens "
                             "sparseMode innerPrecise",
               .outputs = "queryGrad, keyGrad, valueGrad, dpse (not judged)",
               .precision = "CV_FUSION",
               .origin = Operator::Origin::Ours,
               .evaluate = evaluate_laser_attention_grad},
      Operator{.name = "FaUpdateOperation",
               .variants = "decode update",
               .parameters = "faUpdateType sp",
               .outputs = "output",
               .precision = "FLOAT",
               .origin = Operator::Origin::Ours,
               .evaluate = evaluate_fa_update},
  };
  return kOperators;
}

}  // namespace assay::opcheck
