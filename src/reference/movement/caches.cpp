// SPDX-License-Identifier: Apache-2.0
// First which token goes into which slot (windows, block tables, offsets of layers), as lists of
// writes; then copies of these tokens, which in a FRACTAL_NZ cache lie in pieces.
//   docs/opcheck/movement.md, "Caches"
#include "reference/movement/caches.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "reference/movement/bytes.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

Result<int64_t> checked_product(const TensorView& view, size_t first) {
  int64_t product = 1;
  for (size_t i = first; i < view.shape.size(); ++i) {
    if (mul_overflows(product, view.shape[i], &product))
      return fail(Errc::TooLarge, "a cache of shape ", view.shape);
  }
  return product;
}

Status check_slot(const CacheLayout& layout, int64_t slot) {
  if (slot >= 0 && layout.block_size > 0 && slot / layout.block_size < layout.blocks) return {};
  return fail(Errc::Invalid, "slot ", slot, " lies outside a cache of ", layout.blocks,
              " blocks of ", layout.block_size, " tokens");
}

/// Calls copy(byte in the cache, byte in the row, bytes) for each piece of one token.
template <typename Copy>
void for_each_piece(const CacheLayout& layout, int64_t slot, int64_t element_bytes, Copy copy) {
  const int64_t piece = layout.piece_elements * element_bytes;
  if (piece == 0) return;
  const int64_t block_bytes = layout.block_size * layout.row_elements * element_bytes;
  int64_t in_cache = slot / layout.block_size * block_bytes + slot % layout.block_size * piece;
  const int64_t row_bytes = layout.row_elements * element_bytes;
  for (int64_t in_row = 0; in_row < row_bytes; in_row += piece) {
    copy(in_cache, in_row, static_cast<size_t>(piece));
    in_cache += layout.block_size * piece;
  }
}

const std::byte* first_byte(const Tensor& tensor, int64_t element_bytes) {
  return tensor.view.storage.data() + tensor.view.offset_elements * element_bytes;
}

Result<int64_t> row_count(const Tensor& rows, int64_t row_elements) {
  const int64_t count = rows.view.element_count();
  if (row_elements == 0 ? count != 0 : count % row_elements != 0)
    return fail(Errc::Invalid, "new tokens of shape ", rows.view.shape, " are no rows of ",
                row_elements, " elements, as the cache has them");
  // Rows without elements: there are as many as anybody asks for.
  return row_elements == 0 ? INT64_MAX : count / row_elements;
}

Status check_row(int64_t row, int64_t rows) {
  if (row >= 0 && row < rows) return {};
  return fail(Errc::Invalid, "token ", row, " is asked for, there are ", rows);
}

/// A cache cannot hold more; a hostile length would otherwise become that many writes.
constexpr int64_t kMaxWrites = int64_t{1} << 31;

Status check_counts(std::span<const int64_t> slots, std::span<const int64_t> wins,
                    std::span<const int64_t> lengths, int64_t heads) {
  const auto sequences = static_cast<int64_t>(lengths.size());
  if (heads < 1 || slots.size() != wins.size() ||
      static_cast<int64_t>(slots.size()) > sequences * heads)
    return fail(Errc::Invalid, slots.size(), " slots and ", wins.size(), " windows do not fit ",
                sequences, " sequences of ", heads, " heads");
  for (const int64_t slot : slots) {
    if (slot > std::numeric_limits<int64_t>::max() - kMaxWrites)
      return fail(Errc::Invalid, "slot ", slot, " is in no cache");
  }
  return {};
}

Result<std::vector<int64_t>> ends_of(std::span<const int64_t> lengths) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (const int64_t length : lengths) {
    if (length < 0 || length > kMaxWrites || end > kMaxWrites)
      return fail(Errc::Invalid, "a sequence of ", length, " tokens");
    end += length;
    ends.push_back(end);
  }
  return ends;
}

}  // namespace

Result<CacheLayout> plain_cache(const TensorView& cache) {
  if (cache.shape.size() < 2)
    return fail(Errc::Invalid, cache.shape, " is no cache [blocks, block size, ...]");
  ASSAY_TRY(const int64_t row, checked_product(cache, 2));
  return CacheLayout{cache.shape[0], cache.shape[1], row, row};
}

Result<CacheLayout> nz_cache(const TensorView& cache) {
  if (cache.shape.size() != 4)
    return fail(Errc::Invalid, cache.shape, " is no cache [blocks, row / c0, block size, c0]");
  int64_t row = 0;
  if (mul_overflows(cache.shape[1], cache.shape[3], &row))
    return fail(Errc::TooLarge, "a cache of shape ", cache.shape);
  return CacheLayout{cache.shape[0], cache.shape[2], row, cache.shape[3]};
}

std::vector<SlotWrite> token_writes(std::span<const int64_t> slots) {
  std::vector<SlotWrite> writes;
  for (size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] >= 0) writes.push_back({slots[t], static_cast<int64_t>(t)});
  }
  return writes;
}

Result<std::vector<SlotWrite>> window_writes(std::span<const int64_t> slots,
                                             std::span<const int64_t> wins,
                                             std::span<const int64_t> lengths, int64_t heads) {
  ASSAY_TRY_STATUS(check_counts(slots, wins, lengths, heads));
  ASSAY_TRY(const std::vector<int64_t> ends, ends_of(lengths));
  std::vector<SlotWrite> writes;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) continue;
    const auto sequence = static_cast<int64_t>(i) / heads;
    const auto head = static_cast<int64_t>(i) % heads;
    const int64_t end = ends[static_cast<size_t>(sequence)];
    if (wins[i] < 0 || wins[i] > end)
      return fail(Errc::Invalid, "window ", i, " has ", wins[i],
                  " tokens, up to its sequence there are ", end);
    for (int64_t j = 0; j < wins[i]; ++j)
      writes.push_back({slots[i] + j, (end - wins[i] + j) * heads + head});
  }
  return writes;
}

Result<std::vector<SlotWrite>> omni_writes(std::span<const int64_t> slots,
                                           std::span<const int64_t> wins,
                                           std::span<const int64_t> lengths,
                                           std::span<const int64_t> offset_index, int64_t heads) {
  ASSAY_TRY_STATUS(check_counts(slots, wins, lengths, heads));
  if (offset_index.size() != slots.size())
    return fail(Errc::Invalid, offset_index.size(), " offsets for ", slots.size(), " slots");
  ASSAY_TRY(const std::vector<int64_t> ends, ends_of(lengths));
  std::vector<SlotWrite> writes;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (slots[i] < 0) continue;
    const auto sequence = static_cast<size_t>(static_cast<int64_t>(i) / heads);
    const auto head = static_cast<int64_t>(i) % heads;
    const int64_t skipped_from = offset_index[i];
    if (wins[i] < 0 || wins[i] > kMaxWrites || skipped_from < -1 || skipped_from > kMaxWrites)
      return fail(Errc::Invalid, "window ", i, " leaves out ", wins[i], " tokens from ",
                  skipped_from, " on");
    const int64_t first = ends[sequence] - lengths[sequence];
    int64_t slot = slots[i];
    for (int64_t j = 0; j < lengths[sequence]; ++j) {
      if (skipped_from != -1 && j >= skipped_from && j < skipped_from + wins[i]) continue;
      writes.push_back({slot++, (first + j) * heads + head});
    }
  }
  return writes;
}

std::vector<SlotWrite> last_writes(std::vector<SlotWrite> writes) {
  std::stable_sort(writes.begin(), writes.end(),
                   [](const SlotWrite& a, const SlotWrite& b) { return a.slot < b.slot; });
  std::vector<SlotWrite> last;
  for (const SlotWrite& write : writes) {
    if (!last.empty() && last.back().slot == write.slot) {
      last.back() = write;
    } else {
      last.push_back(write);
    }
  }
  return last;
}

Result<Tensor> write_slots(const Tensor& cache, const CacheLayout& layout, const Tensor& rows,
                           std::span<const SlotWrite> writes) {
  if (cache.view.dtype != rows.view.dtype)
    return fail(Errc::Invalid, "new tokens are ", rows.view.dtype, ", the cache holds ",
                cache.view.dtype);
  ASSAY_TRY(const int64_t available, row_count(rows, layout.row_elements));
  for (const SlotWrite& write : writes) {
    ASSAY_TRY_STATUS(check_slot(layout, write.slot));
    ASSAY_TRY_STATUS(check_row(write.row, available));
  }
  ASSAY_TRY(const NewTensor made, copy_of(cache));
  ASSAY_TRY(const Tensor source, contiguous(rows));
  const int64_t size = made.element_bytes;
  for (const SlotWrite& write : writes) {
    const std::byte* row = first_byte(source, size) + write.row * layout.row_elements * size;
    for_each_piece(layout, write.slot, size, [&](int64_t in_cache, int64_t in_row, size_t bytes) {
      std::memcpy(made.data() + in_cache, row + in_row, bytes);
    });
  }
  return made.tensor();
}

Result<Tensor> read_slots(const Tensor& cache, const CacheLayout& layout,
                          std::span<const int64_t> slots) {
  for (const int64_t slot : slots) ASSAY_TRY_STATUS(check_slot(layout, slot));
  ASSAY_TRY(const NewTensor made, new_tensor(cache.view.dtype, {static_cast<int64_t>(slots.size()),
                                                                layout.row_elements}));
  ASSAY_TRY(const Tensor source, contiguous(cache));
  const int64_t size = made.element_bytes;
  std::byte* row = made.data();
  for (const int64_t slot : slots) {
    for_each_piece(layout, slot, size, [&](int64_t in_cache, int64_t in_row, size_t bytes) {
      std::memcpy(row + in_row, first_byte(source, size) + in_cache, bytes);
    });
    row += layout.row_elements * size;
  }
  return made.tensor();
}

Result<Tensor> pick_rows(const Tensor& rows, int64_t row_elements,
                         std::span<const SlotWrite> writes) {
  ASSAY_TRY(const int64_t available, row_count(rows, row_elements));
  for (const SlotWrite& write : writes) ASSAY_TRY_STATUS(check_row(write.row, available));
  ASSAY_TRY(const NewTensor made,
            new_tensor(rows.view.dtype, {static_cast<int64_t>(writes.size()), row_elements}));
  ASSAY_TRY(const Tensor source, contiguous(rows));
  const int64_t row_bytes = row_elements * made.element_bytes;
  std::byte* target = made.data();
  for (const SlotWrite& write : writes) {
    if (row_bytes == 0) break;
    std::memcpy(target, first_byte(source, made.element_bytes) + write.row * row_bytes,
                static_cast<size_t>(row_bytes));
    target += row_bytes;
  }
  return made.tensor();
}

Result<std::vector<int64_t>> table_slots(const TensorView& tables, std::span<const int64_t> lengths,
                                         std::span<const int64_t> starts, int64_t block_size) {
  if (tables.shape.size() != 2 || static_cast<int64_t>(lengths.size()) != tables.shape[0] ||
      (!starts.empty() && starts.size() != lengths.size()) || block_size < 1)
    return fail(Errc::Invalid, "block tables ", tables.shape, " do not fit ", lengths.size(),
                " sequences with ", starts.size(), " starts and blocks of ", block_size, " tokens");
  ASSAY_TRY(const Whole blocks, whole(tables));
  const int64_t width = tables.shape[1];
  std::vector<int64_t> slots;
  for (size_t b = 0; b < lengths.size(); ++b) {
    const int64_t first = starts.empty() ? 0 : starts[b] / block_size;
    const int64_t needed = lengths[b] / block_size + (lengths[b] % block_size != 0 ? 1 : 0);
    if (lengths[b] < 0 || first < 0 || first > width || needed > width - first)
      return fail(Errc::Invalid, "sequence ", b, " of ", lengths[b], " tokens from block ", first,
                  " on exceeds block tables ", tables.shape);
    const int64_t* table = blocks.data() + static_cast<int64_t>(b) * width + first;
    for (int64_t j = 0; j < lengths[b]; ++j) {
      const int64_t block = table[j / block_size];
      int64_t slot = 0;
      if (block < 0) continue;
      if (mul_overflows(block, block_size, &slot) || add_overflows(slot, j % block_size, &slot))
        return fail(Errc::Invalid, "block ", block, " lies outside the cache");
      slots.push_back(slot);
    }
  }
  return slots;
}

Result<std::vector<SlotWrite>> layer_writes(const TensorView& past, int64_t layer,
                                            std::span<const int64_t> token_offset,
                                            std::span<const int64_t> lengths) {
  if (past.shape.size() < 3)
    return fail(Errc::Invalid, past.shape, " is no cache [layers, batch, positions, ...]");
  const int64_t batch = past.shape[1];
  const int64_t positions = past.shape[2];
  if (layer < 0 || layer >= past.shape[0])
    return fail(Errc::Invalid, "layer ", layer, " lies outside a cache of shape ", past.shape);
  if (token_offset.size() != lengths.size() || static_cast<int64_t>(lengths.size()) > batch)
    return fail(Errc::Invalid, token_offset.size(), " offsets and ", lengths.size(),
                " lengths do not fit a cache of shape ", past.shape);
  std::vector<SlotWrite> writes;
  int64_t row = 0;
  for (size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] < 0 || token_offset[b] < lengths[b] || token_offset[b] > positions)
      return fail(Errc::Invalid, "sequence ", b, " ends at position ", token_offset[b], " with ",
                  lengths[b], " tokens, the cache has ", positions, " positions");
    const int64_t first =
        (layer * batch + static_cast<int64_t>(b)) * positions + token_offset[b] - lengths[b];
    for (int64_t j = 0; j < lengths[b]; ++j) writes.push_back({first + j, row++});
  }
  return writes;
}

Dims joined_leading_dims(const Dims& past) {
  Dims joined(past.span().subspan(1));
  joined[0] *= past[0];
  return joined;
}

Result<Tensor> copy_blocks(const Tensor& cache, std::span<const int64_t> sources,
                           std::span<const int64_t> targets, std::span<const int64_t> cum_sum) {
  if (cache.view.shape.empty() || cum_sum.size() != sources.size())
    return fail(Errc::Invalid, cum_sum.size(), " sums for ", sources.size(),
                " source blocks of a cache of shape ", cache.view.shape);
  const int64_t blocks = cache.view.shape[0];
  const auto check_block = [&](int64_t block) -> Status {
    if (block >= 0 && block < blocks) return {};
    return fail(Errc::Invalid, "block ", block, " lies outside a cache of shape ",
                cache.view.shape);
  };
  for (const int64_t block : sources) ASSAY_TRY_STATUS(check_block(block));
  for (const int64_t block : targets) ASSAY_TRY_STATUS(check_block(block));
  ASSAY_TRY(const NewTensor made, copy_of(cache));
  const int64_t block_bytes =
      blocks == 0 ? 0 : cache.view.element_count() / blocks * made.element_bytes;
  int64_t first = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (cum_sum[i] < first || cum_sum[i] > static_cast<int64_t>(targets.size()))
      return fail(Errc::Invalid, "sum ", cum_sum[i], " of source block ", i, " does not fit ",
                  targets.size(), " target blocks");
    for (; first < cum_sum[i]; ++first) {
      const int64_t target = targets[static_cast<size_t>(first)];
      if (target != sources[i] && block_bytes != 0)
        std::memcpy(made.data() + target * block_bytes, made.data() + sources[i] * block_bytes,
                    static_cast<size_t>(block_bytes));
    }
  }
  return made.tensor();
}

}  // namespace assay::reference
