// SPDX-License-Identifier: Apache-2.0
// Calls of fused attention, brought to the form of reference/attention.
#pragma once
#include "reference/aten/registry.hpp"
#include "reference/attention/attention.hpp"

namespace assay::reference::aten {

/// A call with batches as sequences; the views borrow from the call and from Attention::owners.
struct AttentionCall {
  Attention attention;
  Dims lines_shape;    // of logsumexp: [..., heads, m]
  Dims weights_shape;  // [..., heads, m, n]; empty where sequences differ in length
  /// Rows (last axis) of the result in its order; the line of AttentionTerms that each belongs to.
  [[nodiscard]] int64_t line_of_row(int64_t row) const;
  bool heads_last = false;  // the result is [..., m, heads, size] instead of [..., heads, m, size]
};

/// errors  Unsupported (dropout: random values; paged caches, ALiBi, quantised operands) | Invalid
///         (shapes)
[[nodiscard]] Result<AttentionCall> attention_of(const Arguments& arguments);

}  // namespace assay::reference::aten
