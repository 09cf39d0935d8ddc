// SPDX-License-Identifier: Apache-2.0
// Moves: views, copies, rows by number, joining, repeating, masking.
#include <cmath>
#include <limits>

#include "reference/aten/shapes.hpp"
#include "reference/ggml/volume.hpp"

namespace assay::reference::ggml {
namespace {

/// visit(i0, i1, i2, i3) in the order of memory.
template <typename F>
void for_each_place(const Sizes& ne, F visit) {
  for (int64_t i3 = 0; i3 < ne[3]; ++i3)
    for (int64_t i2 = 0; i2 < ne[2]; ++i2)
      for (int64_t i1 = 0; i1 < ne[1]; ++i1)
        for (int64_t i0 = 0; i0 < ne[0]; ++i0) visit(i0, i1, i2, i3);
}

int64_t place_in(const Sizes& ne, int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
  return i0 + ne[0] * (i1 + ne[1] * (i2 + ne[2] * i3));
}

/// The view with its four sizes, slowest first.
Result<TensorView> four_axes(const Arguments& arguments, TensorView view) {
  if (view.shape.size() > 4)
    return fail(arguments.unsupported("a source of more than four dimensions"));
  while (view.shape.size() < 4) aten::insert_axis(view, 0);
  return view;
}

/// Without leading axes of size 1, down to rank 1.
void drop_leading_ones(TensorView* view) {
  size_t first = 0;
  while (first + 1 < view->shape.size() && view->shape[first] == 1) ++first;
  view->shape = Dims(view->shape.span().subspan(first));
  view->strides = Dims(view->strides.span().subspan(first));
}

/// The source in order under the sizes of the result.
Result<Values> under_sizes(const Arguments& arguments, const Sizes& ne) {
  ASSAY_TRY(const Tensor tensor, arguments.tensor("src0"));
  ASSAY_TRY(const Sizes from, sizes_of(arguments, tensor.view));
  if (count_of(from) != count_of(ne))
    return fail(arguments.invalid(text_of(from) + " does not fit " + text_of(ne)));
  return aten::single(arguments, aten::viewed(tensor, shape_of(ne)));
}

Result<Sizes> sizes_of_source(const Arguments& arguments, std::string_view name) {
  ASSAY_TRY(const Tensor tensor, arguments.tensor(name));
  return sizes_of(arguments, tensor.view);
}

/// Copies take the sizes of the result: of the destination, of "ne", or their own.
Result<Values> copy(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const std::optional<Sizes> wanted, wanted_sizes(arguments));
  if (wanted) return under_sizes(arguments, *wanted);
  const bool has_target = arguments.call().name == "ggml.cpy" && arguments.is_tensor("src1");
  ASSAY_TRY(const Sizes ne, sizes_of_source(arguments, has_target ? "src1" : "src0"));
  return under_sizes(arguments, ne);
}

Result<Values> reshape(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const std::optional<Sizes> ne, wanted_sizes(arguments));
  if (!ne) return fail(arguments.invalid("no sizes"));
  return under_sizes(arguments, *ne);
}

/// Sizes of the result, byte offset and strides in elements, slowest first; without strides those of a result
/// without gaps. The source must be without gaps itself: a view counts from its first byte.
Result<Values> view(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor tensor, arguments.tensor("src0"));
  ASSAY_TRY(const std::optional<Sizes> ne, wanted_sizes(arguments));
  if (!ne) return fail(arguments.invalid("no sizes"));
  ASSAY_TRY(const int64_t offset, integer(arguments, "offset", 0, 0));
  const int64_t element_bytes = info(tensor.view.dtype).element_bits / 8;
  if (element_bytes == 0 || offset % element_bytes != 0)
    return fail(arguments.unsupported("a view between elements"));
  if (!tensor.view.is_contiguous())
    return fail(arguments.unsupported("a view of a view with gaps"));
  const Dims shape = shape_of(*ne);
  Dims strides = contiguous_strides(shape);
  if (arguments.has("strides")) {
    ASSAY_TRY(const std::vector<int64_t> given, arguments.integers("strides"));
    if (given.size() != shape.size())
      return fail(arguments.invalid("strides of another rank than the sizes"));
    strides = Dims(std::span<const int64_t>(given));
  }
  Result<TensorView> made = make_view(tensor.view.dtype, shape, strides, tensor.view.storage,
                                      tensor.view.offset_elements + offset / element_bytes);
  if (!made) return fail(aten::named(arguments, std::move(made).error()));
  return aten::single(Tensor{*std::move(made), tensor.owner});
}

/// Axis i of the source becomes axis axes[i] of the result, counted from the fastest.
Result<Values> permuted(const Arguments& arguments, const Sizes& axes) {
  ASSAY_TRY(Tensor tensor, arguments.tensor("src0"));
  ASSAY_TRY(const TensorView from, four_axes(arguments, tensor.view));
  tensor.view = from;
  Sizes seen{0, 0, 0, 0};
  for (size_t i = 0; i < 4; ++i) {
    if (axes[i] < 0 || axes[i] > 3 || seen[static_cast<size_t>(axes[i])]++ != 0)
      return fail(arguments.invalid("axes " + text_of(axes)));
    const size_t to = 3 - static_cast<size_t>(axes[i]);
    tensor.view.shape[to] = from.shape[3 - i];
    tensor.view.strides[to] = from.strides[3 - i];
  }
  drop_leading_ones(&tensor.view);
  return aten::single(std::move(tensor));
}
Result<Values> permute(const Arguments& arguments, const EvaluateOptions&) {
  Sizes axes{};
  for (size_t i = 0; i < 4; ++i) {
    ASSAY_TRY(axes[i], listed(arguments, "axes", i, i));
  }
  return permuted(arguments, axes);
}
Result<Values> transpose(const Arguments& arguments, const EvaluateOptions&) {
  return permuted(arguments, {1, 0, 2, 3});
}

/// Row src1[i1, i2, i3] of table i2, i3 of the source.
Result<Values> get_rows(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor table, arguments.tensor("src0"));
  ASSAY_TRY(const Sizes from, sizes_of(arguments, table.view));
  Sizes of_rows{};
  ASSAY_TRY(const Whole rows, integers_of(arguments, "src1", &of_rows));
  const Sizes ne{from[0], of_rows[0], of_rows[1], of_rows[2]};
  if (of_rows[3] != 1 || of_rows[1] != from[2] || of_rows[2] != from[3])
    return fail(
        arguments.invalid("row numbers " + text_of(of_rows) + " for a table " + text_of(from)));
  for (const int64_t row : rows.values) {
    if (row < 0 || row >= from[1])
      return fail(
          arguments.invalid("row " + std::to_string(row) + " of " + std::to_string(from[1])));
  }
  Whole places(shape_of(ne));
  int64_t at = 0;
  for_each_place(ne, [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    const int64_t row = rows.values[static_cast<size_t>(place_in(of_rows, i1, i2, i3, 0))];
    places.data()[at++] = place_in(from, i0, row, i2, i3);
  });
  return picked(arguments, table, places, ne);
}

/// The destination (src2) with rows src1[i, i2, i3] replaced by those of the source.
Result<Values> set_rows(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Volume rows, source(arguments, "src0"));
  Sizes of_places{};
  ASSAY_TRY(const Whole places, integers_of(arguments, "src1", &of_places));
  ASSAY_TRY(Volume result, source(arguments, "src2"));
  if (rows.ne[0] != result.ne[0] || rows.ne[1] != of_places[0] || rows.ne[2] != result.ne[2] ||
      rows.ne[3] != result.ne[3] || of_places[1] == 0 || of_places[2] == 0)
    return fail(arguments.invalid("rows " + text_of(rows.ne) + " into " + text_of(result.ne)));
  for (int64_t i3 = 0; i3 < rows.ne[3]; ++i3)
    for (int64_t i2 = 0; i2 < rows.ne[2]; ++i2)
      for (int64_t i1 = 0; i1 < rows.ne[1]; ++i1) {
        const int64_t row = places.values[static_cast<size_t>(
            place_in(of_places, i1, i2 % of_places[1], i3 % of_places[2], 0))];
        if (row < 0 || row >= result.ne[1])
          return fail(arguments.invalid("row " + std::to_string(row) + " of " +
                                        std::to_string(result.ne[1])));
        std::copy_n(rows.row(i1, i2, i3), rows.ne[0], result.row(row, i2, i3));
      }
  return single(std::move(result));
}

Result<Values> concat(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Volume a, source(arguments, "src0"));
  ASSAY_TRY(const Volume b, source(arguments, "src1"));
  ASSAY_TRY(const int64_t dim, integer(arguments, "dim", 0));
  if (dim < 0 || dim > 3) return fail(arguments.invalid("dimension " + std::to_string(dim)));
  const auto axis = static_cast<size_t>(dim);
  Sizes ne = a.ne;
  for (size_t i = 0; i < 4; ++i) {
    if (i != axis && a.ne[i] != b.ne[i])
      return fail(arguments.invalid(text_of(a.ne) + " beside " + text_of(b.ne)));
  }
  ne[axis] += b.ne[axis];
  Volume result(ne);
  int64_t at = 0;
  for_each_place(ne, [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    Sizes place{i0, i1, i2, i3};
    const bool is_first = place[axis] < a.ne[axis];
    if (!is_first) place[axis] -= a.ne[axis];
    result.values.data()[at++] = (is_first ? a : b).at(place[0], place[1], place[2], place[3]);
  });
  return single(std::move(result));
}

Result<Values> repeat(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor tensor, arguments.tensor("src0"));
  ASSAY_TRY(const Sizes from, sizes_of(arguments, tensor.view));
  ASSAY_TRY(const std::optional<Sizes> ne, wanted_sizes(arguments));
  if (!ne) return fail(arguments.invalid("no sizes"));
  for (size_t i = 0; i < 4; ++i) {
    if (from[i] == 0 || (*ne)[i] % from[i] != 0)
      return fail(arguments.invalid(text_of(from) + " does not repeat to " + text_of(*ne)));
  }
  Whole places(shape_of(*ne));
  int64_t at = 0;
  for_each_place(*ne, [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    places.data()[at++] = place_in(from, i0 % from[0], i1 % from[1], i2 % from[2], i3 % from[3]);
  });
  return picked(arguments, tensor, places, *ne);
}

/// Scores of tokens behind the own one: column > n_past + row.
template <bool kInfinite>
Result<Values> mask_diagonal(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const int64_t past, integer(arguments, "n_past", 0));
  ASSAY_TRY(Volume x, source(arguments, "src0"));
  int64_t at = 0;
  for_each_place(x.ne, [&](int64_t i0, int64_t i1, int64_t, int64_t) {
    if (i0 > past + i1)
      x.values.data()[at] = kInfinite ? -std::numeric_limits<double>::infinity() : 0.0;
    ++at;
  });
  return single(std::move(x));
}

/// "padding" [8]: left and right of every dimension.
Result<Values> pad(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Tensor tensor, arguments.tensor("src0"));
  ASSAY_TRY(const Sizes from, sizes_of(arguments, tensor.view));
  std::array<int64_t, 8> sides{};
  for (size_t i = 0; i < 8; ++i) {
    ASSAY_TRY(sides[i], listed(arguments, "padding", i, i));
  }
  ASSAY_TRY(const bool circular, truth(arguments, "circular", 8, false));
  Sizes ne{};
  Dims checked;
  for (size_t i = 0; i < 4; ++i) {
    if (sides[2 * i] < 0 || sides[2 * i + 1] < 0 || (circular && from[i] == 0))
      return fail(arguments.invalid("a negative border"));
    checked.push_back(ne[i] = from[i] + sides[2 * i] + sides[2 * i + 1]);
  }
  ASSAY_TRY_STATUS(checked_count(checked));
  Whole places(shape_of(ne));
  int64_t at = 0;
  for_each_place(ne, [&](int64_t i0, int64_t i1, int64_t i2, int64_t i3) {
    Sizes place{i0, i1, i2, i3};
    bool inside = true;
    for (size_t i = 0; i < 4; ++i) {
      place[i] -= sides[2 * i];
      if (circular) place[i] = ((place[i] % from[i]) + from[i]) % from[i];
      inside = inside && place[i] >= 0 && place[i] < from[i];
    }
    places.data()[at++] = inside ? place_in(from, place[0], place[1], place[2], place[3]) : -1;
  });
  return picked(arguments, tensor, places, ne);
}

}  // namespace

std::span<const Operator> movement_operators() {
  using enum OperatorClass;
  static constexpr Operator kTable[] = {
      {"ggml.concat", Move, concat},
      {"ggml.cont", Cast, copy},
      {"ggml.cpy", Cast, copy},
      {"ggml.diag_mask_inf", Move, mask_diagonal<true>},
      {"ggml.diag_mask_zero", Move, mask_diagonal<false>},
      {"ggml.dup", Cast, copy},
      {"ggml.get_rows", Move, get_rows},
      {"ggml.pad", Move, pad},
      {"ggml.permute", Move, permute, nullptr, true},
      {"ggml.repeat", Move, repeat},
      {"ggml.reshape", Move, reshape, nullptr, true},
      {"ggml.set_rows", Cast, set_rows},
      {"ggml.transpose", Move, transpose, nullptr, true},
      {"ggml.view", Move, view, nullptr, true},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
