// SPDX-License-Identifier: Apache-2.0
// The attention operations: what each accepts and returns, as `assay opcheck --ops-list` prints it,
// and the function that evaluates it.   docs/opcheck/attention.md
#include "opcheck/operations/attention/evaluate.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {

std::span<const OperationRow> attention_operators() {
  using enum OperationRow::Origin;
  // Name, variants, parameters (other spellings after "|"), outputs, precision, origin, function.
  static constexpr OperationRow kOperators[] = {
      {"SelfAttentionOperation",
       "fused with caches or bypass, PA_ENCODER, PREFIX_ENCODER; masks 0 to 9, clamp, logN, int8 "
       "offline and online, values inside keys, BNSD",
       "headNum kvHeadNum qScale qkScale calcType|coderType isEncoder maskType isSupportAlibi "
       "isTriuMask kernelType|isFp32 clampType|isClamp clampMin clampMax kvcacheCfg "
       "batchRunStatusEnable inputLayout scaleType quantType outDataType mlaVHeadSize windowSize "
       "cacheType headDim",
       "attnOut", "CV_FUSION", Original, evaluate_self_attention},
      {"PagedAttentionOperation",
       "masks 0 to 5, int8 caches, int8 offline and online, KVHEAD, KVHEAD_ROPE, several rows a "
       "sequence, values inside keys, logN",
       "headNum kvHeadNum qkScale qScale maskType batchRunStatusEnable quantType hasQuantOffset "
       "compressType calcType mlaVHeadSize scaleType outDataType inputLayout",
       "attnOut", "CV_FUSION", Original, evaluate_paged_attention},
      {"LaserAttentionOperation", "BNSD with or without mask, window preTokens",
       "headNum inputLayout scaleValue keepProb preTokens nextTokens sparseMode innerPrecise",
       "softmaxMax, softmaxSum, softmaxOut (not judged), attentionOut", "CV_FUSION", Ours,
       evaluate_laser_attention},
      {"LaserAttentionGradOperation", "BNSD with or without mask, window preTokens",
       "headNum inputLayout scaleValue keepProb preTokens nextTokens sparseMode innerPrecise",
       "queryGrad, keyGrad, valueGrad, dpse (not judged)", "CV_FUSION", Ours,
       evaluate_laser_attention_grad},
      {"FaUpdateOperation", "decode update", "faUpdateType sp", "output", "FLOAT", Ours,
       evaluate_fa_update},
  };
  return kOperators;
}

}  // namespace assay::opcheck
