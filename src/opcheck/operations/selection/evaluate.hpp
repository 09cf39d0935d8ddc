// SPDX-License-Identifier: Apache-2.0
// The operations of this family; see table.cpp.
#pragma once
#include "opcheck/operation.hpp"

namespace assay::opcheck {

Result<Evaluation> evaluate_cumsum(const Case& one);
Result<Evaluation> evaluate_reduce(const Case& one);
Result<Evaluation> evaluate_softmax(const Case& one);
Result<Evaluation> evaluate_sort(const Case& one);
Result<Evaluation> evaluate_nonzero(const Case& one);
Result<Evaluation> evaluate_onehot(const Case& one);
Result<Evaluation> evaluate_index_add(const Case& one);
Result<Evaluation> evaluate_gating(const Case& one);
Result<Evaluation> evaluate_multinomial(const Case& one);
Result<Evaluation> evaluate_topk_topp_sampling(const Case& one);
Result<Evaluation> evaluate_group_topk(const Case& one);
Result<Evaluation> evaluate_fused_add_topk_div(const Case& one);

}  // namespace assay::opcheck
