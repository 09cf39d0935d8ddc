// SPDX-License-Identifier: Apache-2.0
// Between padded batches and tokens one after the other.   docs/opcheck/movement.md
#include <numeric>

#include "opcheck/operations/movement/evaluate.hpp"
#include "reference/movement/sequences.hpp"
#include "tensor/sentence.hpp"

namespace assay::opcheck {
namespace {

using movement::integers_of;
using movement::kMove;

/// The lengths of sequences, which are a parameter in these operations of training.
Result<std::vector<int64_t>> required_lengths(const Case& one, std::string_view name) {
  if (!one.parameters.has(name))
    return fail(Errc::Unsupported, "parameter ", name,
                " is not in the dump, and nothing else tells it");
  return one.parameters.integers(name);
}

}  // namespace

Result<Evaluation> evaluate_pad(const Case& one) {
  ASSAY_TRY(const std::vector<Tensor> inputs,
            read_inputs(one, {"hidden", "paddingOffset", "seqLen", "inputIds"}));
  ASSAY_TRY(const std::vector<int64_t> lengths, integers_of(inputs[2], "seqLen"));
  return evaluation("", expectation(0, kMove, [hidden = inputs[0], lengths] {
                      return reference::last_tokens(hidden, lengths);
                    }));
}

Result<Evaluation> evaluate_unpad(const Case& one) {
  ASSAY_TRY(const std::vector<Tensor> inputs,
            read_inputs(one, {"inputIds", "cumOffsets", "tokenNum", "seqLen"}));
  ASSAY_TRY(const std::vector<int64_t> cum_offsets, integers_of(inputs[1], "cumOffsets"));
  ASSAY_TRY(const std::vector<int64_t> tokens, integers_of(inputs[2], "tokenNum"));
  ASSAY_TRY(const std::vector<int64_t> lengths, integers_of(inputs[3], "seqLen"));
  ASSAY_TRY(const reference::UnpaddedIds unpadded,
            reference::unpad_ids(inputs[0], cum_offsets, lengths));
  const int64_t sum = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (tokens.size() != 1 || tokens[0] != sum)
    return fail(Errc::Invalid, "tokenNum is ", tokens, ", seqLen adds up to ", sum);
  Evaluation evaluation;
  evaluation.outputs = {expectation_of(0, kMove, unpadded.ids),
                        expectation_of(1, kMove, unpadded.offsets),
                        expectation_of(2, kMove, unpadded.padding_offset)};
  return evaluation;
}

Result<Evaluation> evaluate_gen_attention_mask(const Case& one) {
  ASSAY_TRY(const int64_t heads, one.parameters.integer("headNum", 1));
  ASSAY_TRY(const std::vector<int64_t> lengths, one.parameters.integers("seqLen"));
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"mask"}));
  return evaluation("", expectation(0, kMove, [mask = inputs[0], heads, lengths] {
                      return reference::ragged_masks(mask, heads, lengths);
                    }));
}

Result<Evaluation> evaluate_pad_with_hidden_state(const Case& one) {
  ASSAY_TRY(const std::vector<int64_t> lengths, required_lengths(one, "qSeqLen"));
  ASSAY_TRY(const int64_t padded, one.parameters.integer("maxSeqLen", 4096));
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"x"}));
  return evaluation("", expectation(0, kMove, [x = inputs[0], lengths, padded] {
                      return reference::pad_sequences(x, lengths, padded);
                    }));
}

Result<Evaluation> evaluate_unpad_with_hidden_state(const Case& one) {
  ASSAY_TRY(const std::vector<int64_t> lengths, required_lengths(one, "qSeqLen"));
  ASSAY_TRY(const std::vector<Tensor> inputs, read_inputs(one, {"x"}));
  return evaluation("", expectation(0, kMove, [x = inputs[0], lengths] {
                      return reference::unpad_sequences(x, lengths);
                    }));
}

}  // namespace assay::opcheck
