// SPDX-License-Identifier: Apache-2.0
// Elements and rows picked, or written, by index.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "reference/aten/elementwise_map.hpp"
#include "reference/aten/shapes.hpp"
#include "reference/aten/values.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/movement/gather.hpp"
#include "reference/movement/views.hpp"
#include "reference/selection/indexing.hpp"

namespace assay::reference::aten {
namespace {

Tensor at_least_1d(Tensor tensor) {
  if (tensor.view.shape.empty()) insert_axis(tensor.view, 0);
  return tensor;
}

/// Calls use(flat place, place by `strides`) for every element of `shape` in C order.
template <typename Use>
void for_each_place(const Dims& shape, const Dims& strides, Use use) {
  const int64_t count = element_count(shape).value_or(0);
  Dims at;
  at.resize(shape.size());
  int64_t place = 0;
  for (int64_t i = 0; i < count; ++i) {
    use(i, place);
    for (size_t d = shape.size(); d-- > 0;) {
      place += strides[d];
      if (++at[d] < shape[d]) break;
      place -= shape[d] * strides[d];
      at[d] = 0;
    }
  }
}

Error outside(const Arguments& arguments, int64_t index, int64_t size) {
  return arguments.invalid("index ", index, " of ", size);
}

/// Integers in [0, size); negative ones count from the end where `negative` says so.
Result<Whole> indices_in(const Arguments& arguments, const TensorView& view, int64_t size,
                         bool negative) {
  ASSAY_TRY(Whole numbers, whole(view));
  for (int64_t& index : numbers.values) {
    const int64_t given = index;
    if (negative && index < 0) index += size;
    if (index < 0 || index >= size) return fail(outside(arguments, given, size));
  }
  return numbers;
}

// ---- One index, one axis ------------------------------------------------------------------------

Result<Values> index_select(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor index, arguments.tensor("index"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), {}));
  if (index.view.shape.size() > 1) return fail(arguments.invalid("an index that is no line"));
  ASSAY_TRY(Tensor rows,
            reference::gather(at_least_1d(self), at_least_1d(index), static_cast<int64_t>(at), 0));
  if (self.view.shape.empty()) return single(viewed(rows, {}));
  return single(std::move(rows));
}

Result<Values> embedding(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor weight, arguments.tensor("weight"));
  ASSAY_TRY(const Tensor indices, arguments.tensor("indices"));
  return single(reference::gather(weight, indices, 0, 0));
}

/// y[i, j, ...] = self[i, index[i, j, ...], ...], the index standing for the place along `at`.
Result<Values> gathered(const Arguments& arguments, const Tensor& self, const Tensor& index,
                        size_t at, bool negative) {
  const Dims& shape = index.view.shape;
  bool fits = shape.size() == self.view.shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = i == at || shape[i] <= self.view.shape[i];
  if (!fits)
    return fail(arguments.invalid("indices ", index.view.shape, " into ", self.view.shape));
  ASSAY_TRY(const Whole places, indices_in(arguments, index.view, self.view.shape[at], negative));
  ASSAY_TRY(const NewTensor made, new_tensor(self.view.dtype, shape));
  Dims strides = self.view.strides;
  const int64_t stride = strides[at];
  strides[at] = 0;
  const std::byte* source = self.view.storage.data();
  const auto copy = [&]<typename T>(T) {
    for_each_place(shape, strides, [&](int64_t i, int64_t place) {
      const int64_t from = self.view.offset_elements + place + places.data()[i] * stride;
      std::memcpy(made.data() + i * static_cast<int64_t>(sizeof(T)),
                  source + from * static_cast<int64_t>(sizeof(T)), sizeof(T));
    });
  };
  switch (made.element_bytes) {
    case 1:
      copy(uint8_t{});
      break;
    case 2:
      copy(uint16_t{});
      break;
    case 4:
      copy(uint32_t{});
      break;
    case 8:
      copy(uint64_t{});
      break;
    default:
      copy(std::array<uint64_t, 2>{});
  }
  return single(made.tensor());
}

Result<Values> gather(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor index, arguments.tensor("index"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", self.view.shape.size(), {}));
  if (index.view.element_count() == 0) {
    ASSAY_TRY(const NewTensor nothing, new_tensor(self.view.dtype, index.view.shape));
    return single(nothing.tensor());
  }
  ASSAY_TRY(Values values, gathered(arguments, at_least_1d(self), at_least_1d(index), at, false));
  return single(viewed(values[0], index.view.shape));
}

Result<Values> take_along_dim(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(Tensor index, arguments.tensor("indices"));
  if (!arguments.has("dim")) {
    ASSAY_TRY(self, viewed(self, {self.view.element_count()}));
    ASSAY_TRY(index, viewed(index, {index.view.element_count()}));
    return gathered(arguments, self, index, 0, false);
  }
  const size_t rank = self.view.shape.size();
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", rank, {}));
  if (rank == 0 || index.view.shape.size() != rank)
    return fail(arguments.invalid("indices of another rank"));
  // All axes but the one broadcast against each other.
  Dims self_shape = self.view.shape;
  Dims index_shape = index.view.shape;
  self_shape[at] = 1;
  index_shape[at] = 1;
  ASSAY_TRY(Dims shape, reference::broadcast_shape(self_shape, index_shape));
  (shape)[at] = self.view.shape[at];
  ASSAY_TRY(self, broadcast_to(self, shape));
  (shape)[at] = index.view.shape[at];
  ASSAY_TRY(index, broadcast_to(index, shape));
  return gathered(arguments, self, index, at, false);
}

Result<Values> take(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor index, arguments.tensor("index"));
  ASSAY_TRY(const Tensor flat, viewed(self, {self.view.element_count()}));
  ASSAY_TRY(const Tensor flat_index, viewed(index, {index.view.element_count()}));
  ASSAY_TRY(const Values values, gathered(arguments, flat, flat_index, 0, true));
  return single(viewed(values[0], index.view.shape));
}

// ---- Writes along one axis ----------------------------------------------------------------------

enum class Combine : uint8_t { Set, Sum, Product, Mean, Largest, Smallest };

Result<Combine> combine_of(const Arguments& arguments) {
  // Not moved out of the result: g++ 12 would take the comparisons for ones of undefined bytes.
  const Result<std::string> name = arguments.text("reduce", "");
  if (!name) return fail(name.error());
  if (*name == "sum" || *name == "add") return Combine::Sum;
  if (*name == "prod" || *name == "multiply") return Combine::Product;
  if (*name == "mean") return Combine::Mean;
  if (*name == "amax") return Combine::Largest;
  if (*name == "amin") return Combine::Smallest;
  return fail(arguments.unsupported("reduction ", *name));
}

double combined(Combine combine, double a, double b) {
  switch (combine) {
    case Combine::Product:
      return a * b;
    case Combine::Largest:
      return std::isnan(a) || a > b ? a : b;
    case Combine::Smallest:
      return std::isnan(a) || a < b ? a : b;
    default:
      return a + b;
  }
}
int64_t combined(Combine combine, int64_t a, int64_t b) {
  switch (combine) {
    case Combine::Product:
      return wrapping_multiply(a, b);
    case Combine::Largest:
      return std::max(a, b);
    case Combine::Smallest:
      return std::min(a, b);
    default:
      return wrapping_add(a, b);
  }
}

/// floor(sum / count), as torch's mean of integers
double mean_of(double sum, int64_t count) { return sum / static_cast<double>(count); }
int64_t mean_of(int64_t sum, int64_t count) {
  return sum / count - (sum % count != 0 && sum < 0 ? 1 : 0);
}

/// values[place] combined with update for every (place, update); what was there takes part where
/// include_self says so.
template <typename T>
void combine_all(Array<T>& values, const Whole& places, const Array<T>& updates, Combine combine,
                 bool include_self) {
  std::vector<int64_t> counts(values.values.size(), include_self ? 1 : 0);
  for (size_t i = 0; i < places.values.size(); ++i) {
    const auto place = static_cast<size_t>(places.values[i]);
    T& value = values.values[place];
    const T update = updates.values[i];
    value = counts[place]++ == 0 ? update : combined(combine, value, update);
  }
  if (combine != Combine::Mean) return;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) values.values[i] = mean_of(values.values[i], counts[i]);
  }
}

/// Flat places in a contiguous `shape` that indices along `at` stand for.
Result<Whole> places_along(const Arguments& arguments, const Dims& shape, const Tensor& index,
                           size_t at) {
  ASSAY_TRY(Whole places, indices_in(arguments, index.view, shape[at], false));
  Dims strides = contiguous_strides(shape);
  const int64_t stride = strides[at];
  strides[at] = 0;
  for_each_place(index.view.shape, strides, [&](int64_t i, int64_t place) {
    places.data()[i] = place + places.data()[i] * stride;
  });
  return places;
}

/// self with updates combined at flat places.
Result<Tensor> combined_at(const Tensor& self, const Whole& places, const Tensor& updates,
                           Combine combine, bool include_self) {
  if (is_whole(self.view.dtype) && is_whole(updates.view.dtype)) {
    ASSAY_TRY(Whole values, whole(self.view));
    ASSAY_TRY(const Whole numbers, whole(updates.view));
    combine_all(values, places, numbers, combine, include_self);
    return whole_result(std::move(values), self.view.dtype);
  }
  ASSAY_TRY(Wide values, widen(self.view));
  ASSAY_TRY(const Wide numbers, widen(updates.view));
  combine_all(values, places, numbers, combine, include_self);
  return to_tensor(std::move(values));
}

/// self with updates set at flat places, the last of several staying.
Result<Tensor> set_at(Tensor self, const Whole& places, Tensor updates) {
  ASSAY_TRY_STATUS(join_types(self, updates));
  ASSAY_TRY(const NewTensor made, copy_of(self));
  ASSAY_TRY(const NewTensor source, copy_of(updates));
  const int64_t size = made.element_bytes;
  for (int64_t i = 0; i < places.size(); ++i)
    std::memcpy(made.data() + places.data()[i] * size, source.data() + i * size,
                static_cast<size_t>(size));
  return made.tensor();
}

/// The operands of scatter: `src` cut to the shape of the index, or a number for all of it.
struct Scatter {
  Tensor self;
  Tensor updates;  // shape of the index
  Whole places;
};

Result<Scatter> scatter_operands(const Arguments& arguments) {
  ASSAY_TRY(const Tensor given, arguments.tensor("self"));
  ASSAY_TRY(const Tensor given_index, arguments.tensor("index"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", given.view.shape.size(), {}));
  const Tensor self = at_least_1d(given);
  const Tensor index = at_least_1d(given_index);
  const Dims& shape = index.view.shape;
  if (index.view.element_count() == 0) return Scatter{self, index, Whole(Dims{0})};
  Tensor updates;
  if (arguments.is_tensor("src")) {
    ASSAY_TRY(updates, arguments.tensor("src"));
    updates = at_least_1d(updates);
  } else {
    ASSAY_TRY(const Operand value, operand(arguments, arguments.has("src") ? "src" : "value"));
    ASSAY_TRY(const Tensor one, value_in(value.tensor, self.view.dtype));
    ASSAY_TRY(updates, constant(one, shape));
  }
  bool fits = shape.size() == self.view.shape.size() && shape.size() == updates.view.shape.size();
  for (size_t i = 0; fits && i < shape.size(); ++i)
    fits = shape[i] <= updates.view.shape[i] && (i == at || shape[i] <= self.view.shape[i]);
  if (!fits)
    return fail(arguments.invalid("indices ", index.view.shape, " and updates ", updates.view.shape,
                                  " for ", self.view.shape));
  updates.view.shape = shape;
  ASSAY_TRY(Whole places, places_along(arguments, self.view.shape, index, at));
  return Scatter{self, updates, std::move(places)};
}

Result<Values> scattered(const Arguments& arguments, Combine combine, bool include_self) {
  ASSAY_TRY(const Scatter scatter, scatter_operands(arguments));
  ASSAY_TRY(Tensor result, scatter.places.size() == 0 ? Result<Tensor>(scatter.self)
                           : combine == Combine::Set
                               ? set_at(scatter.self, scatter.places, scatter.updates)
                               : combined_at(scatter.self, scatter.places, scatter.updates, combine,
                                             include_self));
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  return single(viewed(result, self.view.shape));
}

Result<Values> scatter(const Arguments& arguments, const EvaluateOptions&) {
  if (!arguments.has("reduce")) return scattered(arguments, Combine::Set, true);
  ASSAY_TRY(const Combine combine, combine_of(arguments));
  return scattered(arguments, combine, true);
}
Result<Values> scatter_reduce(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Combine combine, combine_of(arguments));
  ASSAY_TRY(const bool include_self, arguments.truth("include_self", true));
  return scattered(arguments, combine, include_self);
}

/// Rows of an axis written at the places of a line of indices.
struct Rows {
  Tensor self;
  Dims shape;  // of the rows
  Whole places;
};

Result<Rows> row_operands(const Arguments& arguments, bool negative) {
  ASSAY_TRY(const Tensor given, arguments.tensor("self"));
  ASSAY_TRY(const Tensor index, arguments.tensor("index"));
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", given.view.shape.size(), {}));
  if (index.view.shape.size() > 1) return fail(arguments.invalid("an index that is no line"));
  Rows rows;
  rows.self = at_least_1d(given);
  ASSAY_TRY(const Whole line,
            indices_in(arguments, at_least_1d(index).view, rows.self.view.shape[at], negative));
  rows.shape = rows.self.view.shape;
  rows.shape[at] = line.size();
  ASSAY_TRY_STATUS(checked_count(rows.shape));
  Dims strides = contiguous_strides(rows.self.view.shape);
  const int64_t stride = strides[at];
  strides[at] = 0;
  // The place along the axis comes from the index, whichever row it is.
  int64_t inner = 1;
  for (size_t i = at + 1; i < rows.shape.size(); ++i) inner *= rows.shape[i];
  rows.places = Whole(rows.shape);
  for_each_place(rows.shape, strides, [&](int64_t i, int64_t place) {
    rows.places.data()[i] = place + line.data()[i / inner % line.size()] * stride;
  });
  return rows;
}

Result<Tensor> row_source(const Arguments& arguments, const Rows& rows) {
  ASSAY_TRY(const Tensor source, arguments.tensor("source"));
  if (source.view.element_count() != rows.places.size())
    return fail(arguments.invalid("rows ", rows.shape, " from ", source.view.shape));
  return viewed(source, rows.shape);
}

Result<Values> index_copy(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Rows rows, row_operands(arguments, false));
  ASSAY_TRY(const Tensor source, row_source(arguments, rows));
  ASSAY_TRY(const Tensor result, set_at(rows.self, rows.places, source));
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  return single(viewed(result, self.view.shape));
}

Result<Values> index_fill(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Rows rows, row_operands(arguments, true));
  ASSAY_TRY(const Operand value, operand(arguments, "value"));
  ASSAY_TRY(const Tensor one, value_in(value.tensor, rows.self.view.dtype));
  ASSAY_TRY(const Tensor source, constant(one, rows.shape));
  ASSAY_TRY(const Tensor result, set_at(rows.self, rows.places, source));
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  return single(viewed(result, self.view.shape));
}

Result<Values> index_add(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Rows rows, row_operands(arguments, false));
  ASSAY_TRY(Tensor source, row_source(arguments, rows));
  Operand alpha{scalar_tensor(int64_t{1}), true};
  if (arguments.has("alpha")) {
    ASSAY_TRY(alpha, operand(arguments, "alpha"));
  }
  const std::array<Operand, 2> operands{Operand{source}, alpha};
  ASSAY_TRY(const Values scaled,
            zip(operands, [](double a, double b) { return a * b; }, wrapping_multiply));
  ASSAY_TRY(const Tensor result,
            combined_at(rows.self, rows.places, scaled[0], Combine::Sum, true));
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  return single(viewed(result, self.view.shape));
}

// ---- Several indices ----------------------------------------------------------------------------

/// Places of the values that are not 0, one tensor an axis.
Result<Values> places_of_true(const Tensor& mask) {
  ASSAY_TRY(const Tensor places, coordinates(mask.view).transform(
                                     [](Whole found) { return to_tensor(std::move(found)); }));
  Values axes;
  for (size_t d = 0; d < mask.view.shape.size(); ++d)
    axes.push_back(selected(places, 1, static_cast<int64_t>(d)));
  return axes;
}

Result<Values> where_true(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor condition, arguments.tensor("condition"));
  return places_of_true(at_least_1d(condition));
}

/// self[indices]: self with the indexed axes in front, and what the indices pick there.
struct Picks {
  Tensor self;                 // [indexed axes..., other axes...], a view
  std::vector<int64_t> order;  // of self's axes there
  size_t indexed = 0;          // how many axes are indexed
  bool together =
      true;          // they are neighbours: the result has the shape of the indices in their place
  size_t first = 0;  // axis of the result where the shape of the indices begins
  Dims shape;        // of all indices together
  Whole rows;        // flat places among the indexed axes, in C order of `shape`
  Dims rest;         // sizes of the other axes
};

/// Masks as the places of their true values.
Result<std::vector<std::optional<Tensor>>> without_masks(const Arguments& arguments) {
  ASSAY_TRY(const auto given, arguments.optional_tensors("indices"));
  std::vector<std::optional<Tensor>> indices;
  for (const std::optional<Tensor>& index : given) {
    if (!index || (index->view.dtype != DType::Bool && index->view.dtype != DType::UInt8)) {
      indices.push_back(index);
      continue;
    }
    if (index->view.shape.empty()) return fail(arguments.unsupported("a mask of rank 0"));
    ASSAY_TRY(const Values axes, places_of_true(*index));
    indices.insert(indices.end(), axes.begin(), axes.end());
  }
  return indices;
}

Result<Picks> picks_of(const Arguments& arguments) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(std::vector<std::optional<Tensor>> indices, without_masks(arguments));
  const size_t rank = self.view.shape.size();
  if (indices.size() > rank) return fail(arguments.invalid("more indices than axes"));
  indices.resize(rank);
  Picks picks;
  std::vector<int64_t> others;
  for (size_t i = 0; i < rank; ++i) {
    if (!indices[i]) {
      others.push_back(static_cast<int64_t>(i));
      picks.rest.push_back(self.view.shape[i]);
      continue;
    }
    const auto axis = static_cast<int64_t>(i);
    picks.together &= picks.order.empty() || picks.order.back() == axis - 1;
    picks.order.push_back(axis);
    ASSAY_TRY(const Dims shape, reference::broadcast_shape(picks.shape, indices[i]->view.shape));
    picks.shape = shape;
  }
  picks.indexed = picks.order.size();
  picks.first = picks.together && picks.indexed != 0 ? static_cast<size_t>(picks.order[0]) : 0;
  ASSAY_TRY_STATUS(checked_count(picks.shape));
  picks.rows = Whole(picks.shape, 0);
  for (size_t k = 0; k < picks.indexed; ++k) {
    const auto axis = static_cast<size_t>(picks.order[k]);
    const int64_t size = self.view.shape[axis];
    ASSAY_TRY(const Tensor spread, broadcast_to(*indices[axis], picks.shape));
    ASSAY_TRY(const Whole places, indices_in(arguments, spread.view, size, true));
    for (size_t i = 0; i < places.values.size(); ++i)
      picks.rows.values[i] = picks.rows.values[i] * size + places.values[i];
  }
  picks.order.insert(picks.order.end(), others.begin(), others.end());
  ASSAY_TRY(picks.self, reference::transpose(self, picks.order));
  return picks;
}

/// [indices..., other axes...] with the indices where the result has them.
Tensor indices_in_place(const Picks& picks, Tensor tensor) {
  const size_t rank = picks.shape.size() + picks.rest.size();
  std::vector<int64_t> order;
  for (size_t i = 0; i < picks.first; ++i)
    order.push_back(static_cast<int64_t>(picks.shape.size() + i));
  for (size_t i = 0; i < picks.shape.size(); ++i) order.push_back(static_cast<int64_t>(i));
  for (size_t i = order.size(); i < rank; ++i) order.push_back(static_cast<int64_t>(i));
  const TensorView from = tensor.view;
  for (size_t i = 0; i < rank; ++i) {
    tensor.view.shape[i] = from.shape[static_cast<size_t>(order[i])];
    tensor.view.strides[i] = from.strides[static_cast<size_t>(order[i])];
  }
  return tensor;
}
/// The other way.
Tensor indices_in_front(const Picks& picks, Tensor tensor) {
  const TensorView from = tensor.view;
  size_t next = 0;
  for (size_t i = 0; i < picks.shape.size(); ++i, ++next) {
    tensor.view.shape[next] = from.shape[picks.first + i];
    tensor.view.strides[next] = from.strides[picks.first + i];
  }
  for (size_t i = 0; i < picks.rest.size(); ++i, ++next) {
    const size_t at = i < picks.first ? i : i + picks.shape.size();
    tensor.view.shape[next] = from.shape[at];
    tensor.view.strides[next] = from.strides[at];
  }
  return tensor;
}

Dims joined_dims(const Dims& first, const Dims& second) {
  Dims shape = first;
  for (const int64_t size : second) shape.push_back(size);
  return shape;
}

Result<Values> index(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Picks picks, picks_of(arguments));
  ASSAY_TRY(const NewTensor made,
            new_tensor(picks.self.view.dtype, joined_dims(picks.shape, picks.rest)));
  if (!made.bytes->values.empty()) {
    ASSAY_TRY(const Tensor table, contiguous(picks.self));
    const int64_t row = element_count(picks.rest).value_or(0) * made.element_bytes;
    const std::byte* source =
        table.view.storage.data() + table.view.offset_elements * made.element_bytes;
    for (int64_t i = 0; i < picks.rows.size(); ++i)
      std::memcpy(made.data() + i * row, source + picks.rows.data()[i] * row,
                  static_cast<size_t>(row));
  }
  return single(indices_in_place(picks, made.tensor()));
}

/// The axes of picks.self in self's order again.
Result<Tensor> in_own_order(const Picks& picks, const Tensor& tensor) {
  std::vector<int64_t> back(picks.order.size());
  for (size_t i = 0; i < back.size(); ++i)
    back[static_cast<size_t>(picks.order[i])] = static_cast<int64_t>(i);
  return reference::transpose(tensor, back);
}

Result<Values> index_put(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Picks picks, picks_of(arguments));
  ASSAY_TRY(const Tensor given, arguments.tensor("values"));
  ASSAY_TRY(const bool accumulate, arguments.truth("accumulate", false));
  const Dims front = joined_dims(picks.shape, picks.rest);
  ASSAY_TRY_STATUS(checked_count(front));
  // The shape that self[indices] has, for the values to broadcast to.
  TensorView target;
  target.shape = front;
  target.strides = contiguous_strides(front);
  const Dims shape = indices_in_place(picks, Tensor{target, nullptr}).view.shape;
  ASSAY_TRY(Tensor spread, broadcast_to(given, shape));
  Tensor values = indices_in_front(picks, std::move(spread));
  const int64_t row = element_count(picks.rest).value_or(0);
  if (accumulate) {
    Whole places(front);
    for (int64_t i = 0; i < places.size(); ++i)
      places.data()[i] = picks.rows.data()[i / row] * row + i % row;
    ASSAY_TRY(const Tensor sums, combined_at(picks.self, places, values, Combine::Sum, true));
    return single(in_own_order(picks, sums));
  }
  ASSAY_TRY_STATUS(join_types(picks.self, values));
  ASSAY_TRY(const NewTensor made, copy_of(picks.self));
  ASSAY_TRY(const Tensor source, contiguous(values));
  const int64_t row_bytes = row * made.element_bytes;
  const std::byte* from = source.view.storage.data();
  if (row_bytes != 0) from += source.view.offset_elements * made.element_bytes;
  for (int64_t i = 0; row_bytes != 0 && i < picks.rows.size(); ++i)
    std::memcpy(made.data() + picks.rows.data()[i] * row_bytes, from + i * row_bytes,
                static_cast<size_t>(row_bytes));
  return single(in_own_order(picks, made.tensor()));
}

/// Flat places of self, negative ones from the end.
Result<Values> put(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor index, arguments.tensor("index"));
  ASSAY_TRY(const Tensor source, arguments.tensor("source"));
  ASSAY_TRY(const bool accumulate, arguments.truth("accumulate", false));
  ASSAY_TRY(const Whole places, indices_in(arguments, index.view, self.view.element_count(), true));
  if (source.view.element_count() != places.size())
    return fail(arguments.invalid("other numbers of indices and values"));
  return single(accumulate ? combined_at(self, places, source, Combine::Sum, true)
                           : set_at(self, places, source));
}

// ---- Masks --------------------------------------------------------------------------------------

Result<Values> masked_select(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor mask, arguments.tensor("mask"));
  ASSAY_TRY(const Dims shape, reference::broadcast_shape(self.view.shape, mask.view.shape));
  ASSAY_TRY(const Tensor wide_mask, broadcast_to(mask, shape));
  ASSAY_TRY(const Tensor wide_self, broadcast_to(self, shape));
  ASSAY_TRY(const Wide truth, widen(wide_mask.view));
  ASSAY_TRY(const NewTensor values, copy_of(wide_self));
  const int64_t size = values.element_bytes;
  int64_t count = 0;
  for (int64_t i = 0; i < truth.size(); ++i) {
    if (truth.data()[i] == 0) continue;
    std::memmove(values.data() + count++ * size, values.data() + i * size,
                 static_cast<size_t>(size));
  }
  Tensor chosen = values.tensor();
  chosen.view.shape = {count};
  chosen.view.strides = {1};
  return single(std::move(chosen));
}

/// Where the mask is true, the values of source one after the other.
Result<Values> masked_scatter(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor mask, arguments.tensor("mask"));
  ASSAY_TRY(Tensor source, arguments.tensor("source"));
  ASSAY_TRY(const Dims shape, reference::broadcast_shape(self.view.shape, mask.view.shape));
  ASSAY_TRY(const Tensor wide_mask, broadcast_to(mask, shape));
  ASSAY_TRY(self, broadcast_to(self, shape));
  ASSAY_TRY(const Wide truth, widen(wide_mask.view));
  const int64_t count = std::count_if(truth.values.begin(), truth.values.end(),
                                      [](double value) { return value != 0; });
  if (count > source.view.element_count())
    return fail(arguments.invalid(count, " places for ", source.view.element_count(), " values"));
  Whole places({count});
  for (int64_t i = 0, found = 0; i < truth.size(); ++i) {
    if (truth.data()[i] != 0) places.data()[found++] = i;
  }
  return single(set_at(self, places, source));
}

// ---- Parts --------------------------------------------------------------------------------------

/// A copy of self with src in the part that `part` cuts out of it.
template <typename Part>
Result<Values> with_part(const Arguments& arguments, Part part) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(Tensor src, arguments.tensor("src"));
  ASSAY_TRY_STATUS(join_types(self, src));
  ASSAY_TRY(const NewTensor made, copy_of(self));
  ASSAY_TRY(const Tensor target, part(made.tensor()));
  ASSAY_TRY(Tensor spread, broadcast_to(src, target.view.shape));
  scatter_bytes(spread.view, made.data() + target.view.offset_elements * made.element_bytes,
                target.view.strides);
  return single(made.tensor());
}

Result<Values> slice_scatter(const Arguments& arguments, const EvaluateOptions&) {
  return with_part(arguments, [&](const Tensor& tensor) -> Result<Tensor> {
    ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", tensor.view.shape.size(), 0));
    ASSAY_TRY(const Range range, slice_range(arguments, tensor.view, at));
    return ranged(tensor, at, range);
  });
}

Result<Values> select_scatter(const Arguments& arguments, const EvaluateOptions&) {
  return with_part(arguments, [&](const Tensor& tensor) -> Result<Tensor> {
    ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", tensor.view.shape.size(), {}));
    ASSAY_TRY(const int64_t place, index_argument(arguments, tensor.view, at));
    return selected(tensor, at, place);
  });
}

Result<Values> diagonal_scatter(const Arguments& arguments, const EvaluateOptions&) {
  return with_part(arguments,
                   [&](const Tensor& tensor) { return diagonal_view(arguments, tensor); });
}

/// [..., classes]: 1 at the place that each integer names.
Result<Values> one_hot(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Whole classes, whole(self.view));
  ASSAY_TRY(int64_t count, arguments.integer("num_classes", -1));
  if (count == -1) {
    for (const int64_t value : classes.values)
      count = std::max(count, value == std::numeric_limits<int64_t>::max() ? value : value + 1);
  }
  for (const int64_t value : classes.values)
    if (value < 0 || value >= count) return fail(outside(arguments, value, count));
  if (count <= 0) return fail(arguments.invalid("no classes, or too many"));
  return single(reference::one_hot(self.view, count).transform([](Whole made) {
    return to_tensor(std::move(made));
  }));
}

constexpr Overloads kIndexing[] = {
    {"diagonal_scatter.default", OperatorClass::Move, diagonal_scatter},
    {"embedding.default", OperatorClass::Move, embedding},
    {"gather.default", OperatorClass::Move, gather},
    {"index.Tensor", OperatorClass::Move, index},
    {"index_add.default", OperatorClass::Fused, index_add},
    {"index_copy.default", OperatorClass::Move, index_copy},
    {"index_fill.int_Scalar index_fill.int_Tensor", OperatorClass::Move, index_fill},
    {"index_put.default", OperatorClass::Move, index_put},
    {"index_select.default", OperatorClass::Move, index_select},
    {"masked_scatter.default", OperatorClass::Move, masked_scatter},
    {"masked_select.default", OperatorClass::Move, masked_select},
    {"one_hot.default", OperatorClass::Integer, one_hot},
    {"put.default", OperatorClass::Move, put},
    {"scatter.reduce scatter.value_reduce", OperatorClass::Fused, scatter},
    {"scatter.src scatter.value", OperatorClass::Move, scatter},
    {"scatter_add.default", OperatorClass::Fused, fixed<scattered, Combine::Sum, true>},
    {"scatter_reduce.two", OperatorClass::Fused, scatter_reduce},
    {"select_scatter.default", OperatorClass::Move, select_scatter},
    {"slice_scatter.default", OperatorClass::Move, slice_scatter},
    {"take.default", OperatorClass::Move, take},
    {"take_along_dim.default", OperatorClass::Move, take_along_dim},
    {"where.default", OperatorClass::Integer, where_true},
};

}  // namespace

std::span<const Overloads> indexing_overloads() { return kIndexing; }

}  // namespace assay::reference::aten
