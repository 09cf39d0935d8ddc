// SPDX-License-Identifier: Apache-2.0
// Puts the reduced dimensions behind the others by their shape and strides alone: nothing is
// copied, neither here nor when rows_back() gives results the order of the operand.
#include "reference/aten/reductions_rows.hpp"

#include <algorithm>

namespace assay::reference::aten {

Result<Rows> rows_of(const Arguments& arguments, const Tensor& tensor,
                     const std::optional<std::vector<int64_t>>& dims, bool keepdim) {
  const TensorView& view = tensor.view;
  if (!is_whole(view.dtype) && (!is_real(view.dtype) || values_per_element(view.dtype) != 1))
    return fail(arguments.unsupported(view.dtype, " has no real values"));
  const size_t rank = view.shape.size();
  const bool all = !dims || dims->empty();
  std::vector<bool> reduced(rank, all);
  if (!all) {
    for (const int64_t dim : *dims) {
      ASSAY_TRY(const size_t at, axis(arguments, dim, rank));
      if (at >= rank) continue;  // the axis of a tensor of rank 0
      if (reduced[at]) return fail(arguments.invalid("dimension ", dim, " is listed twice"));
      reduced[at] = true;
    }
  }
  Rows rows;
  rows.view = view;
  rows.view.shape = {};
  rows.view.strides = {};
  for (const bool part : {false, true}) {
    for (size_t i = 0; i < rank; ++i) {
      if (reduced[i] != part) continue;
      rows.view.shape.push_back(view.shape[i]);
      rows.view.strides.push_back(view.strides[i]);
    }
  }
  for (size_t i = 0; i < rank; ++i) {
    if (!reduced[i] || keepdim) rows.shape.push_back(reduced[i] ? 1 : view.shape[i]);
  }
  ASSAY_TRY_STATUS(checked_count(view.shape));
  ASSAY_TRY(rows.count, checked_count(rows.shape));
  Dims lengths;
  for (size_t i = 0; i < rank; ++i)
    if (reduced[i]) lengths.push_back(view.shape[i]);
  ASSAY_TRY(rows.length, checked_count(lengths));
  return rows;
}

Result<Rows> rows_along(const Arguments& arguments, const Tensor& tensor,
                        std::optional<int64_t> dim, bool keepdim) {
  if (!dim) return rows_of(arguments, tensor, std::nullopt, keepdim);
  return rows_of(arguments, tensor, std::vector<int64_t>{*dim}, keepdim);
}

Result<Rows> argument_rows(const Arguments& arguments) {
  ASSAY_TRY(const Tensor self, arguments.tensor("self"));
  ASSAY_TRY(const auto dims, arguments.optional_integers("dim"));
  ASSAY_TRY(const bool keepdim, arguments.truth("keepdim", false));
  return rows_of(arguments, self, dims, keepdim);
}

Tensor rows_back(const Tensor& values, const Rows& rows, size_t axis, int64_t length) {
  // Rows lie one after the other, so the axis has stride 1 and the kept dimensions those of their
  // rows.
  Tensor result = values;
  const size_t rank = rows.view.shape.size();
  result.view.shape = {};
  result.view.strides = {};
  if (rank == 0) return result;
  Dims kept(rows.view.shape.span().first(rank - 1));
  Dims kept_strides = contiguous_strides(kept);
  for (size_t i = 0, next = 0; i < rank; ++i) {
    result.view.shape.push_back(i == axis ? length : kept[next]);
    result.view.strides.push_back(i == axis ? 1 : kept_strides[next] * length);
    if (i != axis) ++next;
  }
  return result;
}

}  // namespace assay::reference::aten
