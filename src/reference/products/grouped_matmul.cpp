// SPDX-License-Identifier: Apache-2.0
// A product for each expert of the rows that were routed to it, or for each group of k; what it
// gives is added to the result.
//   docs/opcheck/products.md, "Grouped products (not in the original's table)"
#include "reference/products/grouped_matmul.hpp"

#include <string>

#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

/// Ends that ascend from 0 to at most `limit`.
Result<Whole> checked_ends(const TensorView& ends, int64_t limit) {
  ASSAY_TRY(Whole values, whole(ends));
  int64_t previous = 0;
  for (const int64_t end : values.values) {
    if (end < previous || end > limit)
      return fail(Errc::Invalid, "a group ends at ", end, ", the one before at ", previous, ", of ",
                  limit);
    previous = end;
  }
  return values;
}

TensorView matrix_of(TensorView view, int64_t index) {
  view.offset_elements += index * view.strides[0];
  view.shape = {view.shape[1], view.shape[2]};
  view.strides = {view.strides[1], view.strides[2]};
  return view;
}

}  // namespace

Result<Wide> grouped_matmul_with_routing(const TensorView& x, const TensorView& w,
                                         const ExpertRows& routing, const TensorView* column_scale,
                                         const TensorView* row_scale) {
  if (x.shape.size() != 2 || w.shape.size() != 3)
    return fail(Errc::Invalid, "x ", x.shape, " and w ", w.shape,
                " are not [rows, k] and [experts, n, k]");
  const int64_t experts = w.shape[0];
  const int64_t k = x.shape[1];
  const int64_t n = w.shape[routing.transpose_w ? 1 : 2];
  if (w.shape[routing.transpose_w ? 2 : 1] != k)
    return fail(Errc::Invalid, "x ", x.shape, " does not fit w ", w.shape,
                (routing.transpose_w ? " transposed" : ""));
  ASSAY_TRY(const Whole tokens, whole(*routing.tokens));
  const int64_t rows = tokens.size();
  ASSAY_TRY(const Whole ends, checked_ends(*routing.group_ends, rows));
  if (ends.size() != experts || (routing.down && x.shape[0] != rows))
    return fail(Errc::Invalid, ends.size(), " groups and ", rows, " routed rows do not fit x ",
                x.shape, " and w ", w.shape);
  const int64_t token_count = routing.down ? routing.token_count : x.shape[0];
  for (const int64_t token : tokens.values) {
    if (token < 0 || token >= token_count)
      return fail(Errc::Invalid, "a row of token ", token, " of ", token_count);
  }
  Wide column_scales, row_scales;
  if (column_scale != nullptr) {
    ASSAY_TRY(column_scales, widen(*column_scale));
    if (column_scales.size() != experts * n)
      return fail(Errc::Invalid, "scale ", column_scale->shape, " does not fit w ", w.shape);
  }
  if (row_scale != nullptr) {
    ASSAY_TRY(row_scales, widen(*row_scale));
    if (row_scales.size() != x.shape[0])
      return fail(Errc::Invalid, "scale of rows ", row_scale->shape, " does not fit x ", x.shape);
  }

  const Dims shape{routing.down ? token_count : rows, n};
  ASSAY_TRY_STATUS(checked_count(shape));
  Wide result(shape, 0.0);
  for (int64_t expert = 0; expert < experts; ++expert) {
    const int64_t first = expert == 0 ? 0 : ends.data()[expert - 1];
    const int64_t count = ends.data()[expert] - first;
    if (count == 0) continue;
    ASSAY_TRY_STATUS(checked_count({count, k}));
    Wide left(Dims{count, k});
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = routing.down ? first + i : tokens.data()[first + i];
      read_values(section(x, 0, row, 1), 0, k, {left.data() + i * k, static_cast<size_t>(k)});
    }
    const TensorView left_view{DType::Float64, left.shape, contiguous_strides(left.shape),
                               std::as_bytes(std::span(left.values))};
    ASSAY_TRY(const Wide product,
              matmul(left_view, matrix_of(w, expert),
                     {.transpose_w = routing.transpose_w, .jobs = routing.jobs}));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t token = tokens.data()[first + i];
      const double factor =
          row_scale == nullptr ? 1.0 : row_scales.data()[routing.down ? first + i : token];
      double* out = result.data() + (routing.down ? token : first + i) * n;
      for (int64_t j = 0; j < n; ++j)
        out[j] += product.data()[i * n + j] * factor *
                  (column_scale == nullptr ? 1.0 : column_scales.data()[expert * n + j]);
    }
  }
  return result;
}

Result<Wide> grouped_matmul_add(const TensorView& x_given, const TensorView& w,
                                const TensorView& group_ends, const TensorView& accum,
                                bool transpose_x, int jobs) {
  ASSAY_TRY(const Dims shape, matmul_shape(x_given, w, {.transpose_x = transpose_x}));
  const TensorView x = transpose_x ? transposed(x_given) : x_given;
  if (x.shape.size() != 2 || w.shape.size() != 2)
    return fail(Errc::Invalid, "x ", x.shape, " and w ", w.shape, " are not [m, k] and [k, n]");
  ASSAY_TRY(const Whole ends, checked_ends(group_ends, x.shape[1]));
  ASSAY_TRY(Wide result, widen(accum));
  const int64_t size = shape[0] * shape[1];
  int64_t needed = 0;
  if (__builtin_mul_overflow(size, ends.size(), &needed) || result.size() != needed)
    return fail(Errc::Invalid, "accum ", accum.shape, " does not hold ", ends.size(),
                " products of shape ", shape);
  for (int64_t group = 0; group < ends.size(); ++group) {
    const int64_t first = group == 0 ? 0 : ends.data()[group - 1];
    const int64_t depth = ends.data()[group] - first;
    ASSAY_TRY(const Wide product,
              matmul(section(x, 1, first, depth), section(w, 0, first, depth), {.jobs = jobs}));
    for (int64_t i = 0; i < size; ++i) result.data()[group * size + i] += product.data()[i];
  }
  return result;
}

}  // namespace assay::reference
