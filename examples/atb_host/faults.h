// SPDX-License-Identifier: Apache-2.0
// Defects that real kernels have had, each planted in one operation of the model, for trying out tools that look for
// the wrong operation.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace atb_host {

enum class Fault {
  kNone,
  // Gather of the embeddings; outside the layers
  kGatherOffByOne,  // the row after the token's
  // RmsNorm before the attention
  kWrongEpsilon,   // adds 1e-4 instead of its parameter
  kGammaPlusOne,   // multiplies by 1 + gamma, as other models do
  kNormOfHalfRow,  // the mean is that of the first half of a row
  // Linear q (packed: q, k and v in one)
  kDroppedBias,
  kBiasTwice,
  // Split of q, k and v (packed only)
  kSplitOffset,  // the second part begins one column early
  // Rope
  kRopeOffByOne,     // the rotary angles of the next position
  kRopeSign,         // turned the other way
  kRopeInterleaved,  // neighbours are a pair, not the elements of the two halves
  // ReshapeAndCache
  kWrongSlot,     // every token is written one slot too far
  kValueFromKey,  // the cache of values gets the keys
  // SelfAttention and PagedAttention
  kDroppedScale,       // forgets to divide by sqrt(head size)
  kMissingMaskRow,     // prompt: the first token sees the whole prompt
  kMaskOffByOne,       // prompt: every token sees the one after it
  kSwappedHeads,       // the results of heads 0 and 1 change places
  kHeadOrderReversed,  // the results stand in reverse order of heads
  kWrongGroup,         // head h uses key/value head h % G, not h / (H / G)
  kNoRescale,          // what was summed is not rescaled when a larger score comes
  kStaleCache,         // decode: the newest key is not yet in the cache
  kContextOneMore,     // decode: one slot beyond the context is read
  // Elewise add of attention and residual
  kResidualDropped,  // the output is the first input
  // Activation
  kSwishAsGelu,
  kSwishAsSigmoid,  // the input is not multiplied in
  // Elewise multiplication of gate and up
  kMulAsAdd,
  kOverflow,  // the results are so large that float16 and bf16 hold infinity
  // Linear down
  kAccumulateBf16,    // sums in bf16
  kTruncateRounding,  // rounds towards zero
  kOneElement,        // one element is off by a half
  kTransposedTile,    // a 16 x 16 tile of the weight is read transposed
  kMissingTail,       // the last 16 terms of each sum are left out
  // LinearQuant down (quantised only)
  kScaleOffByOne,  // multiplied by the scale of the next column
  // AllReduce after Linear down (several ranks only)
  kRankMissing,  // the last rank is not added
};

/// The node of the model that a fault sits in.
enum class FaultPlace {
  kNowhere,
  kEmbedding,
  kInputNorm,
  kQueryProduct,
  kQkvSplit,
  kRope,
  kCacheWrite,
  kAttention,
  kResidual,
  kActivation,
  kGate,
  kDownProduct,
  kDownQuantised,
  kDownSum,
};

/// "wrong_epsilon" ...; nothing for an unknown name.
std::optional<Fault> fault_from_name(std::string_view name);

FaultPlace place_of(Fault fault);

/// `fault` if it sits in `place`, otherwise none.
Fault fault_at(FaultPlace place, Fault fault);

/// All names, in lines of at most `width` that begin with `indent` blanks; without the last line's end.
std::string fault_names(size_t indent, size_t width);

}  // namespace atb_host
