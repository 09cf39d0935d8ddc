// SPDX-License-Identifier: Apache-2.0
// assay.reference: moves of data and caches.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "python/reference/bind.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/movement/caches.hpp"
#include "reference/movement/collectives.hpp"
#include "reference/movement/gather.hpp"
#include "reference/movement/sequences.hpp"
#include "reference/movement/transdata.hpp"
#include "reference/movement/views.hpp"

namespace nb = nanobind;

namespace assay::python {
namespace {

using reference::CacheLayout;
using reference::SlotWrite;
using Integers = std::vector<int64_t>;

Dims dims_of(const Integers& list) { return Dims(std::span<const int64_t>(list)); }

/// Computes without the interpreter's lock. Views of a caller's array are copied: the result must not depend on
/// whether the caller changes it.
template <typename Compute>
nb::object moved(Compute compute) {
  Result<Tensor> result = [&]() -> Result<Tensor> {
    const nb::gil_scoped_release unlocked;
    Result<Tensor> made = compute();
    if (!made || (made->owner != nullptr && made->view.is_contiguous())) return made;
    ASSAY_TRY(const reference::NewTensor copied, reference::copy_of(*made));
    return copied.tensor();
  }();
  return owned_array(value_or_raise(std::move(result)));
}

std::vector<Tensor> borrowed_list(const nb::list& raw) {
  std::vector<Tensor> tensors;
  for (const nb::handle item : raw) tensors.push_back(borrowed_tensor(item));
  return tensors;
}

nb::list moved_list(Result<std::vector<Tensor>> parts) {
  nb::list list;
  for (Tensor& part : value_or_raise(std::move(parts)))
    list.append(moved([&]() -> Result<Tensor> { return part; }));
  return list;
}

Result<CacheLayout> layout_of(const Tensor& cache, bool nz) {
  return nz ? reference::nz_cache(cache.view) : reference::plain_cache(cache.view);
}

void bind_views(nb::module_& m) {
  m.def(
      "as_strided", [](nb::handle x, const Integers& size, const Integers& stride, int64_t offset) {
        const Tensor tensor = borrowed_tensor(x);
        return moved(
            [&] { return reference::as_strided(tensor, dims_of(size), dims_of(stride), offset); });
      });
  m.def("permute", [](nb::handle x, const Integers& perm) {
    const Tensor tensor = borrowed_tensor(x);
    return moved([&] { return reference::transpose(tensor, perm); });
  });
  m.def("take_slice", [](nb::handle x, const Integers& offsets, const Integers& sizes) {
    const Tensor tensor = borrowed_tensor(x);
    return moved([&] { return reference::slice(tensor, offsets, sizes); });
  });
  m.def("split", [](nb::handle x, int64_t axis, const Integers& sizes) {
    return moved_list(reference::split(borrowed_tensor(x), axis, sizes));
  });
  m.def("split_evenly", [](nb::handle x, int64_t axis, int64_t parts) {
    return moved_list(reference::split_evenly(borrowed_tensor(x), axis, parts));
  });
  m.def("nz_to_nd", [](nb::handle x, int64_t rows, int64_t columns) {
    const Tensor tensor = borrowed_tensor(x);
    return moved([&] { return reference::nz_to_nd(tensor, rows, columns); });
  });
  m.def("nd_to_nz", [](nb::handle x) {
    const Tensor tensor = borrowed_tensor(x);
    return moved([&] { return reference::nd_to_nz(tensor); });
  });
}

void bind_assembly(nb::module_& m) {
  m.def("concat", [](const nb::list& parts, int64_t axis) {
    const std::vector<Tensor> tensors = borrowed_list(parts);
    return moved([&] { return reference::concat(tensors, axis); });
  });
  m.def("stack", [](const nb::list& parts) {
    const std::vector<Tensor> tensors = borrowed_list(parts);
    return moved([&] { return reference::stack(tensors); });
  });
  m.def("tile", [](nb::handle x, const Integers& multiples) {
    const Tensor tensor = borrowed_tensor(x);
    return moved([&] { return reference::tile(tensor, multiples); });
  });
  m.def("where", [](nb::handle cond, nb::handle a, nb::handle b) {
    const Tensor tensors[] = {borrowed_tensor(cond), borrowed_tensor(a), borrowed_tensor(b)};
    return moved([&] { return reference::where(tensors[0], tensors[1], tensors[2]); });
  });
  m.def("masked_fill", [](nb::handle x, nb::handle mask, double value) {
    const Tensor tensors[] = {borrowed_tensor(x), borrowed_tensor(mask)};
    return moved([&] { return reference::masked_fill(tensors[0], tensors[1], value); });
  });
  m.def("set_value", [](nb::handle x, nb::handle source, const Integers& starts,
                        const Integers& ends, const Integers& strides) {
    const Tensor tensors[] = {borrowed_tensor(x), borrowed_tensor(source)};
    return moved(
        [&] { return reference::set_value(tensors[0], tensors[1], starts, ends, strides); });
  });
  m.def("gather", [](nb::handle x, nb::handle indices, int64_t axis, int64_t batch_dims) {
    const Tensor tensors[] = {borrowed_tensor(x), borrowed_tensor(indices)};
    return moved([&] { return reference::gather(tensors[0], tensors[1], axis, batch_dims); });
  });
  m.def("scatter_elements",
        [](nb::handle x, nb::handle indices, nb::handle updates, int64_t axis, bool add) {
          const Tensor tensors[] = {borrowed_tensor(x), borrowed_tensor(indices),
                                    borrowed_tensor(updates)};
          return moved([&] {
            return reference::scatter_elements(tensors[0], tensors[1], tensors[2], axis, add);
          });
        });
}

void bind_sequences(nb::module_& m) {
  m.def("last_tokens", [](nb::handle hidden, const Integers& lengths) {
    const Tensor tensor = borrowed_tensor(hidden);
    return moved([&] { return reference::last_tokens(tensor, lengths); });
  });
  m.def("unpad_sequences", [](nb::handle x, const Integers& lengths) {
    const Tensor tensor = borrowed_tensor(x);
    return moved([&] { return reference::unpad_sequences(tensor, lengths); });
  });
  m.def("pad_sequences", [](nb::handle x, const Integers& lengths, int64_t padded) {
    const Tensor tensor = borrowed_tensor(x);
    return moved([&] { return reference::pad_sequences(tensor, lengths, padded); });
  });
  m.def("unpad_ids", [](nb::handle ids, const Integers& cum_offsets, const Integers& lengths) {
    const Tensor tensor = borrowed_tensor(ids);
    const reference::UnpaddedIds done =
        value_or_raise(reference::unpad_ids(tensor, cum_offsets, lengths));
    return nb::make_tuple(owned_array(done.ids), owned_array(done.offsets),
                          owned_array(done.padding_offset));
  });
  m.def("ragged_masks", [](nb::handle mask, int64_t heads, const Integers& lengths) {
    const Tensor tensor = borrowed_tensor(mask);
    return moved([&] { return reference::ragged_masks(tensor, heads, lengths); });
  });
}

void bind_caches(nb::module_& m) {
  m.def("write_cache", [](nb::handle cache, nb::handle tokens, const Integers& slots, bool nz) {
    const Tensor target = borrowed_tensor(cache);
    const Tensor rows = borrowed_tensor(tokens);
    return moved([&]() -> Result<Tensor> {
      ASSAY_TRY(const CacheLayout layout, layout_of(target, nz));
      return reference::write_slots(target, layout, rows, reference::token_writes(slots));
    });
  });
  m.def("write_cache_windows", [](nb::handle cache, nb::handle tokens, const Integers& slots,
                                  const Integers& wins, const Integers& lengths,
                                  const std::optional<Integers>& offset_index) {
    const Tensor target = borrowed_tensor(cache);
    const Tensor rows = borrowed_tensor(tokens);
    return moved([&]() -> Result<Tensor> {
      ASSAY_TRY(const CacheLayout layout, reference::plain_cache(target.view));
      if (rows.view.shape.size() < 2)
        return fail(Errc::Invalid, "tokens need the dimensions [tokens, heads, ...]");
      const int64_t heads = rows.view.shape[1];
      ASSAY_TRY(const std::vector<SlotWrite> writes,
                offset_index ? reference::omni_writes(slots, wins, lengths, *offset_index, heads)
                             : reference::window_writes(slots, wins, lengths, heads));
      return reference::write_slots(target, layout, rows, writes);
    });
  });
  m.def("read_cache", [](nb::handle cache, nb::handle tables, const Integers& lengths,
                         const Integers& starts, bool nz) {
    const Tensor source = borrowed_tensor(cache);
    const Tensor blocks = borrowed_tensor(tables);
    return moved([&]() -> Result<Tensor> {
      ASSAY_TRY(const CacheLayout layout, layout_of(source, nz));
      ASSAY_TRY(const Integers slots,
                reference::table_slots(blocks.view, lengths, starts, layout.block_size));
      return reference::read_slots(source, layout, slots);
    });
  });
  m.def("write_layer_cache", [](nb::handle past, nb::handle tokens, int64_t layer,
                                const Integers& token_offset, const Integers& lengths) {
    const Tensor target = borrowed_tensor(past);
    const Tensor rows = borrowed_tensor(tokens);
    return moved([&]() -> Result<Tensor> {
      ASSAY_TRY(const std::vector<SlotWrite> writes,
                reference::layer_writes(target.view, layer, token_offset, lengths));
      // Layers and batches together are the blocks of a paged cache.
      ASSAY_TRY(const Tensor blocks,
                reference::reshaped(target, reference::joined_leading_dims(target.view.shape)));
      ASSAY_TRY(const CacheLayout layout, reference::plain_cache(blocks.view));
      ASSAY_TRY(const Tensor written, reference::write_slots(blocks, layout, rows, writes));
      return reference::reshaped(written, target.view.shape);
    });
  });
  m.def("copy_blocks", [](nb::handle cache, const Integers& sources, const Integers& targets,
                          const Integers& cum_sum) {
    const Tensor tensor = borrowed_tensor(cache);
    return moved([&] { return reference::copy_blocks(tensor, sources, targets, cum_sum); });
  });
}

void bind_collectives(nb::module_& m) {
  m.def("all_to_all", [](const nb::list& ranks, int64_t rank, bool transposed) {
    const std::vector<Tensor> tensors = borrowed_list(ranks);
    return moved([&] { return reference::all_to_all(tensors, rank, transposed); });
  });
  m.def("reduce_part", [](const nb::list& ranks, int reduction, int64_t first, int64_t count) {
    const std::vector<Tensor> tensors = borrowed_list(ranks);
    return moved([&] {
      return reference::reduce_part(tensors, static_cast<reference::RankReduction>(reduction),
                                    first, count);
    });
  });
}

}  // namespace

void bind_movement(nb::module_& m) {
  bind_views(m);
  bind_assembly(m);
  bind_sequences(m);
  bind_caches(m);
  bind_collectives(m);
}

}  // namespace assay::python
