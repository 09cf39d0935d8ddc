// SPDX-License-Identifier: Apache-2.0
// One walk over batches and heads checks that the matrices of a batch lie inside their operands
// before it hands them on: to the product, and to the list of elements that the product writes.
//   docs/opcheck/products.md, "StridedBatchMatmul"
#include "reference/products/strided_batch_matmul.hpp"

#include <array>
#include <string>

#include "reference/products/matmul.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

/// The matrices of one operand: where the next batch begins, and whether all fit.
struct Operand {
  std::string_view name;
  int64_t count;     // elements there are
  int64_t base = 0;  // of the current batch

  /// rows of `columns` values, `ld` apart, once a head.
  Status check(size_t batch, int64_t rows, int64_t columns, int64_t ld, int64_t stride,
               int64_t heads) const {
    if (rows == 0 || columns == 0 || heads == 0) return {};
    const bool overlaps = (rows > 1 && ld < columns) || stride < 0;
    // The sizes come from a file: every sum and product of them is checked for overflow.
    int64_t last = 0;
    int64_t part = 0;
    const bool leaves = overlaps || __builtin_mul_overflow(ld, rows - 1, &last) ||
                        __builtin_mul_overflow(stride, heads - 1, &part) ||
                        __builtin_add_overflow(last, part, &last) ||
                        __builtin_add_overflow(last, base, &last) ||
                        __builtin_add_overflow(last, columns, &last) || last > count;
    if (!leaves) return {};
    return fail(Errc::Invalid, name, " of batch ", batch, ": rows of ", columns, " values, ", ld,
                " apart, heads ", stride, " apart, do not fit ", count, " elements");
  }
  /// errors  Invalid: the heads of a batch hold more than there is
  Status advance(int64_t rows, int64_t columns, int64_t heads) {
    int64_t size = 0;
    if (__builtin_mul_overflow(rows, columns, &size) ||
        __builtin_mul_overflow(size, heads, &size) || __builtin_add_overflow(base, size, &base) ||
        base > count)
      return fail(Errc::Invalid, name, " has ", count, " elements, its batches need more");
    return {};
  }
};

Status check_lists(const StridedBatches& batches) {
  const std::array<std::pair<std::string_view, const std::vector<int64_t>*>, 9> lists = {
      {{"m", &batches.m},
       {"n", &batches.n},
       {"k", &batches.k},
       {"lda", &batches.lda},
       {"ldb", &batches.ldb},
       {"ldc", &batches.ldc},
       {"strideA", &batches.stride_a},
       {"strideB", &batches.stride_b},
       {"strideC", &batches.stride_c}}};
  for (const auto& [list_name, list] : lists) {
    if (list->size() != batches.m.size())
      return fail(Errc::Invalid, list_name, " has ", list->size(), " values, m has ",
                  batches.m.size());
    for (const int64_t value : *list) {
      if (value < 0) return fail(Errc::Invalid, list_name, " has the value ", value);
    }
  }
  if (batches.heads < 0) return fail(Errc::Invalid, batches.heads, " heads");
  return {};
}

/// Calls body(batch, head, start of A, start of B, start of C) for every product.
template <typename Body>
Status for_each_product(const StridedBatches& batches, int64_t a_count, int64_t b_count,
                        int64_t c_count, Body body) {
  ASSAY_TRY_STATUS(check_lists(batches));
  Operand a{"A", a_count};
  Operand b{"B", b_count};
  Operand c{"C", c_count};
  for (size_t i = 0; i < batches.m.size(); ++i) {
    const int64_t m = batches.m[i], n = batches.n[i], k = batches.k[i], heads = batches.heads;
    const Operand here_a = a, here_b = b, here_c = c;
    ASSAY_TRY_STATUS(a.check(i, batches.transpose_a ? k : m, batches.transpose_a ? m : k,
                             batches.lda[i], batches.stride_a[i], heads));
    ASSAY_TRY_STATUS(b.check(i, batches.transpose_b ? n : k, batches.transpose_b ? k : n,
                             batches.ldb[i], batches.stride_b[i], heads));
    ASSAY_TRY_STATUS(c.check(i, m, n, batches.ldc[i], batches.stride_c[i], heads));
    // After this no batch can hold more elements than the operands do, so loops over them end.
    ASSAY_TRY_STATUS(a.advance(m, k, heads));
    ASSAY_TRY_STATUS(b.advance(k, n, heads));
    ASSAY_TRY_STATUS(c.advance(m, n, heads));
    if (m == 0 || n == 0) continue;
    for (int64_t j = 0; j < heads; ++j)
      body(i, here_a.base + batches.stride_a[i] * j, here_b.base + batches.stride_b[i] * j,
           here_c.base + batches.stride_c[i] * j);
  }
  return {};
}

/// [rows, columns] of a flat operand.
TensorView matrix_at(const TensorView& flat, int64_t start, int64_t rows, int64_t columns,
                     int64_t ld) {
  TensorView matrix = flat;
  matrix.offset_elements += start;
  matrix.shape = {rows, columns};
  matrix.strides = {rows == 1 ? columns : ld, 1};
  return matrix;
}

}  // namespace

Result<std::vector<int64_t>> written_elements(const StridedBatches& batches, int64_t a_count,
                                              int64_t b_count, int64_t c_count) {
  std::vector<bool> written(static_cast<size_t>(c_count), false);
  ASSAY_TRY_STATUS(for_each_product(
      batches, a_count, b_count, c_count, [&](size_t i, int64_t, int64_t, int64_t start) {
        for (int64_t row = 0; row < batches.m[i]; ++row)
          for (int64_t j = 0; j < batches.n[i]; ++j)
            written[static_cast<size_t>(start + row * batches.ldc[i] + j)] = true;
      }));
  std::vector<int64_t> indices;
  for (size_t i = 0; i < written.size(); ++i) {
    if (written[i]) indices.push_back(static_cast<int64_t>(i));
  }
  return indices;
}

Result<Wide> strided_batch_matmul(const TensorView& a, const TensorView& b,
                                  const StridedBatches& batches, int64_t c_count) {
  ASSAY_TRY_STATUS(checked_count({c_count}));
  const auto flat = [](const TensorView& view) -> Result<Tensor> {
    ASSAY_TRY(Wide values, widen(view));
    values.shape = {values.size()};
    return to_tensor(std::move(values));
  };
  ASSAY_TRY(const Tensor left, flat(a));
  ASSAY_TRY(const Tensor right, flat(b));
  Wide result(Dims{c_count}, 0.0);
  ASSAY_TRY_STATUS(for_each_product(
      batches, left.view.element_count(), right.view.element_count(), c_count,
      [&](size_t i, int64_t a_start, int64_t b_start, int64_t c_start) {
        const int64_t m = batches.m[i], n = batches.n[i], k = batches.k[i];
        const TensorView x = batches.transpose_a
                                 ? transposed(matrix_at(left.view, a_start, k, m, batches.lda[i]))
                                 : matrix_at(left.view, a_start, m, k, batches.lda[i]);
        const TensorView w = batches.transpose_b
                                 ? transposed(matrix_at(right.view, b_start, n, k, batches.ldb[i]))
                                 : matrix_at(right.view, b_start, k, n, batches.ldb[i]);
        multiply_into(x, w, result.data() + c_start, m == 1 ? n : batches.ldc[i], 1);
      }));
  return result;
}

}  // namespace assay::reference
