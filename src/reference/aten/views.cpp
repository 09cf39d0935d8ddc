// SPDX-License-Identifier: Apache-2.0
// Views: results share the bytes of the operand; only shape, strides and offset are new.
#include "reference/movement/views.hpp"

#include <algorithm>
#include <string>

#include "reference/aten/shapes.hpp"
#include "reference/aten/values.hpp"

namespace assay::reference::aten {
namespace {

// ---- Sizes from elsewhere -----------------------------------------------------------------------

/// The one size given as -1 filled in.
Result<Dims> inferred(const Arguments& arguments, std::span<const int64_t> sizes, int64_t count) {
  Dims shape(sizes);
  int64_t known = 1;
  std::optional<size_t> open;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && !open) {
      open = i;
    } else if (shape[i] < 0 || mul_overflows(known, shape[i], &known)) {
      return fail(arguments.invalid("shape ", sizes));
    }
  }
  if (open) {
    if (known == 0 || count % known != 0)
      return fail(arguments.invalid("shape ", sizes, " for ", count, " elements"));
    shape[*open] = count / known;
  }
  return shape;
}

Result<Values> shaped(const Arguments& arguments, const Tensor& self,
                      std::span<const int64_t> sizes) {
  ASSAY_TRY(const Dims shape, inferred(arguments, sizes, self.view.element_count()));
  return single(viewed(self, shape));
}

// ---- Shapes -------------------------------------------------------------------------------------

Result<Values> view(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> sizes, arguments.integers("size"));
  return shaped(arguments, self, sizes);
}

Result<Values> reshape(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> sizes, arguments.integers("shape"));
  return shaped(arguments, self, sizes);
}

Result<Values> view_as(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor other, arguments.tensor("other"));
  return shaped(arguments, self, other.view.shape.span());
}

/// The same bytes as elements of another type, along the last axis.
Result<Values> view_dtype(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::optional<DType> dtype, arguments.dtype());
  if (!dtype) return fail(arguments.invalid("argument dtype is missing"));
  const int64_t from = info(self.view.dtype).element_bits;
  const int64_t to = info(*dtype).element_bits;
  if (from < 8 || to < 8) return fail(arguments.unsupported("packed types"));
  if (from != to) {
    ASSAY_TRY(self, contiguous(self));
    const size_t rank = self.view.shape.size();
    if (rank == 0 || self.view.shape[rank - 1] * from % to != 0 ||
        self.view.offset_elements * from % to != 0)
      return fail(
          arguments.invalid(self.view.shape, " elements of ", self.view.dtype, " as ", *dtype));
    self.view.shape[rank - 1] = self.view.shape[rank - 1] * from / to;
    self.view.strides = contiguous_strides(self.view.shape);
    self.view.offset_elements = self.view.offset_elements * from / to;
  }
  self.view.dtype = *dtype;
  return single(std::move(self));
}

Result<Values> flatten(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  const Dims& shape = self.view.shape;
  ASSAY_TRY(const int64_t start, arguments.integer("start_dim", 0));
  ASSAY_TRY(const int64_t end, arguments.integer("end_dim", -1));
  ASSAY_TRY(const size_t first, axis(arguments, start, shape.size()));
  ASSAY_TRY(const size_t last, axis(arguments, end, shape.size()));
  if (first > last) return fail(arguments.invalid("start_dim lies behind end_dim"));
  Dims flat;
  for (size_t i = 0; i < first; ++i) flat.push_back(shape[i]);
  const size_t joined = shape.empty() ? 0 : last + 1 - first;
  const std::optional<int64_t> count = element_count(shape.span().subspan(first, joined));
  if (!count) return fail(arguments.invalid("a shape that overflows"));
  flat.push_back(*count);
  for (size_t i = last + 1; i < shape.size(); ++i) flat.push_back(shape[i]);
  return single(viewed(self, flat));
}

Result<Values> ravel(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  return single(viewed(self, {self.view.element_count()}));
}

Result<Values> unflatten(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim"));
  ASSAY_TRY(const std::vector<int64_t> sizes, arguments.integers("sizes"));
  const Dims& shape = self.view.shape;
  if (shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  ASSAY_TRY(const size_t at, axis(arguments, dim, shape.size()));
  ASSAY_TRY(const Dims parts, inferred(arguments, sizes, shape[at]));
  if (element_count(parts) != shape[at]) return fail(arguments.invalid(parts, " for ", shape[at]));
  Dims split;
  for (size_t i = 0; i < at; ++i) split.push_back(shape[i]);
  for (const int64_t part : parts) split.push_back(part);
  for (size_t i = at + 1; i < shape.size(); ++i) split.push_back(shape[i]);
  return single(viewed(self, split));
}

// ---- Order of axes ------------------------------------------------------------------------------

Result<Values> permute(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> dims, arguments.integers("dims"));
  return single(reference::transpose(self, dims));
}

Result<Values> swapped(const Arguments& arguments, std::string_view first,
                       std::string_view second) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t dim0, arguments.integer(first));
  ASSAY_TRY(const int64_t dim1, arguments.integer(second));
  const size_t rank = self.view.shape.size();
  ASSAY_TRY(const size_t a, axis(arguments, dim0, rank));
  ASSAY_TRY(const size_t b, axis(arguments, dim1, rank));
  if (rank != 0) exchange_axes(self.view, a, b);
  return single(std::move(self));
}

Result<Values> transpose(const Arguments& arguments, const EvaluateOptions&) {
  return swapped(arguments, "dim0", "dim1");
}
Result<Values> swapaxes(const Arguments& arguments, const EvaluateOptions&) {
  return swapped(arguments, "axis0", "axis1");
}

Result<Values> t(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  const size_t rank = self.view.shape.size();
  if (rank > 2) return fail(arguments.invalid("a tensor with more than two dimensions"));
  if (rank == 2) exchange_axes(self.view, 0, 1);
  return single(std::move(self));
}

/// The last two axes exchanged.
Result<Values> matrix_transpose(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  const size_t rank = self.view.shape.size();
  if (is_complex(self.view.dtype)) return fail(arguments.unsupported("complex numbers"));
  if (rank == 1) return fail(arguments.invalid("a tensor with one dimension"));
  if (rank >= 2) exchange_axes(self.view, rank - 2, rank - 1);
  return single(std::move(self));
}

Result<Values> reversed_axes(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  const size_t rank = self.view.shape.size();
  for (size_t i = 0; i < rank / 2; ++i) exchange_axes(self.view, i, rank - 1 - i);
  return single(std::move(self));
}

Result<Values> movedim(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> sources, arguments.integers("source"));
  ASSAY_TRY(const std::vector<int64_t> targets, arguments.integers("destination"));
  const size_t rank = self.view.shape.size();
  if (sources.size() != targets.size())
    return fail(arguments.invalid("source and destination differ in length"));
  if (rank == 0) return single(self);
  std::vector<int64_t> order(rank, -1);
  std::vector<bool> moved(rank, false);
  for (size_t i = 0; i < sources.size(); ++i) {
    ASSAY_TRY(const size_t from, axis(arguments, sources[i], rank));
    ASSAY_TRY(const size_t to, axis(arguments, targets[i], rank));
    if (moved[from] || order[to] != -1) return fail(arguments.invalid("an axis stands twice"));
    moved[from] = true;
    order[to] = static_cast<int64_t>(from);
  }
  size_t next = 0;
  for (int64_t& place : order) {
    if (place != -1) continue;
    while (moved[next]) ++next;
    place = static_cast<int64_t>(next++);
  }
  return single(reference::transpose(self, order));
}

// ---- Axes of size 1 -----------------------------------------------------------------------------

Result<Values> unsqueeze(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim"));
  ASSAY_TRY(const size_t at, axis(arguments, dim, self.view.shape.size() + 1));
  insert_axis(self.view, at);
  return single(std::move(self));
}

Result<Values> squeeze(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  const size_t rank = self.view.shape.size();
  std::vector<bool> chosen(rank, !arguments.has("dim"));
  if (arguments.has("dim")) {
    ASSAY_TRY(const std::vector<int64_t> dims, arguments.integers("dim"));
    for (const int64_t dim : dims) {
      ASSAY_TRY(const size_t at, axis(arguments, dim, rank));
      if (at < rank) chosen[at] = true;
    }
  }
  Dims shape;
  Dims strides;
  for (size_t i = 0; i < rank; ++i) {
    if (chosen[i] && self.view.shape[i] == 1) continue;
    shape.push_back(self.view.shape[i]);
    strides.push_back(self.view.strides[i]);
  }
  self.view.shape = shape;
  self.view.strides = strides;
  return single(std::move(self));
}

Result<Values> expanded(const Arguments& arguments, const Tensor& self, Dims shape) {
  const size_t rank = self.view.shape.size();
  if (shape.size() < rank) return fail(arguments.invalid("fewer sizes than dimensions"));
  const size_t added = shape.size() - rank;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] != -1) continue;
    if (i < added) return fail(arguments.invalid("a new dimension of size -1"));
    shape[i] = self.view.shape[i - added];
  }
  return single(broadcast_to(self, shape));
}

Result<Values> expand(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> sizes, arguments.integers("size"));
  return expanded(arguments, self, Dims(std::span<const int64_t>(sizes)));
}

Result<Values> expand_as(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor other, arguments.tensor("other"));
  return expanded(arguments, self, other.view.shape);
}

Result<Values> broadcast_tensors(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Values tensors, arguments.tensors("tensors"));
  Dims shape;
  for (const Tensor& tensor : tensors) {
    ASSAY_TRY(const Dims joined, reference::broadcast_shape(shape, tensor.view.shape));
    shape = joined;
  }
  Values results;
  for (const Tensor& tensor : tensors) {
    ASSAY_TRY(Tensor whole, broadcast_to(tensor, shape));
    results.push_back(std::move(whole));
  }
  return results;
}

/// Tensor i along axis i of the grid of all; with "xy" the first two stand along each other's axis.
Result<Values> meshgrid(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Values tensors, arguments.tensors("tensors"));
  ASSAY_TRY(const std::string indexing, arguments.text("indexing", "ij"));
  const bool exchange = indexing == "xy" && tensors.size() >= 2;
  if (exchange) std::swap(tensors[0], tensors[1]);
  Dims shape;
  for (const Tensor& tensor : tensors) {
    if (tensor.view.shape.size() > 1)
      return fail(arguments.invalid("a tensor with more than one dimension"));
    shape.push_back(tensor.view.element_count());
  }
  Values results;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Dims alone = shape;
    for (size_t j = 0; j < alone.size(); ++j) alone[j] = i == j ? shape[j] : 1;
    ASSAY_TRY(const Tensor line, viewed(tensors[i], alone));
    ASSAY_TRY(Tensor whole, broadcast_to(line, shape));
    results.push_back(std::move(whole));
  }
  if (exchange) std::swap(results[0], results[1]);
  return results;
}

// ---- Parts --------------------------------------------------------------------------------------

Result<Values> slice(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), 0));
  ASSAY_TRY(const Range range, slice_range(arguments, self.view, at));
  return single(ranged(std::move(self), at, range));
}

Result<Values> select(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), {}));
  ASSAY_TRY(const int64_t index, index_argument(arguments, self.view, at));
  return single(selected(std::move(self), at, index));
}

Result<Values> narrow(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), {}));
  ASSAY_TRY(int64_t start, arguments.integer("start"));
  ASSAY_TRY(const int64_t length, arguments.integer("length"));
  if (self.view.shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  const int64_t size = self.view.shape[at];
  if (start < 0) start += size;
  if (start < 0 || length < 0 || start > size || length > size - start)
    return fail(arguments.invalid("rows from ", start, ", ", length, " of ", size));
  return single(ranged(std::move(self), at, {start, length, 1}));
}

/// Parts of the given sizes, which must add up.
Result<Values> parts(const Arguments& arguments, const Tensor& self, size_t at,
                     std::span<const int64_t> sizes) {
  if (self.view.shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  Values results;
  int64_t start = 0;
  for (const int64_t size : sizes) {
    if (size < 0 || size > self.view.shape[at] - start)
      return fail(arguments.invalid("parts ", sizes, " of ", self.view.shape[at]));
    results.push_back(ranged(self, at, {start, size, 1}));
    start += size;
  }
  if (start != self.view.shape[at])
    return fail(arguments.invalid("parts ", sizes, " of ", self.view.shape[at]));
  return results;
}

/// Parts of `size`, the last may be smaller.
Result<Values> equal_parts(const Arguments& arguments, const Tensor& self, size_t at,
                           int64_t size) {
  if (self.view.shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  const int64_t extent = self.view.shape[at];
  if (size < 0 || (size == 0 && extent != 0)) return fail(arguments.invalid("parts of ", size));
  if (extent == 0) return Values{self};
  Values results;
  for (int64_t start = 0; start < extent; start += size)
    results.push_back(ranged(self, at, {start, std::min(size, extent - start), 1}));
  return results;
}

Result<Values> split(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), 0));
  ASSAY_TRY(const int64_t size, arguments.integer("split_size"));
  return equal_parts(arguments, self, at, size);
}

Result<Values> split_with_sizes(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), 0));
  // split.sizes calls the list after the one size that split.Tensor takes.
  const std::string_view list = arguments.has("split_sizes") ? "split_sizes" : "split_size";
  ASSAY_TRY(const std::vector<int64_t> sizes, arguments.integers(list));
  return parts(arguments, self, at, sizes);
}

Result<Values> chunk(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), 0));
  ASSAY_TRY(const int64_t chunks, arguments.integer("chunks"));
  if (chunks < 1) return fail(arguments.invalid(chunks, " chunks"));
  if (self.view.shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  const int64_t extent = self.view.shape[at];
  if (extent == 0) {
    ASSAY_TRY_STATUS(checked_count({chunks}));
    return Values(static_cast<size_t>(chunks), self);
  }
  return equal_parts(arguments, self, at, (extent - 1) / chunks + 1);
}

Result<Values> tensor_split(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), 0));
  if (self.view.shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  const int64_t extent = self.view.shape[at];
  Values results;
  if (arguments.has("sections")) {
    ASSAY_TRY(const int64_t sections, arguments.integer("sections"));
    if (sections < 1) return fail(arguments.invalid(sections, " sections"));
    ASSAY_TRY_STATUS(checked_count({sections}));
    int64_t start = 0;
    for (int64_t i = 0; i < sections; ++i) {
      const int64_t size = extent / sections + (i < extent % sections ? 1 : 0);
      results.push_back(ranged(self, at, {start, size, 1}));
      start += size;
    }
    return results;
  }
  ASSAY_TRY(std::vector<int64_t> ends, arguments.integers("indices"));
  ends.push_back(extent);
  int64_t start = 0;
  for (const int64_t end : ends) {
    const int64_t from = std::clamp<int64_t>(start < 0 ? start + extent : start, 0, extent);
    const int64_t to = std::clamp<int64_t>(end < 0 ? end + extent : end, from, extent);
    results.push_back(ranged(self, at, {from, to - from, 1}));
    start = end;
  }
  return results;
}

Result<Values> unbind(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), 0));
  if (self.view.shape.empty()) return fail(arguments.invalid("a tensor of rank 0"));
  Values results;
  for (int64_t i = 0; i < self.view.shape[at]; ++i) results.push_back(selected(self, at, i));
  return results;
}

// ---- Others -------------------------------------------------------------------------------------

Result<Values> same(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  return single(std::move(self));
}

/// conj(), real() and adjoint() do nothing to real numbers.
Result<Values> same_if_real(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  if (is_complex(self.view.dtype)) return fail(arguments.unsupported("complex numbers"));
  return single(std::move(self));
}

Result<Values> diagonal(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(self, diagonal_view(arguments, self));
  return single(std::move(self));
}

/// Windows along an axis: [..., windows, ..., size].
Result<Values> unfold(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dimension", self.view.shape.size(), {}));
  ASSAY_TRY(const int64_t size, arguments.integer("size"));
  ASSAY_TRY(const int64_t step, arguments.integer("step"));
  if (self.view.shape.empty()) insert_axis(self.view, 0);
  Dims& shape = self.view.shape;
  Dims& strides = self.view.strides;
  if (size < 0 || step < 1 || size > shape[at])
    return fail(arguments.invalid("windows of ", size, " every ", step, " of ", shape[at]));
  const int64_t stride = strides[at];
  const bool empty = self.view.element_count() == 0;
  shape[at] = (shape[at] - size) / step + 1;
  // One window needs no stride, so a step beyond all bytes does no harm.
  strides[at] = shape[at] > 1 && !empty ? stride * step : 1;
  shape.push_back(size);
  strides.push_back(stride);
  return single(std::move(self));
}

Result<Values> as_strided(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  return single(strided(arguments, self));
}

constexpr Overloads kViews[] = {
    {"_reshape_alias.default _unsafe_view.default view.default", OperatorClass::Move, view, true},
    {"adjoint.default mT.default", OperatorClass::Move, matrix_transpose, true},
    {"alias.default detach.default lift_fresh.default", OperatorClass::Move, same, true},
    {"as_strided.default", OperatorClass::Move, as_strided, true},
    {"broadcast_tensors.default", OperatorClass::Move, broadcast_tensors, true},
    {"chunk.default", OperatorClass::Move, chunk, true},
    {"conj.default real.default", OperatorClass::Move, same_if_real, true},
    {"diagonal.default", OperatorClass::Move, diagonal, true},
    {"expand.default", OperatorClass::Move, expand, true},
    {"expand_as.default", OperatorClass::Move, expand_as, true},
    {"flatten.using_ints", OperatorClass::Move, flatten, true},
    {"meshgrid.default", OperatorClass::Move, meshgrid, true},
    {"movedim.int", OperatorClass::Move, movedim, true},
    {"narrow.default", OperatorClass::Move, narrow, true},
    {"numpy_T.default", OperatorClass::Move, reversed_axes, true},
    {"permute.default", OperatorClass::Move, permute, true},
    {"ravel.default", OperatorClass::Move, ravel, true},
    {"reshape.default", OperatorClass::Move, reshape, true},
    {"select.int", OperatorClass::Move, select, true},
    {"slice.Tensor", OperatorClass::Move, slice, true},
    {"split.Tensor", OperatorClass::Move, split, true},
    {"split_with_sizes.default", OperatorClass::Move, split_with_sizes, true},
    {"squeeze.default", OperatorClass::Move, squeeze, true},
    {"swapaxes.default", OperatorClass::Move, swapaxes, true},
    {"t.default", OperatorClass::Move, t, true},
    {"tensor_split.sections", OperatorClass::Move, tensor_split, true},
    {"transpose.int", OperatorClass::Move, transpose, true},
    {"unbind.int", OperatorClass::Move, unbind, true},
    {"unflatten.int", OperatorClass::Move, unflatten, true},
    {"unfold.default", OperatorClass::Move, unfold, true},
    {"unsqueeze.default", OperatorClass::Move, unsqueeze, true},
    {"view.dtype", OperatorClass::Move, view_dtype, true},
    {"view_as.default", OperatorClass::Move, view_as, true},
};

}  // namespace

std::span<const Overloads> view_overloads() { return kViews; }

}  // namespace assay::reference::aten
