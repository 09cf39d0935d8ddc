// SPDX-License-Identifier: Apache-2.0
// The arithmetic. Every kernel widens its inputs to float, accumulates in float and rounds once when it stores; index
// arithmetic moves bytes. Plain loops: this program is read, and its results are recomputed, more than it is run.
//
// Letters for dims: T tokens, H query heads, G key/value heads, D head size, K and N sides of a weight.
#pragma once
#include "faults.h"
#include "tensor.h"

namespace atb_host {

/// Rows of `table` [rows, width]; `indices` int64 [T]; output [T, width].
void gather_rows(const Tensor& table, const Tensor& indices, const Tensor& output, Fault fault);

/// x * gamma / sqrt(mean(x^2) + epsilon) over the last dimension.
void rms_norm(const Tensor& x, const Tensor& gamma, float epsilon, const Tensor& output,
              Fault fault);

/// x [T, K] by the transpose of weight [N, K]; output [T, N].
void matmul_transposed(const Tensor& x, const Tensor& weight, const Tensor& output, Fault fault);

/// The same with int8 weights: each row of x is rounded to int8 with a scale of its own (the largest value becomes 127),
/// products of int8 are summed exactly, and the sum is multiplied by both scales. weight [N, K], scales float [N].
void matmul_quantised(const Tensor& x, const Tensor& weight, const Tensor& scales,
                      const Tensor& output, Fault fault);

/// Same dims, or `b` is one row that is added to each row of `a`.
void add(const Tensor& a, const Tensor& b, const Tensor& output, Fault fault);
void multiply(const Tensor& a, const Tensor& b, const Tensor& output, Fault fault);

/// x / (1 + exp(-x)).
void swish(const Tensor& x, const Tensor& output, Fault fault);

/// Rotates each head's halves (u, v) to (u cos - v sin, v cos + u sin); x [T, heads * D], cos and sin [T, D].
void rotate(const Tensor& x, const Tensor& cos, const Tensor& sin, const Tensor& output,
            Fault fault);

/// Copies row t of `tokens` [T, G, D] to cache [blocks, block size, G, D] at slots[t] = block * block size + offset.
void write_cache(const Tensor& tokens, const Tensor& slots, const Tensor& cache, Fault fault);

struct AttentionShape {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  float scale = 1.0F;
};

/// Prompt attention: q [T, H*D], k and v [T, G*D], mask [T, T]; output [T, H*D].
/// A float16 mask is added; a bf16 mask of zeros and ones is first multiplied by -3e38.
void attend_prompt(const AttentionShape& shape, const Tensor& q, const Tensor& k, const Tensor& v,
                   const Tensor& mask, const Tensor& output, Fault fault);

/// One new token per sequence against its cached ones: q [B, H, D], block_tables int32 [B, blocks a sequence],
/// context_lens int32 [B], the new token included; output [B, H, D].
void attend_cache(const AttentionShape& shape, const Tensor& q, const Tensor& key_cache,
                  const Tensor& value_cache, const Tensor& block_tables, const Tensor& context_lens,
                  const Tensor& output, Fault fault);

/// Columns of x [T, sum of widths] as outputs [T, width], from the left.
void split_columns(const Tensor& x, const std::vector<Tensor>& outputs, Fault fault);

/// The largest value of each row and its position; the first one of equals.
void top_one(const Tensor& x, const Tensor& values, const Tensor& positions);

/// The last row of x [T, width]; also serves as a plain copy of one row.
void last_row(const Tensor& x, const Tensor& output);

}  // namespace atb_host
