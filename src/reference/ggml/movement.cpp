// SPDX-License-Identifier: Apache-2.0
// Moves: views, copies, rows by number, joining, repeating, masking.
#include <algorithm>
#include <limits>
#include <numeric>

#include "reference/ggml/dialect.hpp"
#include "reference/movement/gather.hpp"

namespace assay::reference::ggml {
namespace {

/// The source in order under the sizes of the result.
Status under_sizes(const Arguments& arguments, const Sizes& ne, Call* same) {
  ASSAY_TRY(const Source x, source(arguments, "src0"));
  if (x.view().element_count() != element_count(dims_of(ne)))
    return fail(arguments.invalid(text_of(x.ne), " does not fit ", text_of(ne)));
  set(same, "self", x.tensor);
  set_list(same, "shape", dims_of(ne).span());
  return {};
}

/// Copies take the sizes of the result: of "ne", of the destination, or their own.
Status copy(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const std::optional<Sizes> wanted, wanted_sizes(arguments));
  if (wanted) return under_sizes(arguments, *wanted, same);
  const bool has_target = arguments.call().name == "ggml.cpy" && arguments.is_tensor("src1");
  ASSAY_TRY(const Source like, source(arguments, has_target ? "src1" : "src0"));
  return under_sizes(arguments, like.ne, same);
}

Status reshape(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Sizes ne, needed_sizes(arguments));
  return under_sizes(arguments, ne, same);
}

/// Sizes of the result, byte offset and strides in elements, slowest first; without strides those
/// of a result without gaps. The source must be without gaps itself: a view counts from its first
/// byte.
Status view(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Tensor tensor, arguments.tensor("src0"));
  ASSAY_TRY(const Sizes ne, needed_sizes(arguments));
  ASSAY_TRY(const int64_t offset, integer(arguments, "offset", 0, 0));
  const int64_t element_bytes = info(tensor.view.dtype).element_bits / 8;
  if (element_bytes == 0 || offset % element_bytes != 0)
    return fail(arguments.unsupported("a view between elements"));
  const Dims shape = shape_of(dims_of(ne));
  set(same, "self", tensor);
  set(same, "storage_offset", offset / element_bytes);
  set_list(same, "size", shape.span());
  set_list(same, "stride", contiguous_strides(shape).span());
  if (!arguments.has("strides")) return {};
  ASSAY_TRY(const std::vector<int64_t> strides, arguments.integers("strides"));
  if (strides.size() != shape.size())
    return fail(arguments.invalid("strides of another rank than the sizes"));
  set_list(same, "stride", strides);
  return {};
}

/// Axis i of the source becomes axis axes[i] of the result, counted from the fastest.
Status permute(const Arguments& arguments, Call* same) {
  Sizes axes{}, dims{-1, -1, -1, -1};
  for (size_t i = 0; i < 4; ++i) {
    ASSAY_TRY(axes[i], listed(arguments, "axes", i, i));
    if (axes[i] >= 0 && axes[i] <= 3)
      dims[3 - static_cast<size_t>(axes[i])] = 3 - static_cast<int64_t>(i);
  }
  if (std::ranges::find(dims, -1) != dims.end())
    return fail(arguments.invalid("axes ", text_of(axes)));
  set_list(same, "dims", dims);
  return set_self(arguments, same);
}
Status transpose(const Arguments& arguments, Call* same) {
  set_list(same, "dims", {{0, 1, 3, 2}});
  return set_self(arguments, same);
}

/// Row src1[i1, i2, i3] of table i2, i3 of the source.
Result<Values> get_rows(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Source table, source(arguments, "src0"));
  ASSAY_TRY(const Source rows, source(arguments, "src1"));
  if (rows.ne[3] != 1 || rows.ne[1] != table.ne[2] || rows.ne[2] != table.ne[3])
    return fail(
        arguments.invalid("row numbers ", text_of(rows.ne), " for a table ", text_of(table.ne)));
  ASSAY_TRY(const Tensor numbers, reshaped(rows.tensor, {rows.ne[2], rows.ne[1], rows.ne[0]}));
  ASSAY_TRY(const Tensor picked, gather(table.tensor, numbers, 2, 2));
  if (is_integer(picked.view.dtype)) {
    ASSAY_TRY(Whole integers, whole(picked.view));
    return result_of(to_tensor(std::move(integers)));
  }
  ASSAY_TRY(Wide values, widen(picked.view));
  return result_of(std::move(values));
}

/// The destination (src2) with rows src1[i, i2, i3] replaced by those of the source.
Result<Values> set_rows(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const Wide rows, values_of(arguments, "src0"));
  ASSAY_TRY(const Source places, source(arguments, "src1"));
  ASSAY_TRY(const Whole numbers, whole(places.view()));
  ASSAY_TRY(Wide result, values_of(arguments, "src2"));
  const Dims& from = rows.shape;
  const Dims& to = result.shape;
  if (from[3] != to[3] || from[2] != places.ne[0] || from[1] != to[1] || from[0] != to[0] ||
      places.ne[1] == 0 || places.ne[2] == 0)
    return fail(arguments.invalid("rows ", from, " into ", to));
  for (int64_t i = 0; i < from[0] * from[1] * from[2]; ++i) {
    const int64_t table = i / from[2];
    const int64_t line =
        table % from[1] % places.ne[1] + places.ne[1] * (table / from[1] % places.ne[2]);
    const int64_t row = numbers.values[static_cast<size_t>(i % from[2] + from[2] * line)];
    if (row < 0 || row >= to[2]) return fail(arguments.invalid("row ", row, " of ", to[2]));
    std::copy_n(rows.data() + i * from[3], from[3], result.data() + (table * to[2] + row) * to[3]);
  }
  return result_of(std::move(result));
}

Status concat(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Source a, source(arguments, "src0"));
  ASSAY_TRY(const Source b, source(arguments, "src1"));
  ASSAY_TRY(const int64_t dim, integer(arguments, "dim", 0));
  if (dim < 0 || dim > 3) return fail(arguments.invalid("dimension ", dim));
  aten::ArgumentList both;
  both.emplace_back().value = a.tensor;
  both.emplace_back().value = b.tensor;
  set(same, "tensors", std::move(both));
  set(same, "dim", 3 - dim);
  return {};
}

Status repeat(const Arguments& arguments, Call* same) {
  ASSAY_TRY(const Source x, source(arguments, "src0"));
  ASSAY_TRY(const Sizes ne, needed_sizes(arguments));
  Dims times;
  for (size_t i = 4; i-- > 0;) {
    if (x.ne[i] == 0 || ne[i] % x.ne[i] != 0)
      return fail(arguments.invalid(text_of(x.ne), " does not repeat to ", text_of(ne)));
    times.push_back(ne[i] / x.ne[i]);
  }
  set(same, "self", x.tensor);
  set_list(same, "repeats", times.span());
  return {};
}

/// Scores of tokens behind the own one: column > n_past + row.
template <bool kInfinite>
Result<Values> mask_diagonal(const Arguments& arguments, const EvaluateOptions&) {
  ASSAY_TRY(const int64_t past, integer(arguments, "n_past", 0));
  ASSAY_TRY(Wide x, values_of(arguments, "src0"));
  const int64_t columns = x.shape[3];
  for (int64_t i = 0; columns > 0 && i < x.size() / columns; ++i) {
    const int64_t seen = std::clamp<int64_t>(past + i % x.shape[2] + 1, 0, columns);
    std::fill_n(x.data() + i * columns + seen, columns - seen,
                kInfinite ? -std::numeric_limits<double>::infinity() : 0.0);
  }
  return result_of(std::move(x));
}

/// "padding" [8]: left and right of every dimension, the fastest first; zeros, or the other side
/// again.
Status pad(const Arguments& arguments, Call* same) {
  ASSAY_TRY(Source x, source(arguments, "src0"));
  std::array<int64_t, 8> sides{};
  for (size_t i = 0; i < 8; ++i) {
    ASSAY_TRY(sides[i], listed(arguments, "padding", i, i));
    if (sides[i] < 0) return fail(arguments.invalid("a negative border"));
  }
  ASSAY_TRY(const bool circular, truth(arguments, "circular", 8, false));
  for (size_t i = 0; circular && i < 4; ++i) {
    const int64_t size = x.ne[i];
    if (size == 0) return fail(arguments.invalid("nothing to repeat"));
    ASSAY_TRY_STATUS(checked_count(Dims{sides[2 * i], sides[2 * i + 1]}));
    Whole places(Dims{sides[2 * i] + size + sides[2 * i + 1]});
    const int64_t first = size - sides[2 * i] % size;
    for (int64_t at = 0; at < places.size(); ++at) places.data()[at] = (first + at) % size;
    ASSAY_TRY(x.tensor,
              gather(x.tensor, to_tensor(std::move(places)), 3 - static_cast<int64_t>(i), 0));
    sides[2 * i] = sides[2 * i + 1] = 0;
  }
  set(same, "self", x.tensor);
  set_list(same, "pad", sides);
  return {};
}

}  // namespace

std::span<const DialectRow> movement_operators() {
  using enum OperatorClass;
  static constexpr DialectRow kTable[] = {
      {"ggml.concat", Move, "aten.cat.default", concat},
      {"ggml.cont", Cast, "aten.reshape.default", copy},
      {"ggml.cpy", Cast, "aten.reshape.default", copy},
      own("ggml.diag_mask_inf", Move, mask_diagonal<true>),
      own("ggml.diag_mask_zero", Move, mask_diagonal<false>),
      {"ggml.dup", Cast, "aten.reshape.default", copy},
      own("ggml.get_rows", Move, get_rows),
      {"ggml.pad", Move, "aten.constant_pad_nd.default", pad},
      {"ggml.permute", Move, "aten.permute.default", permute, {}, true},
      {"ggml.repeat", Move, "aten.repeat.default", repeat},
      {"ggml.reshape", Move, "aten.reshape.default", reshape, {}, true},
      own("ggml.set_rows", Cast, set_rows),
      {"ggml.transpose", Move, "aten.permute.default", transpose, {}, true},
      {"ggml.view", Move, "aten.as_strided.default", view, {}, true},
  };
  return kTable;
}

}  // namespace assay::reference::ggml
