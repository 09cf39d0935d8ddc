// SPDX-License-Identifier: Apache-2.0
// Only shapes, strides and offsets are computed, each checked against x: no view reaches behind the
// last element of x, even where the file that x was read from goes on.
#include "reference/movement/views.hpp"

#include <algorithm>

#include "reference/movement/bytes.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

/// x[..., first : first + length, ...] along one dimension. Precondition: inside the dimension.
Tensor part_of(const Tensor& x, size_t axis, int64_t first, int64_t length) {
  Tensor part = x;
  part.view.shape[axis] = length;
  // An empty part keeps its place: an offset behind the last element would address nothing.
  if (part.view.element_count() != 0) part.view.offset_elements += first * x.view.strides[axis];
  return part;
}

}  // namespace

Result<Tensor> as_strided(const Tensor& x, const Dims& size, const Dims& stride, int64_t offset) {
  ASSAY_TRY_STATUS(checked_count(size));
  ASSAY_TRY(const Tensor base, contiguous(x));
  if (offset < 0) return fail(Errc::Invalid, "offset ", offset, " is negative");
  int64_t first = 0;
  if (add_overflows(base.view.offset_elements, offset, &first))
    return fail(Errc::TooLarge, "offset ", offset, " overflows");
  // The storage ends with the last element of x, not with the file that x was read from.
  const int64_t elements = base.view.offset_elements + base.view.element_count();
  const uint64_t bytes =
      storage_bytes(base.view.dtype, static_cast<uint64_t>(elements)).value_or(0);
  const ByteSpan storage =
      base.view.storage.first(std::min<size_t>(bytes, base.view.storage.size()));
  ASSAY_TRY(const TensorView view, make_view(base.view.dtype, size, stride, storage, first));
  return Tensor{view, base.owner};
}

Result<Tensor> transpose(const Tensor& x, std::span<const int64_t> perm) {
  const size_t rank = x.view.shape.size();
  const auto no_permutation = [&] {
    return fail(Errc::Invalid, perm, " is no permutation of the dimensions of ", x.view.shape);
  };
  if (perm.size() != rank) return no_permutation();
  Tensor turned = x;
  std::vector<bool> seen(rank, false);
  for (size_t i = 0; i < rank; ++i) {
    const Result<size_t> from = axis_of(perm[i], rank);
    if (!from || seen[*from]) return no_permutation();
    seen[*from] = true;
    turned.view.shape[i] = x.view.shape[*from];
    turned.view.strides[i] = x.view.strides[*from];
  }
  return turned;
}

Result<Tensor> slice(const Tensor& x, std::span<const int64_t> offsets,
                     std::span<const int64_t> sizes) {
  const size_t rank = x.view.shape.size();
  if (offsets.size() != rank || sizes.size() != rank)
    return fail(Errc::Invalid, "a slice at ", offsets, " of size ", sizes,
                " needs as many dimensions, x has ", x.view.shape);
  Tensor part = x;
  for (size_t i = 0; i < rank; ++i) {
    const int64_t extent = x.view.shape[i];
    const int64_t first =
        offsets[i] < 0 && offsets[i] >= -extent ? offsets[i] + extent : offsets[i];
    if (first < 0 || first > extent)
      return fail(Errc::Invalid, "offset ", offsets[i], " lies outside dimension ", i, " of ",
                  x.view.shape);
    const int64_t length = sizes[i] == -1 ? extent - first : sizes[i];
    if (length < 0 || length > extent - first)
      return fail(Errc::Invalid, sizes[i], " elements from ", first, " on exceed dimension ", i,
                  " of ", x.view.shape);
    part = part_of(part, i, first, length);
  }
  return part;
}

Result<std::vector<Tensor>> split(const Tensor& x, int64_t axis, std::span<const int64_t> sizes) {
  ASSAY_TRY(const size_t dim, axis_of(axis, x.view.shape.size()));
  std::vector<Tensor> parts;
  int64_t rest = x.view.shape[dim];
  for (const int64_t size : sizes) {
    if (size < 0 || size > rest) {
      rest = -1;
      break;
    }
    parts.push_back(part_of(x, dim, x.view.shape[dim] - rest, size));
    rest -= size;
  }
  if (rest != 0)
    return fail(Errc::Invalid, "sizes ", sizes, " do not add up to dimension ", dim, " of ",
                x.view.shape);
  return parts;
}

Result<std::vector<Tensor>> split_evenly(const Tensor& x, int64_t axis, int64_t parts) {
  ASSAY_TRY(const size_t dim, axis_of(axis, x.view.shape.size()));
  if (parts < 1 || parts > 1024) return fail(Errc::Invalid, "cannot split into ", parts, " parts");
  const int64_t extent = x.view.shape[dim];
  const int64_t size = extent / parts + (extent % parts != 0 ? 1 : 0);
  std::vector<int64_t> sizes;
  for (int64_t rest = extent; static_cast<int64_t>(sizes.size()) < parts; rest -= sizes.back())
    sizes.push_back(std::min(size, rest));
  return split(x, axis, sizes);
}

Result<Tensor> broadcast_to(const Tensor& x, const Dims& shape) {
  ASSAY_TRY_STATUS(checked_count(shape));
  const size_t rank = shape.size();
  const size_t own = x.view.shape.size();
  Tensor wide = x;
  wide.view.shape = shape;
  wide.view.strides.resize(0);
  wide.view.strides.resize(rank);
  bool fits = own <= rank;
  for (size_t i = 0; fits && i < own; ++i) {
    const size_t to = rank - own + i;
    fits = x.view.shape[i] == shape[to] || x.view.shape[i] == 1;
    wide.view.strides[to] = x.view.shape[i] == 1 ? 0 : x.view.strides[i];
  }
  if (!fits) return fail(Errc::Invalid, x.view.shape, " does not broadcast to ", shape);
  return wide;
}

Result<Dims> broadcast_shape(const Dims& a, const Dims& b) {
  Dims shape;
  shape.resize(std::max(a.size(), b.size()));
  for (size_t i = 0; i < shape.size(); ++i) {
    const int64_t of_a = i < a.size() ? a[a.size() - 1 - i] : 1;
    const int64_t of_b = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (of_a != of_b && of_a != 1 && of_b != 1)
      return fail(Errc::Invalid, a, " and ", b, " do not broadcast");
    shape[shape.size() - 1 - i] = of_a == 1 ? of_b : of_a;
  }
  return shape;
}

}  // namespace assay::reference
