// SPDX-License-Identifier: Apache-2.0
// Rotary position embeddings.   docs/opcheck/norms.md
#pragma once
#include <optional>
#include <span>

#include "reference/wide.hpp"

namespace assay::reference {

struct RopeOptions {
  /// How many groups of a head are rotated on their own: 1 (GPT-NeoX, LLaMA), 2 (ChatGLM-6B).
  int64_t groups = 1;
  /// Pairs of neighbours (x[2i], x[2i+1]) with the tables' elements 2i (GPT-J), in place of halves.
  bool interleaved = false;
};

/// Each group of a head has halves (u, v), with the same halves of its part of the tables:
///   u' = u * cos_u - v * sin_u,   v' = v * cos_v + u * sin_v
///
/// x         [tokens, heads * d], [tokens, heads, d], [batch, seq, heads * d] or [batch, seq,
///           heads, d]
/// cos, sin  d values (their last dimension) for each token, tokens in C order; or for each
///           position of a 4-d x, shared by the batch
/// returns   shape of x
/// errors    Invalid (shapes; d not a multiple of 2 * groups) | Unsupported (no real numbers) |
///           TooLarge
/// source    Su et al., RoFormer
[[nodiscard]] Result<Wide> rope(const TensorView& x, const TensorView& cos, const TensorView& sin,
                                const RopeOptions& options = {});

/// g * (cos + (sin_v, -sin_u)), element by element, for each head: what training kernels compute
/// that take sequences of one batch from the start of the tables. (The adjoint of rope() is rope()
/// with -sin.)
///
/// gradient     [tokens, heads * d]
/// cos, sin     [positions, d]; sequence b uses the rows [0, seq_lens[b])
/// seq_lens     tokens of each sequence; their sum is `tokens`
/// errors       Invalid (shapes, lengths) | Unsupported | TooLarge
[[nodiscard]] Result<Wide> rope_gradient(const TensorView& gradient, const TensorView& cos,
                                         const TensorView& sin, std::span<const int64_t> seq_lens);

/// q rotated in halves beside values that are not: [rope(q) | other] for each token and head.
///
/// q         [tokens, heads * d];  cos, sin  [tokens, d];  other  [tokens, heads, e]
/// returns   [tokens, heads, d + e]
/// errors    Invalid | Unsupported | TooLarge
[[nodiscard]] Result<Wide> rope_concat(const TensorView& q, const TensorView& cos,
                                       const TensorView& sin, const TensorView& other);

struct RotaryTables {
  Wide cos;  // [tokens, d]
  Wide sin;
};
/// cos and sin of position * inverse frequency, the frequencies twice beside each other. The angle
/// is one float32 product, as tables are made everywhere: at position 10^5 its rounding is larger
/// than a float16's.
///
/// positions   integers [tokens], the sequences one after the other
/// inv_freq    [batch, d / 2]: frequencies of each sequence
/// seq_lens    [batch]; their sum is at most `tokens`, the rows after it are 0
/// errors      Invalid | Unsupported | TooLarge
[[nodiscard]] Result<RotaryTables> rotary_tables(const TensorView& positions,
                                                 const TensorView& inv_freq,
                                                 const TensorView& seq_lens);

}  // namespace assay::reference
