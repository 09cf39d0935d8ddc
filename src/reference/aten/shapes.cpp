// SPDX-License-Identifier: Apache-2.0
// Views are made by new shapes, strides and offsets. Only where no strides show the elements in the
// new shape are they copied.
#include "reference/aten/shapes.hpp"

#include <algorithm>
#include <string>

#include "base/bytes.hpp"
#include "reference/aten/values.hpp"
#include "reference/movement/views.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference::aten {
namespace {

/// Strides that show the elements of `view` under `shape` without moving them; nothing when there
/// are none. Axes of the view that one stride describes form a chunk; each chunk must be a product
/// of new axes.
std::optional<Dims> strides_under(const TensorView& view, const Dims& shape) {
  Dims strides;
  strides.resize(shape.size());
  const size_t rank = view.shape.size();
  size_t next = shape.size();  // new axes [next, end) have their strides
  size_t i = rank;
  while (i-- > 0) {
    const int64_t base = view.strides[i];
    int64_t chunk = view.shape[i];
    while (i > 0 && (view.shape[i - 1] == 1 || view.strides[i - 1] == chunk * base)) {
      chunk *= view.shape[i - 1];
      --i;
    }
    int64_t filled = 1;
    while (next > 0 && (filled < chunk || shape[next - 1] == 1)) {
      --next;
      strides[next] = filled * base;
      filled *= shape[next];
    }
    if (filled != chunk) return std::nullopt;
  }
  while (next > 0) {
    if (shape[--next] != 1) return std::nullopt;
    strides[next] = 1;
  }
  return strides;
}

}  // namespace

Result<Tensor> viewed(const Tensor& tensor, const Dims& shape) {
  const int64_t count = tensor.view.element_count();
  if (element_count(shape) != count)
    return fail(Errc::Invalid, tensor.view.shape, " does not have the elements of ", shape);
  if (count == 0 || tensor.view.is_contiguous()) return reshaped(tensor, shape);
  // Axes of size 1 may have any stride, which would hide that their neighbours fit.
  Tensor tight = tensor;
  tight.view.shape = {};
  tight.view.strides = {};
  for (size_t i = 0; i < tensor.view.shape.size(); ++i) {
    if (tensor.view.shape[i] == 1) continue;
    tight.view.shape.push_back(tensor.view.shape[i]);
    tight.view.strides.push_back(tensor.view.strides[i]);
  }
  const std::optional<Dims> strides = strides_under(tight.view, shape);
  if (!strides) return reshaped(tensor, shape);
  tight.view.shape = shape;
  tight.view.strides = *strides;
  return tight;
}

void insert_axis(TensorView& view, size_t at) {
  view.shape.push_back(1);
  view.strides.push_back(1);  // never followed
  for (size_t i = view.shape.size() - 1; i > at; --i) exchange_axes(view, i, i - 1);
}

Result<size_t> axis_argument(const Arguments& arguments, std::string_view name, size_t rank,
                             std::optional<int64_t> fallback) {
  ASSAY_TRY(const int64_t value, arguments.integer(name, fallback));
  return axis(arguments, value, rank);
}

Result<Range> slice_range(const Arguments& arguments, const TensorView& view, size_t at) {
  if (view.shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  const int64_t size = view.shape[at];
  ASSAY_TRY(int64_t start, arguments.integer("start", 0));
  ASSAY_TRY(int64_t end, arguments.integer("end", size));
  ASSAY_TRY(const int64_t step, arguments.integer("step", 1));
  if (step < 1) return fail(arguments.invalid("step ", step));
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = std::clamp<int64_t>(start, 0, size);
  end = std::clamp<int64_t>(end, start, size);
  return Range{start, end == start ? 0 : (end - start - 1) / step + 1, step};
}

Tensor ranged(Tensor tensor, size_t at, const Range& range) {
  TensorView& view = tensor.view;
  view.shape[at] = range.count;
  if (view.element_count() == 0) return tensor;
  view.offset_elements += range.start * view.strides[at];
  // One place needs no stride, so a step beyond all bytes does no harm.
  if (range.count > 1) view.strides[at] *= range.step;
  return tensor;
}

Result<int64_t> index_argument(const Arguments& arguments, const TensorView& view, size_t at) {
  if (view.shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  ASSAY_TRY(const int64_t index, arguments.integer("index"));
  const int64_t size = view.shape[at];
  if (index < -size || index >= size) return fail(arguments.invalid("index ", index, " of ", size));
  return index < 0 ? index + size : index;
}

Tensor selected(Tensor tensor, size_t at, int64_t index) {
  TensorView& view = tensor.view;
  const int64_t stride = view.strides[at];
  Dims shape;
  Dims strides;
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (i == at) continue;
    shape.push_back(view.shape[i]);
    strides.push_back(view.strides[i]);
  }
  view.shape = shape;
  view.strides = strides;
  if (view.element_count() != 0) view.offset_elements += index * stride;
  return tensor;
}

Result<Tensor> diagonal_view(const Arguments& arguments, const Tensor& self) {
  const TensorView& view = self.view;
  ASSAY_TRY(const int64_t offset, arguments.integer("offset", 0));
  if (view.shape.size() < 2) return fail(arguments.invalid("a tensor with fewer than two axes"));
  ASSAY_TRY(const size_t rows, axis_argument(arguments, "dim1", view.shape.size(), 0));
  ASSAY_TRY(const size_t columns, axis_argument(arguments, "dim2", view.shape.size(), 1));
  if (rows == columns) return fail(arguments.invalid("the diagonal of one axis"));
  const int64_t down =
      offset < 0 ? std::min(-std::max(offset, -view.shape[rows]), view.shape[rows]) : 0;
  const int64_t right = offset > 0 ? std::min(offset, view.shape[columns]) : 0;
  const int64_t length = std::min(view.shape[rows] - down, view.shape[columns] - right);
  Tensor result = self;
  result.view.shape = {};
  result.view.strides = {};
  for (size_t i = 0; i < view.shape.size(); ++i) {
    if (i == rows || i == columns) continue;
    result.view.shape.push_back(view.shape[i]);
    result.view.strides.push_back(view.strides[i]);
  }
  result.view.shape.push_back(length);
  result.view.strides.push_back(1);
  if (result.view.element_count() == 0) return result;
  result.view.strides[view.shape.size() - 2] = view.strides[rows] + view.strides[columns];
  result.view.offset_elements += down * view.strides[rows] + right * view.strides[columns];
  return result;
}

Result<Tensor> strided(const Arguments& arguments, const Tensor& self) {
  ASSAY_TRY(const std::vector<int64_t> size, arguments.integers("size"));
  ASSAY_TRY(const std::vector<int64_t> stride, arguments.integers("stride"));
  ASSAY_TRY(const int64_t offset, arguments.integer("storage_offset", 0));
  if (!self.view.is_contiguous())
    return fail(arguments.unsupported("an operand that is itself strided"));
  ASSAY_TRY(Tensor view, reference::as_strided(self, Dims(std::span<const int64_t>(size)),
                                               Dims(std::span<const int64_t>(stride)), offset));
  return view;
}

}  // namespace assay::reference::aten
