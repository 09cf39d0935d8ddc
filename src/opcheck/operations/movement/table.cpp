// SPDX-License-Identifier: Apache-2.0
// The moves of data, caches and exchanges between ranks: what each accepts and returns, as `assay
// opcheck --ops-list` prints it, and the function that evaluates it.   docs/opcheck/movement.md
#include "opcheck/operations/movement/evaluate.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {

#define ASSAY_RANKS "rank rankSize rankRoot backend hcclComm commMode rankTableFile commDomain"

std::span<const OperationRow> movement_operators() {
  using enum OperationRow::Origin;
  // Name, variants, parameters (other spellings after "|"), outputs, precision, origin, function.
  static constexpr OperationRow kOperators[] = {
      {"AllGatherOperation", "over all ranks", ASSAY_RANKS, "y", "MOVE", Original,
       evaluate_all_gather},
      {"AllGatherVOperation", "over all ranks, counts and places in tensors", ASSAY_RANKS, "y",
       "MOVE", Ours, evaluate_all_gather_v},
      {"AllToAllOperation", "by rows, by columns", ASSAY_RANKS " transpose", "y", "MOVE", Ours,
       evaluate_all_to_all},
      {"AllToAllVOperation", "counts and places in parameters",
       ASSAY_RANKS " sendCounts sdispls recvCounts rdispls", "y", "MOVE", Ours,
       evaluate_all_to_all_v},
      {"AllToAllVV2Operation", "counts and places in tensors",
       ASSAY_RANKS " sendCounts sdispls recvCounts rdispls", "y", "MOVE", Ours,
       evaluate_all_to_all_v},
      {"AsStridedOperation", "any rank", "size stride offset", "y", "MOVE", Original,
       evaluate_as_strided},
      {"BlockCopyOperation", "key and value cache", "", "key cache and value cache in place",
       "MOVE", Ours, evaluate_block_copy},
      {"BroadcastOperation", "from any root", ASSAY_RANKS, "y", "MOVE", Original,
       evaluate_broadcast},
      {"ConcatOperation", "any number of inputs", "concatDim", "y", "MOVE", Original,
       evaluate_concat},
      {"FillOperation", "with mask, constant", "withMask value outDim", "y", "MOVE", Original,
       evaluate_fill},
      {"GatherOperation", "with and without batch dimensions", "axis batchDims", "y", "MOVE",
       Original, evaluate_gather},
      {"GenAttentionMaskOperation", "any lengths", "headNum seqLen", "y", "MOVE", Original,
       evaluate_gen_attention_mask},
      {"KvCacheOperation", "before and after, after only", "", "past in place", "MOVE", Original,
       evaluate_kv_cache},
      {"PadOperation", "last token of each sequence", "", "y", "MOVE", Original, evaluate_pad},
      {"PadWithHiddenStateOperation", "lengths in the parameters", "qSeqLen maxSeqLen", "y", "MOVE",
       Ours, evaluate_pad_with_hidden_state},
      {"PagedCacheLoadOperation", "ND, NZ; lengths or their sums; first tokens",
       "kvCacheCfg isSeqLensCumsumMode hasSeqStarts", "key and value in place", "MOVE", Ours,
       evaluate_paged_cache_load},
      {"ReduceScatterOperation", "sum, max, min, prod", ASSAY_RANKS " reduceType", "y",
       "FLOAT, INTEGER, MOVE", Ours, evaluate_reduce_scatter},
      {"ReduceScatterVOperation", "sum, max, min",
       ASSAY_RANKS " reduceType sendCounts sdispls recvCount", "y", "FLOAT, INTEGER, MOVE", Ours,
       evaluate_reduce_scatter_v},
      {"RepeatOperation", "any rank", "multiples", "y", "FLOAT", Original, evaluate_repeat},
      {"ReshapeAndCacheOmniOperation", "all but one window a head", "",
       "key cache and value cache in place", "MOVE", Ours, evaluate_reshape_and_cache_omni},
      {"ReshapeAndCacheOperation", "key and value, key only; ND, NZ; one window a head",
       "compressType kvCacheCfg|kvcacheCfg", "key cache and value cache in place", "MOVE", Original,
       evaluate_reshape_and_cache},
      {"ReshapeAndCacheWithStrideOperation", "key and value, key only; one window a head",
       "compressType kvCacheCfg|kvcacheCfg", "key cache and value cache in place", "MOVE", Ours,
       evaluate_reshape_and_cache_with_stride},
      {"ScatterElementsV2Operation", "replace, add (needs before data)", "axis reduction",
       "x in place", "MOVE, FLOAT", Ours, evaluate_scatter_elements},
      {"SetValueOperation", "before and after, after only", "starts ends strides", "dst in place",
       "MOVE", Original, evaluate_set_value},
      {"SliceOperation", "any rank", "offsets size", "y", "MOVE", Original, evaluate_slice},
      {"SplitOperation", "2 or 3 parts, equal or of given sizes", "splitNum splitDim splitSizes",
       "y0, y1 [, y2]", "MOVE", Original, evaluate_split},
      {"TransdataOperation", "NZ to ND, ND to NZ", "transdataType outCrops", "y", "CAST", Original,
       evaluate_transdata},
      {"TransposeOperation", "any permutation", "perm", "y", "CAST", Original, evaluate_transpose},
      {"UnpadOperation", "any lengths", "", "ids, cumOffsetsOut, paddingOffset", "MOVE", Original,
       evaluate_unpad},
      {"UnpadWithHiddenStateOperation", "lengths in the parameters", "qSeqLen maxSeqLen", "y",
       "MOVE", Ours, evaluate_unpad_with_hidden_state},
      {"WhereOperation", "broadcasting", "", "y", "FLOAT", Original, evaluate_where},
  };
  return kOperators;
}

#undef ASSAY_RANKS

}  // namespace assay::opcheck
