// SPDX-License-Identifier: Apache-2.0
// Moves that write their values anew: joining, repeating, turning, padding, choosing.
#include <algorithm>
#include <cstring>
#include <string>

#include "reference/aten/shapes.hpp"
#include "reference/aten/values.hpp"
#include "reference/movement/assemble.hpp"
#include "reference/movement/bytes.hpp"
#include "reference/movement/views.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

Result<Values> copied(const Tensor& tensor) {
  ASSAY_TRY(const NewTensor made, copy_of(tensor));
  return single(made.tensor());
}

// ---- Joining ------------------------------------------------------------------------------------

Status in_one_type(Values& tensors) {
  if (tensors.empty()) return {};
  DType dtype = tensors[0].view.dtype;
  for (const Tensor& tensor : tensors) dtype = common_type(dtype, tensor.view.dtype);
  for (Tensor& tensor : tensors) {
    ASSAY_TRY(tensor, widened(tensor, dtype));
  }
  return {};
}

Result<Values> joined(Values tensors, int64_t dim) {
  ASSAY_TRY_STATUS(in_one_type(tensors));
  // Old torch allowed [0] beside tensors of any shape, and caches still start as one.
  const auto is_nothing = [](const Tensor& tensor) { return tensor.view.shape == Dims{0}; };
  const bool all = std::all_of(tensors.begin(), tensors.end(), is_nothing);
  if (!all) std::erase_if(tensors, is_nothing);
  return single(concat(tensors, dim));
}

Result<Values> cat(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Values tensors, arguments.tensors("tensors"));
  ASSAY_TRY(const int64_t dim, arguments.integer("dim", 0));
  return joined(std::move(tensors), dim);
}

Result<Values> stack(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Values tensors, arguments.tensors("tensors"));
  if (tensors.empty()) return fail(arguments.invalid("no tensors"));
  const Dims shape = tensors[0].view.shape;
  ASSAY_TRY(const size_t at, axis_argument(arguments, "dim", shape.size() + 1, 0));
  for (Tensor& tensor : tensors) {
    if (tensor.view.shape != shape) return fail(arguments.invalid("tensors of different shapes"));
    insert_axis(tensor.view, at);
  }
  ASSAY_TRY_STATUS(in_one_type(tensors));
  return single(concat(tensors, static_cast<int64_t>(at)));
}

/// New axes of size 1 until there are `rank`, in front but for the third (dstack).
Tensor raised(Tensor tensor, size_t rank) {
  while (tensor.view.shape.size() < std::min<size_t>(rank, 2)) insert_axis(tensor.view, 0);
  while (tensor.view.shape.size() < rank) insert_axis(tensor.view, tensor.view.shape.size());
  return tensor;
}

template <size_t rank, int64_t dim>
Result<Values> stack_along(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Values tensors, arguments.tensors("tensors"));
  for (Tensor& tensor : tensors) tensor = raised(tensor, rank);
  const bool lines = !tensors.empty() && tensors[0].view.shape.size() == 1;
  return joined(std::move(tensors), lines ? 0 : dim);
}

/// Lines as columns, side by side.
Result<Values> column_stack(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Values tensors, arguments.tensors("tensors"));
  for (Tensor& tensor : tensors) {
    while (tensor.view.shape.size() < 2) insert_axis(tensor.view, tensor.view.shape.size());
  }
  return joined(std::move(tensors), 1);
}

// ---- Repeating ----------------------------------------------------------------------------------

Result<Values> repeat(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> repeats, arguments.integers("repeats"));
  return single(reference::tile(self, repeats));
}

Result<Values> tile(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(std::vector<int64_t> repeats, arguments.integers("dims"));
  const size_t rank = self.view.shape.size();
  if (repeats.size() < rank) repeats.insert(repeats.begin(), rank - repeats.size(), 1);
  return single(reference::tile(self, repeats));
}

/// Place i `repeats` times, one after the other.
Result<Values> repeat_interleave(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  size_t at = 0;
  if (arguments.has("dim")) {
    ASSAY_TRY(at, axis_argument(arguments, "dim", self.view.shape.size(), {}));
    if (self.view.shape.empty()) insert_axis(self.view, 0);
  } else {
    ASSAY_TRY(self, viewed(self, {self.view.element_count()}));
  }
  if (!arguments.is_tensor("repeats")) {
    ASSAY_TRY(const int64_t repeats, arguments.integer("repeats"));
    if (repeats < 0) return fail(arguments.invalid("a negative number of repeats"));
    // [..., size, 1, ...] spread to [..., size, repeats, ...] and read in C order.
    insert_axis(self.view, at + 1);
    Dims spread = self.view.shape;
    spread[at + 1] = repeats;
    ASSAY_TRY(const Tensor wide, constant(self, spread));
    Dims shape = self.view.shape;
    Dims flat;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (i == at + 1) continue;
      flat.push_back(i == at ? shape[i] * repeats : shape[i]);
    }
    return single(viewed(wide, flat));
  }
  ASSAY_TRY(const Tensor counts, arguments.tensor("repeats"));
  ASSAY_TRY(const Whole repeats, whole(counts.view));
  const int64_t size = self.view.shape[at];
  if (repeats.size() != size && repeats.size() != 1)
    return fail(arguments.invalid(repeats.size(), " repeats of ", size, " places"));
  Values parts;
  for (int64_t i = 0; i < size; ++i) {
    const int64_t count = repeats.data()[repeats.size() == 1 ? 0 : i];
    if (count < 0) return fail(arguments.invalid("a negative number of repeats"));
    Tensor part = ranged(self, at, {i, 1, 1});
    Dims spread = part.view.shape;
    spread[at] = count;
    ASSAY_TRY(part, constant(part, spread));
    parts.push_back(std::move(part));
  }
  if (parts.empty()) return copied(self);
  return single(concat(parts, static_cast<int64_t>(at)));
}

/// i as often as repeats[i] says.
Result<Values> repeat_places(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor counts, arguments.tensor("repeats"));
  ASSAY_TRY(const Whole repeats, whole(counts.view));
  std::vector<int64_t> places;
  for (int64_t i = 0; i < repeats.size(); ++i) {
    const int64_t count = repeats.data()[i];
    if (count < 0) return fail(arguments.invalid("a negative number of repeats"));
    ASSAY_TRY_STATUS(checked_count({count}));
    places.insert(places.end(), static_cast<size_t>(count), i);
  }
  Whole result({static_cast<int64_t>(places.size())});
  std::copy(places.begin(), places.end(), result.values.begin());
  return single(to_tensor(std::move(result)));
}

// ---- Turning ------------------------------------------------------------------------------------

void reverse_axis(TensorView& view, size_t at) {
  if (view.element_count() == 0) return;
  view.offset_elements += (view.shape[at] - 1) * view.strides[at];
  view.strides[at] = -view.strides[at];
}

Result<Values> reversed(const Arguments& arguments, Tensor self, std::span<const int64_t> dims) {
  std::vector<bool> turned(self.view.shape.size() + 1, false);
  for (const int64_t dim : dims) {
    ASSAY_TRY(const size_t at, axis(arguments, dim, self.view.shape.size()));
    if (turned[at]) return fail(arguments.invalid("an axis stands twice"));
    turned[at] = true;
    if (at < self.view.shape.size()) reverse_axis(self.view, at);
  }
  return copied(self);
}

Result<Values> flip(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> dims, arguments.integers("dims"));
  return reversed(arguments, self, dims);
}

template <int64_t dim>
Result<Values> flip_axis(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  const int64_t dims[] = {dim};
  return reversed(arguments, self, dims);
}

/// A quarter turn k times.
Result<Values> rot90(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t turns, arguments.integer("k", 1));
  std::vector<int64_t> dims = {0, 1};
  if (arguments.has("dims")) {
    ASSAY_TRY(dims, arguments.integers("dims"));
  }
  const size_t rank = self.view.shape.size();
  if (dims.size() != 2 || rank < 2) return fail(arguments.invalid("two axes are needed"));
  ASSAY_TRY(const size_t a, axis(arguments, dims[0], rank));
  ASSAY_TRY(const size_t b, axis(arguments, dims[1], rank));
  if (a == b) return fail(arguments.invalid("an axis stands twice"));
  const int64_t k = ((turns % 4) + 4) % 4;
  if (k == 2 || k == 1) reverse_axis(self.view, b);
  if (k == 2 || k == 3) reverse_axis(self.view, a);
  if (k % 2 == 1) exchange_axes(self.view, a, b);
  return copied(self);
}

Result<Values> roll(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> shifts, arguments.integers("shifts"));
  ASSAY_TRY(const auto given, arguments.optional_integers("dims"));
  std::vector<int64_t> dims = given.value_or(std::vector<int64_t>());
  Tensor turned = self;
  if (dims.empty()) {
    ASSAY_TRY(turned, viewed(self, {self.view.element_count()}));
    dims.push_back(0);
  }
  if (shifts.size() != dims.size()) return fail(arguments.invalid("other numbers of axes"));
  for (size_t i = 0; i < dims.size(); ++i) {
    ASSAY_TRY(const size_t at, axis(arguments, dims[i], turned.view.shape.size()));
    const int64_t size = turned.view.shape.empty() ? 0 : turned.view.shape[at];
    if (size == 0) continue;
    const int64_t shift = ((shifts[i] % size) + size) % size;
    const Tensor parts[] = {ranged(turned, at, {size - shift, shift, 1}),
                            ranged(turned, at, {0, size - shift, 1})};
    ASSAY_TRY(turned, concat(parts, static_cast<int64_t>(at)));
  }
  return single(viewed(turned, self.view.shape));
}

// ---- Padding and triangles ----------------------------------------------------------------------

/// Pairs of places added in front and behind, from the last axis on; negative ones are cut off.
Result<Values> padded(const Arguments& arguments, const Operand& value) {
  ASSAY_TRY(Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const std::vector<int64_t> pad, arguments.integers("pad"));
  const size_t rank = self.view.shape.size();
  if (pad.size() % 2 != 0 || pad.size() > 2 * rank) return fail(arguments.invalid("pad ", pad));
  ASSAY_TRY(const Tensor filling, value_in(value.tensor, self.view.dtype));
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    const size_t at = rank - 1 - i;
    const int64_t size = self.view.shape[at];
    const int64_t cut_front = std::min(std::max<int64_t>(-std::max(pad[2 * i], -size), 0), size);
    const int64_t cut_behind =
        std::min(std::max<int64_t>(-std::max(pad[2 * i + 1], -size), 0), size);
    if (cut_front + cut_behind > size) return fail(arguments.invalid("pad ", pad));
    Values parts;
    for (const int64_t added : {pad[2 * i], int64_t{0}, pad[2 * i + 1]}) {
      if (parts.size() == 1) {
        parts.push_back(ranged(self, at, {cut_front, size - cut_front - cut_behind, 1}));
        continue;
      }
      Dims shape = self.view.shape;
      shape[at] = std::max<int64_t>(added, 0);
      ASSAY_TRY(Tensor part, constant(filling, shape));
      parts.push_back(std::move(part));
    }
    ASSAY_TRY(self, concat(parts, static_cast<int64_t>(at)));
  }
  return copied(self);
}

Result<Values> constant_pad(const Arguments& arguments, const EvaluateOptions&) {
  Operand value{scalar_tensor(int64_t{0}), true};
  if (arguments.has("value")) {
    ASSAY_TRY(value, operand(arguments, "value"));
  }
  return padded(arguments, value);
}

Result<Values> pad(const Arguments& arguments, const EvaluateOptions& options) {
  // Not moved out of the result: g++ 12 would take the comparison for one of undefined bytes.
  const Result<std::string> mode = arguments.text("mode", "constant");
  if (!mode) return fail(mode.error());
  if (*mode != "constant") return fail(arguments.unsupported("padding mode ", *mode));
  return constant_pad(arguments, options);
}

/// 0 above the diagonal, or below it.
template <bool lower>
Result<Values> triangle(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t given, arguments.integer("diagonal", 0));
  const size_t rank = self.view.shape.size();
  if (rank < 2) return fail(arguments.invalid("fewer than two axes"));
  ASSAY_TRY(const NewTensor made, copy_of(self));
  const int64_t rows = self.view.shape[rank - 2];
  const int64_t columns = self.view.shape[rank - 1];
  const int64_t diagonal = std::clamp(given, -rows - 1, columns + 1);
  const int64_t count = self.view.element_count();
  std::byte* row = made.data();
  for (int64_t i = 0; count != 0 && i < count / columns; ++i, row += columns * made.element_bytes) {
    const int64_t edge = i % rows + diagonal;
    const int64_t first = lower ? std::clamp<int64_t>(edge + 1, 0, columns) : 0;
    const int64_t last = lower ? columns : std::clamp<int64_t>(edge, 0, columns);
    std::memset(row + first * made.element_bytes, 0,
                static_cast<size_t>((last - first) * made.element_bytes));
  }
  return single(made.tensor());
}

/// The last axis as diagonals of matrices.
Result<Values> diag_embed(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const int64_t offset, arguments.integer("offset", 0));
  const size_t rank = self.view.shape.size() + 1;
  if (rank < 2) return fail(arguments.invalid("a tensor of rank 0"));
  ASSAY_TRY(const size_t rows, axis_argument(arguments, "dim1", rank, -2));
  ASSAY_TRY(const size_t columns, axis_argument(arguments, "dim2", rank, -1));
  if (rows == columns) return fail(arguments.invalid("one axis twice"));
  if (std::abs(offset) > int64_t{1} << 31) return fail(arguments.invalid("offset"));
  const int64_t length = self.view.shape[rank - 2];
  const int64_t size = length + std::abs(offset);
  Dims shape;
  for (size_t i = 0, from = 0; i < rank; ++i)
    shape.push_back(i == rows || i == columns ? size : self.view.shape[from++]);
  ASSAY_TRY(const NewTensor made, new_zeros(self.view.dtype, shape));
  const Dims all = contiguous_strides(shape);
  Dims strides;
  for (size_t i = 0; i < rank; ++i) {
    if (i != rows && i != columns) strides.push_back(all[i]);
  }
  strides.push_back(all[rows] + all[columns]);
  const int64_t start = offset >= 0 ? offset * all[columns] : -offset * all[rows];
  if (self.view.element_count() != 0)
    scatter_bytes(self.view, made.data() + start * made.element_bytes, strides);
  return single(made.tensor());
}

// ---- Choosing -----------------------------------------------------------------------------------

/// condition ? first : second, both rounded to the type that torch gives the result.
Result<Values> choice(const Tensor& condition, const Operand& first, const Operand& second) {
  const Operand given[] = {first, second};
  ASSAY_TRY(const DType type, result_type(given));
  ASSAY_TRY(std::vector<Operand> operands, in_common_type(given));
  Tensor a = operands[0].tensor;
  Tensor b = operands[1].tensor;
  if (is_whole(type)) {
    // A number of another width becomes what the tensor can hold.
    if (a.view.shape.empty() && a.view.element_count() == 1) {
      ASSAY_TRY(a, value_in(a, type));
    }
    if (b.view.shape.empty() && b.view.element_count() == 1) {
      ASSAY_TRY(b, value_in(b, type));
    }
  }
  ASSAY_TRY_STATUS(join_types(a, b));
  return single(reference::where(condition, a, b));
}

Result<Values> where(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor condition, arguments.tensor("condition"));
  ASSAY_TRY(const Operand self, operand(arguments, "self"));
  ASSAY_TRY(const Operand other, operand(arguments, "other"));
  return choice(condition, self, other);
}

/// The value in self's type, whatever its own is.
Result<Values> masked_fill(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const Tensor mask, arguments.tensor("mask"));
  ASSAY_TRY(const Operand value, operand(arguments, "value"));
  ASSAY_TRY(const Tensor filling, value_in(value.tensor, self.view.dtype));
  return single(reference::where(mask, filling, self));
}

constexpr Overloads kMoves[] = {
    {"cat.default", OperatorClass::Move, cat},
    {"column_stack.default", OperatorClass::Move, column_stack},
    {"constant_pad_nd.default", OperatorClass::Move, constant_pad},
    {"diag_embed.default", OperatorClass::Move, diag_embed},
    {"dstack.default", OperatorClass::Move, stack_along<3, 2>},
    {"flip.default", OperatorClass::Move, flip},
    {"fliplr.default", OperatorClass::Move, flip_axis<1>},
    {"flipud.default", OperatorClass::Move, flip_axis<0>},
    {"hstack.default", OperatorClass::Move, stack_along<1, 1>},
    {"masked_fill.Scalar masked_fill.Tensor", OperatorClass::Move, masked_fill},
    {"pad.default", OperatorClass::Move, pad},
    {"repeat.default", OperatorClass::Move, repeat},
    {"repeat_interleave.Tensor", OperatorClass::Integer, repeat_places},
    {"repeat_interleave.self_Tensor repeat_interleave.self_int", OperatorClass::Move,
     repeat_interleave},
    {"roll.default", OperatorClass::Move, roll},
    {"rot90.default", OperatorClass::Move, rot90},
    {"stack.default", OperatorClass::Move, stack},
    {"tile.default", OperatorClass::Move, tile},
    {"tril.default", OperatorClass::Move, triangle<true>},
    {"triu.default", OperatorClass::Move, triangle<false>},
    {"vstack.default", OperatorClass::Move, stack_along<2, 0>},
    {"where.Scalar where.ScalarOther where.ScalarSelf where.self", OperatorClass::Move, where},
};

}  // namespace

std::span<const Overloads> movement_overloads() { return kMoves; }

}  // namespace assay::reference::aten
