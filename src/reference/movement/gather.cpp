// SPDX-License-Identifier: Apache-2.0
// gather() checks all indices, then copies whole rows behind the axis. scatter_elements() walks
// through indices, updates and x together and moves, or adds, one element for each index.
#include "reference/movement/gather.hpp"

#include <cstring>

#include "reference/movement/bytes.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

int64_t product(const Dims& shape, size_t first, size_t last) {
  int64_t result = 1;
  for (size_t i = first; i < last; ++i) result *= shape[i];
  return result;
}

tl::unexpected<Error> outside(int64_t index, int64_t place, int64_t size) {
  return fail(Errc::Invalid, "index ", index, " at place ", place, " lies outside [0, ", size, ")");
}

/// Calls use(place of the index, place in updates, place in x) for every element of indices.
template <typename Use>
Status for_each_target(const Whole& indices, const Dims& x_shape, const Dims& updates_shape,
                       size_t axis, Use use) {
  const size_t rank = x_shape.size();
  const Dims x_strides = contiguous_strides(x_shape);
  const Dims updates_strides = contiguous_strides(updates_shape);
  Dims at;
  at.resize(rank);
  int64_t in_x = 0;  // along all dimensions but the axis
  int64_t in_updates = 0;
  for (int64_t i = 0; i < indices.size(); ++i) {
    const int64_t index = indices.data()[i];
    if (index < 0 || index >= x_shape[axis]) return outside(index, i, x_shape[axis]);
    use(in_updates, in_x + index * x_strides[axis]);
    for (size_t d = rank; d-- > 0;) {
      const int64_t step = d == axis ? 0 : x_strides[d];
      in_x += step;
      in_updates += updates_strides[d];
      if (++at[d] < indices.shape[d]) break;
      in_x -= indices.shape[d] * step;
      in_updates -= indices.shape[d] * updates_strides[d];
      at[d] = 0;
    }
  }
  return {};
}

}  // namespace

Result<Tensor> gather(const Tensor& x, const Tensor& indices, int64_t axis, int64_t batch_dims) {
  const Dims& shape = x.view.shape;
  const Dims& index_shape = indices.view.shape;
  ASSAY_TRY(const size_t dim, axis_of(axis, shape.size()));
  if (batch_dims < 0) batch_dims += static_cast<int64_t>(index_shape.size());
  const auto batches = static_cast<size_t>(batch_dims);
  bool fits = batch_dims >= 0 && batches <= dim && batches <= index_shape.size();
  for (size_t i = 0; fits && i < batches; ++i) fits = shape[i] == index_shape[i];
  if (!fits)
    return fail(Errc::Invalid, "x ", x.view.shape, " and indices ", indices.view.shape,
                " do not share ", batch_dims, " leading dimensions before axis ", dim);
  ASSAY_TRY(const Whole numbers, whole(indices.view));
  ASSAY_TRY(const Tensor table, contiguous(x));

  Dims out_shape;
  for (size_t i = 0; i < dim; ++i) out_shape.push_back(shape[i]);
  for (size_t i = batches; i < index_shape.size(); ++i) out_shape.push_back(index_shape[i]);
  for (size_t i = dim + 1; i < shape.size(); ++i) out_shape.push_back(shape[i]);
  ASSAY_TRY(const NewTensor made, new_tensor(x.view.dtype, out_shape));

  const int64_t size = shape[dim];
  for (int64_t i = 0; i < numbers.size(); ++i) {
    const int64_t index = numbers.data()[i];
    if (index < 0 || index >= size) return outside(index, i, size);
  }
  if (made.bytes->values.empty()) return made.tensor();
  const int64_t batch_count = product(shape, 0, batches);
  const int64_t outer = product(shape, batches, dim);
  const int64_t row = product(shape, dim + 1, shape.size()) * made.element_bytes;
  const int64_t picks = product(index_shape, batches, index_shape.size());
  const std::byte* source =
      table.view.storage.data() + table.view.offset_elements * made.element_bytes;
  std::byte* target = made.data();
  for (int64_t batch = 0; batch < batch_count; ++batch) {
    const int64_t* picked = numbers.data() + batch * picks;
    for (int64_t i = 0; i < outer; ++i, source += size * row) {
      for (int64_t j = 0; j < picks; ++j, target += row)
        std::memcpy(target, source + picked[j] * row, static_cast<size_t>(row));
    }
  }
  return made.tensor();
}

Result<Tensor> scatter_elements(const Tensor& x, const Tensor& indices, const Tensor& updates,
                                int64_t axis, bool add) {
  const Dims& shape = x.view.shape;
  ASSAY_TRY(const size_t dim, axis_of(axis, shape.size()));
  const Dims& index_shape = indices.view.shape;
  bool fits = index_shape.size() == shape.size() && updates.view.shape.size() == shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = index_shape[i] <= updates.view.shape[i] && (i == dim || index_shape[i] <= shape[i]);
  if (!fits)
    return fail(Errc::Invalid, "indices ", indices.view.shape, " and updates ", updates.view.shape,
                " do not fit x ", x.view.shape, " along axis ", dim);
  if (x.view.dtype != updates.view.dtype)
    return fail(Errc::Invalid, "updates of ", updates.view.dtype, " cannot go into ", x.view.dtype);
  ASSAY_TRY(const Whole numbers, whole(indices.view));
  const auto scatter = [&](auto use) {
    return for_each_target(numbers, shape, updates.view.shape, dim, use);
  };
  if (!add) {
    ASSAY_TRY(const NewTensor made, copy_of(x));
    ASSAY_TRY(const Tensor source, contiguous(updates));
    const int64_t size = made.element_bytes;
    const std::byte* from = source.view.storage.data() + source.view.offset_elements * size;
    ASSAY_TRY_STATUS(scatter([&](int64_t update, int64_t place) {
      std::memcpy(made.data() + place * size, from + update * size, static_cast<size_t>(size));
    }));
    return made.tensor();
  }
  if (is_integer(x.view.dtype)) {
    ASSAY_TRY(Whole sums, whole(x.view));
    ASSAY_TRY(const Whole values, whole(updates.view));
    ASSAY_TRY_STATUS(scatter([&](int64_t update, int64_t place) {
      // Modulo 2^64, as integers of every device wrap.
      sums.data()[place] = wrapping_add(sums.data()[place], values.data()[update]);
    }));
    return to_tensor(std::move(sums));
  }
  ASSAY_TRY(Wide sums, widen(x.view));
  ASSAY_TRY(const Wide values, widen(updates.view));
  ASSAY_TRY_STATUS(
      scatter([&](int64_t update, int64_t place) { sums.data()[place] += values.data()[update]; }));
  return to_tensor(std::move(sums));
}

}  // namespace assay::reference
