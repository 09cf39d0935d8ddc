// SPDX-License-Identifier: Apache-2.0
// Products of experts: the ends of the groups cut rows, columns or the depth of the operands.
#include <cmath>

#include "reference/aten/products.hpp"
#include "reference/aten/values.hpp"
#include "reference/elementwise/broadcast.hpp"
#include "reference/products/matmul.hpp"
#include "tensor/convert.hpp"

namespace assay::reference::aten {
namespace {

/// What each group of _grouped_mm multiplies; torch tells by the ranks of its operands.
///   x [m, k], w [groups, k, n]   rows of x           [m, n]
///   x [groups, m, k], w [k, n]   columns of w        [m, n]
///   x [m, k], w [k, n]           the depth of both   [groups, m, n]
///   both of rank 3               batches             [groups, m, n]
enum class Cut : uint8_t { Rows, Columns, Depth, Batches };

struct Grouped {
  TensorView x, w;
  Cut cut = Cut::Batches;
  std::vector<int64_t> ends;  // of the groups, ascending; empty for Batches
  int64_t groups = 0, m = 0, n = 0, k = 0;
};

Result<Grouped> grouped_of(const Arguments& arguments) {
  ASSAY_TRY(const Tensor x, arguments.tensor("self"));
  ASSAY_TRY(const Tensor w, arguments.tensor("mat2"));
  const Dims& a = x.view.shape;
  const Dims& b = w.view.shape;
  const auto misfit = [&] {
    return fail(arguments.invalid("operands of shapes ", a, " and ", b, " do not fit"));
  };
  if (a.size() < 2 || a.size() > 3 || b.size() < 2 || b.size() > 3) return misfit();
  if (!is_real(x.view.dtype) || !is_real(w.view.dtype) || info(x.view.dtype).element_values != 1 ||
      info(w.view.dtype).element_values != 1)
    return fail(arguments.unsupported("of these element types"));
  Grouped grouped;
  grouped.x = x.view;
  grouped.w = w.view;
  grouped.m = a[a.size() - 2];
  grouped.k = a[a.size() - 1];
  grouped.n = b[b.size() - 1];
  if (b[b.size() - 2] != grouped.k) return misfit();
  grouped.cut = a.size() == 3 ? (b.size() == 3 ? Cut::Batches : Cut::Columns)
                              : (b.size() == 3 ? Cut::Rows : Cut::Depth);
  if (grouped.cut == Cut::Batches) {
    if (a[0] != b[0]) return misfit();
    grouped.groups = a[0];
    return grouped;
  }
  const int64_t limit = grouped.cut == Cut::Rows      ? grouped.m
                        : grouped.cut == Cut::Columns ? grouped.n
                                                      : grouped.k;
  ASSAY_TRY(const Tensor offsets, arguments.tensor("offs"));
  ASSAY_TRY(const Whole ends, whole(offsets.view));
  int64_t previous = 0;
  for (const int64_t end : ends.values) {
    if (end < previous || end > limit)
      return fail(arguments.invalid("a group ends at ", end, ", the one before at ", previous,
                                    ", of ", limit));
    grouped.ends.push_back(end);
    previous = end;
  }
  grouped.groups = static_cast<int64_t>(grouped.ends.size());
  if ((a.size() == 3 && a[0] != grouped.groups) || (b.size() == 3 && b[0] != grouped.groups))
    return misfit();
  return grouped;
}

TensorView matrix_of(TensorView view, int64_t group) {
  if (view.shape.size() == 2) return view;
  view.offset_elements += group * view.strides[0];
  view.shape = {view.shape[1], view.shape[2]};
  view.strides = {view.strides[1], view.strides[2]};
  return view;
}

/// Scales of one operand: one for each of its lines, groups one after the other; or none.
Result<Wide> scales_of(const Arguments& arguments, std::string_view name, int64_t count) {
  if (!arguments.has(name)) return Wide();
  ASSAY_TRY(const Tensor scale, arguments.tensor(name));
  ASSAY_TRY(Wide values, widen(scale.view));
  if (values.size() != count)
    return fail(arguments.unsupported(name, " of shape ", scale.view.shape, ": scales of blocks"));
  return values;
}

}  // namespace

bool is_grouped_product(std::string_view name) {
  return name.find("_grouped_mm") != std::string_view::npos;
}

Result<int64_t> grouped_terms(const Arguments& arguments) {
  ASSAY_TRY(const Grouped grouped, grouped_of(arguments));
  return grouped.k;
}

Result<Wide> grouped_product(const Arguments& arguments, int jobs, bool absolute) {
  ASSAY_TRY(const Grouped grouped, grouped_of(arguments));
  const auto& [x, w, cut, ends, groups, m, n, k] = grouped;
  if (arguments.has("scale_result") || arguments.has("bias"))
    return fail(arguments.unsupported("bias and scale of the result"));
  const int64_t repeats = cut == Cut::Rows ? 1 : groups;
  ASSAY_TRY(const Wide row_scale, scales_of(arguments, "scale_a", m * repeats));
  ASSAY_TRY(const Wide column_scale,
            scales_of(arguments, "scale_b", n * (cut == Cut::Columns ? 1 : groups)));
  const bool stacked = cut == Cut::Depth || cut == Cut::Batches;
  const Dims shape = stacked ? Dims{groups, m, n} : Dims{m, n};
  ASSAY_TRY_STATUS(checked_count(shape));
  Wide result(shape, 0.0);  // what no group writes is undefined in torch
  for (int64_t group = 0; group < groups; ++group) {
    TensorView left = matrix_of(x, group);
    TensorView right = matrix_of(w, group);
    const int64_t first = group == 0 || ends.empty() ? 0 : ends[static_cast<size_t>(group - 1)];
    const int64_t count = ends.empty() ? 0 : ends[static_cast<size_t>(group)] - first;
    double* out = result.data();
    int64_t row = 0, column = 0;  // of the result, where this group begins
    if (cut == Cut::Rows) {
      left = section(left, 0, first, count);
      row = first;
      out += first * n;
    } else if (cut == Cut::Columns) {
      right = section(right, 1, first, count);
      column = first;
      out += first;
    } else {
      out += group * m * n;
      if (cut == Cut::Depth) {
        left = section(left, 1, first, count);
        right = section(right, 0, first, count);
      }
    }
    multiply_into(left, right, out, n, jobs, absolute);
    const int64_t rows_before = cut == Cut::Rows ? row : group * m;
    const int64_t columns_before = cut == Cut::Columns ? column : group * n;
    for (int64_t i = 0; i < left.shape[0]; ++i) {
      for (int64_t j = 0; j < right.shape[1]; ++j) {
        double factor = 1;
        if (row_scale.size() != 0) factor *= row_scale.data()[rows_before + i];
        if (column_scale.size() != 0) factor *= column_scale.data()[columns_before + j];
        out[i * n + j] *= absolute ? std::fabs(factor) : factor;
      }
    }
  }
  return result;
}

}  // namespace assay::reference::aten
