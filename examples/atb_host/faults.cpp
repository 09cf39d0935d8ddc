// SPDX-License-Identifier: Apache-2.0
#include "faults.h"

#include <algorithm>

namespace atb_host {
namespace {

struct Row {
  std::string_view name;
  Fault fault;
  FaultPlace place;
};

constexpr Row kFaults[] = {
    {"none", Fault::kNone, FaultPlace::kNowhere},
    {"gather_off_by_one", Fault::kGatherOffByOne, FaultPlace::kEmbedding},
    {"wrong_epsilon", Fault::kWrongEpsilon, FaultPlace::kInputNorm},
    {"gamma_plus_one", Fault::kGammaPlusOne, FaultPlace::kInputNorm},
    {"norm_of_half_row", Fault::kNormOfHalfRow, FaultPlace::kInputNorm},
    {"dropped_bias", Fault::kDroppedBias, FaultPlace::kQueryProduct},
    {"bias_twice", Fault::kBiasTwice, FaultPlace::kQueryProduct},
    {"split_offset", Fault::kSplitOffset, FaultPlace::kQkvSplit},
    {"rope_off_by_one", Fault::kRopeOffByOne, FaultPlace::kRope},
    {"rope_sign", Fault::kRopeSign, FaultPlace::kRope},
    {"rope_interleaved", Fault::kRopeInterleaved, FaultPlace::kRope},
    {"wrong_slot", Fault::kWrongSlot, FaultPlace::kCacheWrite},
    {"value_from_key", Fault::kValueFromKey, FaultPlace::kCacheWrite},
    {"dropped_scale", Fault::kDroppedScale, FaultPlace::kAttention},
    {"missing_mask_row", Fault::kMissingMaskRow, FaultPlace::kAttention},
    {"mask_off_by_one", Fault::kMaskOffByOne, FaultPlace::kAttention},
    {"swapped_heads", Fault::kSwappedHeads, FaultPlace::kAttention},
    {"head_order_reversed", Fault::kHeadOrderReversed, FaultPlace::kAttention},
    {"wrong_group", Fault::kWrongGroup, FaultPlace::kAttention},
    {"no_rescale", Fault::kNoRescale, FaultPlace::kAttention},
    {"stale_cache", Fault::kStaleCache, FaultPlace::kAttention},
    {"context_one_more", Fault::kContextOneMore, FaultPlace::kAttention},
    {"residual_dropped", Fault::kResidualDropped, FaultPlace::kResidual},
    {"swish_as_gelu", Fault::kSwishAsGelu, FaultPlace::kActivation},
    {"swish_as_sigmoid", Fault::kSwishAsSigmoid, FaultPlace::kActivation},
    {"mul_as_add", Fault::kMulAsAdd, FaultPlace::kGate},
    {"overflow", Fault::kOverflow, FaultPlace::kGate},
    {"accumulate_bf16", Fault::kAccumulateBf16, FaultPlace::kDownProduct},
    {"truncate_rounding", Fault::kTruncateRounding, FaultPlace::kDownProduct},
    {"one_element", Fault::kOneElement, FaultPlace::kDownProduct},
    {"transposed_tile", Fault::kTransposedTile, FaultPlace::kDownProduct},
    {"missing_tail", Fault::kMissingTail, FaultPlace::kDownProduct},
    {"scale_off_by_one", Fault::kScaleOffByOne, FaultPlace::kDownQuantised},
    {"rank_missing", Fault::kRankMissing, FaultPlace::kDownSum},
};

}  // namespace

std::optional<Fault> fault_from_name(std::string_view name) {
  for (const Row& row : kFaults) {
    if (row.name == name) return row.fault;
  }
  return std::nullopt;
}

FaultPlace place_of(Fault fault) {
  const auto* found = std::find_if(std::begin(kFaults), std::end(kFaults),
                                   [&](const Row& row) { return row.fault == fault; });
  return found == std::end(kFaults) ? FaultPlace::kNowhere : found->place;
}

Fault fault_at(FaultPlace place, Fault fault) {
  return place_of(fault) == place ? fault : Fault::kNone;
}

std::string fault_names(size_t indent, size_t width) {
  std::string text;
  size_t column = width;  // no line has begun
  for (const Row& row : kFaults) {
    if (row.fault == Fault::kNone) continue;
    if (column + 1 + row.name.size() > width) {
      text += (text.empty() ? "" : "\n") + std::string(indent, ' ');
      column = indent;
    } else {
      text += ' ';
      ++column;
    }
    text += row.name;
    column += row.name.size();
  }
  return text;
}

}  // namespace atb_host
