// SPDX-License-Identifier: Apache-2.0
// Calls of attention as Python makes them: sequences without padding, or new tokens against a paged
// cache.
#include "reference/attention/sequences.hpp"
#include "tensor/sentence.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace assay::reference {
namespace {

Result<TensorView> of_three_dims(const TensorView& view, const char* what) {
  if (view.shape.size() == 3) return view;
  return fail(Errc::Usage, what, " has shape ", view.shape, ", expected [rows, heads, size]");
}

/// Elements [first, first + count) of the first dimension.
TensorView part_of(TensorView view, int64_t first, int64_t count) {
  view.offset_elements += first * view.strides[0];
  view.shape[0] = count;
  return view;
}

/// A mask of [m, n] or [heads, m, n], or larger, as rows of all heads.
Result<TensorView> mask_of(const TensorView& mask, int64_t heads, int64_t m, int64_t n) {
  const size_t rank = mask.shape.size();
  if (rank == 2 || rank == 3) {
    const int64_t planes = rank == 3 ? mask.shape[0] : 1;
    const int64_t rows = mask.shape[rank - 2];
    const int64_t columns = mask.shape[rank - 1];
    if ((planes == 1 || planes == heads) && rows >= m && columns >= n) {
      TensorView view = mask;
      view.shape = Dims{heads, rows, columns};
      view.strides =
          Dims{planes == 1 ? 0 : mask.strides[0], mask.strides[rank - 2], mask.strides[rank - 1]};
      return view;
    }
  }
  return fail(Errc::Usage, "the mask has shape ", mask.shape, ", needs [", m, ", ", n, "], or [",
              heads, ", ", m, ", ", n, "]");
}

Status add_terms(const SequenceTerms& terms, int64_t heads, int64_t m, int64_t n,
                 AttentionSequence* sequence) {
  sequence->bias.offset = n - m;
  sequence->bias.causal = terms.causal;
  sequence->bias.window = terms.window;
  sequence->bias.slopes = terms.slopes;
  if (!terms.slopes.empty() && static_cast<int64_t>(terms.slopes.size()) != heads)
    return fail(Errc::Usage, terms.slopes.size(), " slopes for ", heads, " heads");
  if (!terms.mask) return {};
  ASSAY_TRY(sequence->bias.dense, mask_of(*terms.mask, heads, m, n));
  return {};
}

/// Sizes that the queries and the values decide.
Result<Attention> attention_over(const TensorView& query, int64_t kv_heads, int64_t value_size,
                                 std::optional<double> scale) {
  Attention attention;
  attention.heads = query.shape[1];
  attention.kv_heads = kv_heads;
  attention.head_size = query.shape[2];
  attention.value_size = value_size;
  attention.scale =
      scale.value_or(1.0 / std::sqrt(static_cast<double>(std::max<int64_t>(query.shape[2], 1))));
  attention.output_shape = Dims{query.shape[0], query.shape[1], value_size};
  ASSAY_TRY_STATUS(checked_count(attention.output_shape));
  attention.output_head_stride = value_size;
  attention.output_row_stride = query.shape[1] * value_size;
  return attention;
}

Status check_lengths(const std::vector<int64_t>& lengths, int64_t rows, const char* what) {
  int64_t sum = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > rows - sum)
      return fail(Errc::Usage, "lengths of the sequences do not fit ", what, " of ", rows, " rows");
    sum += length;
  }
  if (sum == rows) return {};
  return fail(Errc::Usage, "lengths of the sequences add up to ", sum, ", ", what, " has ", rows,
              " rows");
}

/// The first `rows` places of a block of a cache.
TensorView block_of(const TensorView& cache, int64_t block, int64_t rows) {
  TensorView view = cache;
  view.offset_elements += block * cache.strides[0];
  view.shape = Dims{rows, cache.shape[2], cache.shape[3]};
  view.strides = Dims{cache.strides[1], cache.strides[2], cache.strides[3]};
  return view;
}

/// The first `context` keys and values that the block table of a sequence lists.
Status add_blocks(const TensorView& keys, const TensorView& values, const Whole& tables,
                  int64_t sequence, int64_t context, AttentionSequence* one) {
  const int64_t table_size = tables.shape[1];
  const int64_t block_size = keys.shape[1];
  if (context < 0 || context > table_size * block_size)
    return fail(Errc::Usage, "context length ", context, " exceeds the blocks of its sequence");
  for (int64_t first = 0; first < context; first += block_size) {
    const auto place = static_cast<size_t>(sequence * table_size + first / block_size);
    const int64_t block = tables.values[place];
    if (block < 0 || block >= keys.shape[0])
      return fail(Errc::Usage, "block ", block, " of ", keys.shape[0], " blocks");
    const int64_t filled = std::min(block_size, context - first);
    one->keys.push_back(block_of(keys, block, filled));
    one->values.push_back(block_of(values, block, filled));
  }
  return {};
}

}  // namespace

Result<Attention> attention_of_sequences(const Tensor& q, const Tensor& k, const Tensor& v,
                                         std::vector<int64_t> q_lens, std::vector<int64_t> kv_lens,
                                         std::optional<double> scale, const SequenceTerms& terms) {
  ASSAY_TRY(const TensorView query, of_three_dims(q.view, "q"));
  ASSAY_TRY(const TensorView key, of_three_dims(k.view, "k"));
  ASSAY_TRY(const TensorView value, of_three_dims(v.view, "v"));
  if (q_lens.empty()) q_lens = {query.shape[0]};
  if (kv_lens.empty()) kv_lens = q_lens.size() == 1 ? std::vector{key.shape[0]} : q_lens;
  ASSAY_TRY_STATUS(check_lengths(q_lens, query.shape[0], "q"));
  ASSAY_TRY_STATUS(check_lengths(kv_lens, key.shape[0], "k"));
  if (q_lens.size() != kv_lens.size() || value.shape[0] != key.shape[0])
    return fail(Errc::Usage, "q, k and v have different numbers of sequences or rows");
  ASSAY_TRY(Attention attention, attention_over(query, key.shape[1], value.shape[2], scale));
  attention.owners = {q, k, v};
  int64_t q_first = 0;
  int64_t kv_first = 0;
  for (size_t i = 0; i < q_lens.size(); ++i) {
    AttentionSequence one;
    one.query = part_of(query, q_first, q_lens[i]);
    one.keys = {part_of(key, kv_first, kv_lens[i])};
    one.values = {part_of(value, kv_first, kv_lens[i])};
    one.output_offset = q_first * attention.output_row_stride;
    ASSAY_TRY_STATUS(add_terms(terms, attention.heads, q_lens[i], kv_lens[i], &one));
    attention.sequences.push_back(std::move(one));
    q_first += q_lens[i];
    kv_first += kv_lens[i];
  }
  return attention;
}

Result<Attention> attention_of_blocks(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                                      const Tensor& block_tables,
                                      const std::vector<int64_t>& contexts,
                                      std::vector<int64_t> q_lens, std::optional<double> scale,
                                      const SequenceTerms& terms) {
  ASSAY_TRY(const TensorView query, of_three_dims(q.view, "q"));
  const TensorView& keys = k_cache.view;
  const TensorView& values = v_cache.view;
  if (keys.shape.size() != 4 || values.shape.size() != 4 || block_tables.view.shape.size() != 2)
    return fail(Errc::Usage,
                "caches are [blocks, block size, heads, size], block tables [sequences, blocks]");
  for (size_t i = 0; i < 3; ++i) {
    if (keys.shape[i] != values.shape[i])
      return fail(Errc::Usage, "k_cache has shape ", keys.shape, ", v_cache ", values.shape);
  }
  ASSAY_TRY(const Whole tables, whole(block_tables.view));
  const int64_t sequences = tables.shape[0];
  const int64_t block_size = keys.shape[1];
  if (static_cast<int64_t>(contexts.size()) != sequences || block_size == 0)
    return fail(Errc::Usage, contexts.size(), " context lengths for ", sequences, " sequences");
  if (q_lens.empty()) q_lens.assign(contexts.size(), 1);
  ASSAY_TRY_STATUS(check_lengths(q_lens, query.shape[0], "q"));
  if (q_lens.size() != contexts.size())
    return fail(Errc::Usage, "q_lens and context_lens differ in length");
  ASSAY_TRY(Attention attention, attention_over(query, keys.shape[2], values.shape[3], scale));
  attention.owners = {q, k_cache, v_cache};
  int64_t q_first = 0;
  for (int64_t b = 0; b < sequences; ++b) {
    const int64_t context = contexts[static_cast<size_t>(b)];
    const int64_t rows = q_lens[static_cast<size_t>(b)];
    AttentionSequence one;
    one.query = part_of(query, q_first, rows);
    ASSAY_TRY_STATUS(add_blocks(keys, values, tables, b, context, &one));
    one.output_offset = q_first * attention.output_row_stride;
    ASSAY_TRY_STATUS(add_terms(terms, attention.heads, rows, context, &one));
    if (context > 0) attention.sequences.push_back(std::move(one));
    q_first += rows;
  }
  return attention;
}

}  // namespace assay::reference
