// SPDX-License-Identifier: Apache-2.0
// Softmax of unpadded attention scores in training.   docs/opcheck/norms.md
#include <algorithm>

#include "opcheck/operations/norms/evaluate.hpp"
#include "reference/norms/block_softmax.hpp"

namespace assay::opcheck {
namespace {

struct Blocks {
  int64_t heads = 0;
  std::vector<int64_t> lengths;
  [[nodiscard]] Accuracy accuracy() const {
    return {Precision::Float, *std::max_element(lengths.begin(), lengths.end())};
  }
};

Result<Blocks> read_blocks(const Parameters& parameters) {
  Blocks blocks;
  ASSAY_TRY(blocks.heads, parameters.integer("headNum", 0));
  ASSAY_TRY(blocks.lengths, parameters.integers("qSeqLen|c_qSeqLen"));
  if (blocks.heads <= 0) return fail(Errc::Invalid, "parameter headNum is not positive");
  if (blocks.lengths.empty())
    return fail(Errc::Invalid, "the lengths of the sequences (qSeqLen) are not in the parameters");
  return blocks;
}

}  // namespace

Result<Evaluation> evaluate_fast_softmax(const Case& one) {
  ASSAY_TRY(const Blocks blocks, read_blocks(one.parameters));
  ASSAY_TRY(auto inputs, norms::nd_inputs(one, {"x"}));
  return evaluation("forward", expectation(0, blocks.accuracy(), [blocks, x = inputs[0]] {
                      return reference::block_softmax(x.view, blocks.heads, blocks.lengths);
                    }));
}

Result<Evaluation> evaluate_fast_softmax_grad(const Case& one) {
  ASSAY_TRY(const Blocks blocks, read_blocks(one.parameters));
  ASSAY_TRY(auto inputs, norms::nd_inputs(one, {"y", "dy"}));
  return evaluation("backward", expectation(0, blocks.accuracy(), [blocks, inputs] {
                      return reference::block_softmax_gradient(inputs[0].view, inputs[1].view,
                                                               blocks.heads, blocks.lengths);
                    }));
}

}  // namespace assay::opcheck
