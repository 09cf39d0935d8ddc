// SPDX-License-Identifier: Apache-2.0
// The reductions, sorts, look-ups, samplers and routings: what each accepts and returns, as `assay
// opcheck --ops-list` prints it, and the function that evaluates it.   docs/opcheck/selection.md
#include "opcheck/operations/selection/evaluate.hpp"
#include "opcheck/registry.hpp"

namespace assay::opcheck {

std::span<const OperationRow> selection_operators() {
  using enum OperationRow::Origin;
  // Name, variants, parameters (other spellings after "|"), outputs, precision, origin, function.
  static constexpr OperationRow kOperators[] = {
      {"CumsumOperation", "inclusive, exclusive, reverse", "axes exclusive reverse", "y", "FLOAT",
       Original, evaluate_cumsum},
      {"FusedAddTopkDivOperation", "normalised or not; experts mapped",
       "groupNum groupTopk n k activationType isNorm scale enableExpertMapping", "weights, experts",
       "VECTOR_FUSION", Ours, evaluate_fused_add_topk_div},
      {"GatingOperation", "all experts, experts of the device, without sums",
       "topkExpertNum cumSumNum deviceExpert cumSumInt64",
       "tokenIndex, cumSum, originalIndex [, validIndex]", "INTEGER", Original, evaluate_gating},
      {"GroupTopkOperation", "largest of a group, sum of the n largest",
       "groupNum k groupMultiFlag n", "y, or the input in place", "MOVE", Ours,
       evaluate_group_topk},
      {"IndexAddOperation", "index add, index add of valid indices", "indexType axis",
       "var in place", "FLOAT", Original, evaluate_index_add},
      {"MultinomialOperation", "up to 64 samples", "numSamples randSeed", "indices",
       "INTEGER with ties", Original, evaluate_multinomial},
      {"NonzeroOperation", "coordinates and count", "", "indices, count", "INTEGER", Original,
       evaluate_nonzero},
      {"OnehotOperation", "any axis", "axis depth", "y", "INTEGER", Original, evaluate_onehot},
      {"ReduceOperation", "max, min, sum", "reduceType axis", "y", "MOVE, FLOAT", Original,
       evaluate_reduce},
      {"SoftmaxOperation", "one axis or several that follow each other", "axes", "y", "FLOAT",
       Original, evaluate_softmax},
      {"SortOperation", "the num largest, descending", "num", "values, indices", "FLOAT, MOVE",
       Original, evaluate_sort},
      {"TopkToppSamplingOperation",
       "single topk; batch topk: multinomial, exponential, each with log probs",
       "topkToppSamplingType|tokkToppSamplingType randSeeds randSeed topk logProbsSize",
       "indices, probabilities [, log probs]", "INTEGER with ties, MOVE, FLOAT", Original,
       evaluate_topk_topp_sampling},
  };
  return kOperators;
}

}  // namespace assay::opcheck
