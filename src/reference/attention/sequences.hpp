// SPDX-License-Identifier: Apache-2.0
// Attention over sequences that stand one behind the other without padding.
//   docs/opcheck/attention.md
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "reference/attention/attention.hpp"

namespace assay::reference {

/// What both calls are told beside queries, keys and values; the same for all sequences.
struct SequenceTerms {
  std::optional<TensorView> mask;  // added to the scores: [m, n] or [heads, m, n], or larger
  bool causal = false;
  int64_t window = 0;          // above 0: only the last so many visible keys
  std::vector<double> slopes;  // ALiBi, one a head, or none
};

/// q [query rows, heads, d] against k [key rows, kv heads, d] and v [key rows, kv heads, dv].
///
/// q_lens   rows of each sequence; empty: one sequence
/// kv_lens  the same of k and v; empty: as q_lens
/// scale    by default 1 / sqrt(d)
/// errors   Usage (shapes or lengths that do not fit each other)
[[nodiscard]] Result<Attention> attention_of_sequences(const Tensor& q, const Tensor& k,
                                                       const Tensor& v, std::vector<int64_t> q_lens,
                                                       std::vector<int64_t> kv_lens,
                                                       std::optional<double> scale,
                                                       const SequenceTerms& terms);

/// q against caches [blocks, block size, kv heads, d or dv].
///
/// block_tables  integers [sequences, blocks of a sequence], in the order of the keys
/// contexts      keys of each sequence; without any its rows are 0
/// q_lens        rows of each sequence; empty: one each
/// errors        Usage (shapes, blocks or lengths that do not fit)
[[nodiscard]] Result<Attention> attention_of_blocks(
    const Tensor& q, const Tensor& k_cache, const Tensor& v_cache, const Tensor& block_tables,
    const std::vector<int64_t>& contexts, std::vector<int64_t> q_lens, std::optional<double> scale,
    const SequenceTerms& terms);

}  // namespace assay::reference
