// SPDX-License-Identifier: Apache-2.0
// Attention of training, with its row statistics and its gradient, and partial results put
// together. docs/opcheck/attention.md
#pragma once
#include <cstdint>
#include <optional>

#include "reference/wide.hpp"

namespace assay::reference {

struct TrainingAttention {
  double scale = 0.08838834764831843;  // 1 / sqrt(128), the library's default
  /// [s, s] or nothing: 1 where a key is forbidden, multiplied by mask_value.
  std::optional<TensorView> mask;
  double mask_value = -65536;
  /// Together with a mask: keys j < i - (pre_tokens - 1) are forbidden, too.
  int64_t pre_tokens = INT32_MAX;
};

struct AttentionWithStatistics {
  Wide maximum;  // [batch, heads, s]: largest score of each row
  Wide sum;      // [batch, heads, s]: of e^(score - maximum)
  Wide output;   // [batch, heads, s, dv]
};

/// softmax(Q K^T scale + mask) V.
///
/// q [batch, heads, s, d]; k [batch, kv_heads, s, dk], of which the first d <= dk columns count; v
/// [batch, kv_heads, s, dv]. kv_heads divides heads.
/// errors  Invalid (shapes) | Unsupported (types without real values) | TooLarge
[[nodiscard]] Result<AttentionWithStatistics> attention_with_statistics(
    const TensorView& q, const TensorView& k, const TensorView& v,
    const TrainingAttention& options);

struct AttentionGradients {
  Wide query;  // q's shape
  Wide key;    // k's shape; columns beyond d are 0
  Wide value;  // v's shape
};

/// Gradients of that attention for a gradient of its output, from the statistics and the output of
/// the forward pass: P = e^(score - maximum - ln sum), D = rowsum(output * output_gradient), dS = P
/// * (dO V^T - D) * scale, dQ = dS K, dK = dS^T Q, dV = P^T dO.
///
/// output_gradient, output [batch, heads, s, dv]; maximum, sum [batch, heads, s]
/// errors  as above
[[nodiscard]] Result<AttentionGradients> attention_gradients(
    const TensorView& q, const TensorView& k, const TensorView& v,
    const TensorView& output_gradient, const TensorView& maximum, const TensorView& sum,
    const TensorView& output, const TrainingAttention& options);

/// Partial attention results over parts of the keys as one: sum over parts of
/// softmax(lse over parts) * output.
///
/// lse [parts, rows], outputs [parts, rows, d]; the result is [rows, d]
/// errors  Invalid (shapes) | Unsupported | TooLarge
[[nodiscard]] Result<Wide> combine_attention(const TensorView& lse, const TensorView& outputs);

}  // namespace assay::reference
