// SPDX-License-Identifier: Apache-2.0
// assay.reference: moves of data and caches.
#include "python/reference/operators.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/caches.hpp"
#include "reference/movement/gather.hpp"
#include "reference/movement/sequences.hpp"
#include "reference/movement/transdata.hpp"
#include "reference/movement/views.hpp"
#include "reference/products/all_reduce.hpp"

namespace assay::python {
namespace {

using namespace reference;
using Integers = std::vector<int64_t>;

Result<CacheLayout> layout_of(const Tensor& cache, bool nz) {
  return nz ? nz_cache(cache.view) : plain_cache(cache.view);
}

Result<Tensor> write_cache(const Tensor& tokens, const Tensor& cache, const Integers& slots,
                           bool nz) {
  ASSAY_TRY(const CacheLayout layout, layout_of(cache, nz));
  return write_slots(cache, layout, tokens, token_writes(slots));
}

Result<Tensor> write_cache_windows(const Tensor& tokens, const Tensor& cache, const Integers& slots,
                                   const Integers& wins, const Integers& lengths,
                                   const std::optional<Integers>& offset_index) {
  ASSAY_TRY(const CacheLayout layout, plain_cache(cache.view));
  if (tokens.view.shape.size() < 2)
    return fail(Errc::Invalid, "tokens need the dimensions [tokens, heads, ...]");
  const int64_t heads = tokens.view.shape[1];
  ASSAY_TRY(const std::vector<SlotWrite> writes,
            offset_index ? omni_writes(slots, wins, lengths, *offset_index, heads)
                         : window_writes(slots, wins, lengths, heads));
  return write_slots(cache, layout, tokens, writes);
}

Result<Tensor> read_cache(const Tensor& cache, const TensorView& tables, const Integers& lengths,
                          const Integers& starts, bool nz) {
  ASSAY_TRY(const CacheLayout layout, layout_of(cache, nz));
  ASSAY_TRY(const Integers slots, table_slots(tables, lengths, starts, layout.block_size));
  return read_slots(cache, layout, slots);
}

Result<Tensor> write_layer_cache(const Tensor& tokens, const Tensor& past, int64_t layer,
                                 const Integers& token_offset, const Integers& lengths) {
  ASSAY_TRY(const std::vector<SlotWrite> writes,
            layer_writes(past.view, layer, token_offset, lengths));
  // Layers and batches together are the blocks of a paged cache.
  ASSAY_TRY(const Tensor blocks, reshaped(past, joined_leading_dims(past.view.shape)));
  ASSAY_TRY(const CacheLayout layout, plain_cache(blocks.view));
  ASSAY_TRY(const Tensor written, write_slots(blocks, layout, tokens, writes));
  return reshaped(written, past.view.shape);
}

/// Part `rank` of the first dimension of all ranks' x, reduced.
Result<Tensor> reduce_scatter(std::span<const Tensor> ranks, int64_t rank,
                              RankReduction reduction) {
  const auto count = static_cast<int64_t>(ranks.size());
  Dims shape = ranks.empty() ? Dims{} : ranks[0].view.shape;
  if (shape.empty() || shape[0] % count != 0)
    return fail(Errc::Invalid, std::to_string(count) + " ranks do not divide x of shape " +
                                   list_text(shape.span()));
  const int64_t part = ranks[0].view.element_count() / count;
  ASSAY_TRY(Wide flat, reduce_part(ranks, reduction, rank * part, part));
  shape[0] /= count;
  return reshaped(to_tensor(std::move(flat)), shape);
}

}  // namespace

void add_movement(Operators& operators) {
  operators.add("as_strided", as_strided);
  operators.add("permute", transpose);
  operators.add("take_slice", slice);
  operators.add("split", split);
  operators.add("split_evenly", split_evenly);
  operators.add("nz_to_nd", nz_to_nd);
  operators.add("nd_to_nz", nd_to_nz);
  operators.add("concat", concat);
  operators.add("stack", stack);
  operators.add("tile", tile);
  operators.add("where", where);
  operators.add("masked_fill", masked_fill);
  operators.add("set_value", set_value);
  operators.add("gather", gather);
  operators.add("scatter_elements", scatter_elements);
  operators.add("last_tokens", last_tokens);
  operators.add("unpad_sequences", unpad_sequences);
  operators.add("pad_sequences", pad_sequences);
  operators.add("unpad_ids", unpad_ids,
                kFields<&UnpaddedIds::ids, &UnpaddedIds::offsets, &UnpaddedIds::padding_offset>);
  operators.add("ragged_masks", ragged_masks);
  operators.add("reshape_and_cache", write_cache);
  operators.add("reshape_and_cache_windows", write_cache_windows);
  operators.add("paged_cache_load", read_cache);
  operators.add("kv_cache", write_layer_cache);
  operators.add("copy_blocks", copy_blocks);
  operators.add("all_to_all", all_to_all);
  operators.add("reduce_scatter", reduce_scatter);
}

}  // namespace assay::python
