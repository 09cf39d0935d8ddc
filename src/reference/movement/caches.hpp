// SPDX-License-Identifier: Apache-2.0
// Key and value caches: which row of new keys goes into which slot, and the rows in a cache. Rows
// are moved as bytes, so caches of any type and of gigabytes cost one copy.
#pragma once
#include <span>
#include <vector>

#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// Where a token of a paged cache lies. Slot s is token s % block_size of block s / block_size.
struct CacheLayout {
  int64_t blocks = 0;
  int64_t block_size = 0;      // tokens of a block
  int64_t row_elements = 0;    // of one token
  int64_t piece_elements = 0;  // consecutive elements of a row; row_elements in plain caches
};
/// [blocks, block size, ...]: a row is all that follows.
/// errors  Invalid (fewer than two dimensions)
[[nodiscard]] Result<CacheLayout> plain_cache(const TensorView& cache);
/// FRACTAL_NZ [blocks, row / c0, block size, c0].
/// errors  Invalid (not four dimensions)
[[nodiscard]] Result<CacheLayout> nz_cache(const TensorView& cache);

/// Row `row` of the new tokens goes into slot `slot`.
struct SlotWrite {
  int64_t slot = 0;
  int64_t row = 0;
};
/// Token t goes into slots[t]; negative slots take nothing.
[[nodiscard]] std::vector<SlotWrite> token_writes(std::span<const int64_t> slots);

/// Each head keeps its own window of a sequence (a cache with one head). Entry i of slots and wins
/// belongs to sequence i / heads and head i % heads: the last wins[i] tokens of the sequence go
/// into slots[i], slots[i] + 1, ... Rows count (token, head) pairs: row = token * heads + head.
///
/// lengths  tokens of each sequence
/// errors   Invalid (numbers of entries, a window longer than all tokens up to there, heads below
///          1)
[[nodiscard]] Result<std::vector<SlotWrite>> window_writes(std::span<const int64_t> slots,
                                                           std::span<const int64_t> wins,
                                                           std::span<const int64_t> lengths,
                                                           int64_t heads);
/// As window_writes(), but a head keeps all tokens of its sequence except wins[i] of them from
/// offset_index[i] on; offset_index[i] = -1 keeps all.
/// errors   Invalid (numbers of entries, negative windows, offsets below -1)
[[nodiscard]] Result<std::vector<SlotWrite>> omni_writes(std::span<const int64_t> slots,
                                                         std::span<const int64_t> wins,
                                                         std::span<const int64_t> lengths,
                                                         std::span<const int64_t> offset_index,
                                                         int64_t heads);
/// Only the last write of each slot, by slot.
[[nodiscard]] std::vector<SlotWrite> last_writes(std::vector<SlotWrite> writes);

/// A copy of the cache with the writes done in order.
///
/// rows    [..., row elements] in C order: element count / row_elements rows
/// errors  Invalid (types, slots outside the cache, rows outside `rows`) | Unsupported (packed
///         types)
[[nodiscard]] Result<Tensor> write_slots(const Tensor& cache, const CacheLayout& layout,
                                         const Tensor& rows, std::span<const SlotWrite> writes);
/// The tokens in the given slots: [slots, row elements].
/// errors  Invalid (slots outside the cache) | Unsupported (packed types)
[[nodiscard]] Result<Tensor> read_slots(const Tensor& cache, const CacheLayout& layout,
                                        std::span<const int64_t> slots);
/// The written rows alone, in the order of the writes: [writes, row_elements].
/// errors  Invalid (rows outside `rows`) | Unsupported (packed types)
[[nodiscard]] Result<Tensor> pick_rows(const Tensor& rows, int64_t row_elements,
                                       std::span<const SlotWrite> writes);

/// Slots of the tokens that block tables list: token j of sequence b lies in block tables[b][start
/// / block_size + j / block_size] at j % block_size. Negative blocks are left out.
///
/// tables   [sequences, blocks of a sequence]
/// lengths  tokens of each sequence
/// starts   first token, a multiple of the block size; empty: 0
/// errors   Invalid (numbers of entries, tables too short)
[[nodiscard]] Result<std::vector<int64_t>> table_slots(const TensorView& tables,
                                                       std::span<const int64_t> lengths,
                                                       std::span<const int64_t> starts,
                                                       int64_t block_size);

/// Writes of new keys or values into a cache [layers, batch, positions, hidden], seen as layers *
/// batch blocks: token j of sequence b goes to position token_offset[b] - lengths[b] + j of layer
/// `layer`.
/// errors  Invalid (layer, numbers of entries, positions outside the cache)
[[nodiscard]] Result<std::vector<SlotWrite>> layer_writes(const TensorView& past, int64_t layer,
                                                          std::span<const int64_t> token_offset,
                                                          std::span<const int64_t> lengths);

/// [layers * batch, positions, ...]: such a cache as a paged one. Precondition: a shape that
/// layer_writes() took.
[[nodiscard]] Dims joined_leading_dims(const Dims& past);

/// A copy of the cache [blocks, ...] with block sources[i] copied to targets[cum_sum[i - 1]] ...
/// targets[cum_sum[i] - 1], in this order; a block that was overwritten counts as it is then.
/// errors  Invalid (blocks outside the cache, cum_sum that falls or exceeds the targets) |
///         Unsupported (packed types)
[[nodiscard]] Result<Tensor> copy_blocks(const Tensor& cache, std::span<const int64_t> sources,
                                         std::span<const int64_t> targets,
                                         std::span<const int64_t> cum_sum);

}  // namespace assay::reference
