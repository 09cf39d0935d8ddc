// SPDX-License-Identifier: Apache-2.0
// Finds the tiling that a shape in FRACTAL_NZ stands for; tensor/layouts.hpp moves the elements.
#include "reference/movement/transdata.hpp"

#include "reference/wide.hpp"
#include "tensor/layouts.hpp"

namespace assay::reference {
namespace {

/// -1: all rows or columns that are stored.
std::optional<Tiling> matrix_tiling(std::string_view layout, const Dims& stored, int64_t rows,
                                    int64_t columns) {
  std::optional<Dims> plain = whole_shape(layout, stored, "*RC");
  if (!plain) return std::nullopt;
  if (rows >= 0) (*plain)[plain->size() - 2] = rows;
  if (columns >= 0) (*plain)[plain->size() - 1] = columns;
  return find_tiling(layout, stored, "*RC", *plain);
}

}  // namespace

int64_t nz_block_columns(DType dtype) { return info(dtype).element_bits == 8 ? 32 : 16; }

Result<Tensor> nz_to_nd(const Tensor& nz, int64_t rows, int64_t columns) {
  const Dims& stored = nz.view.shape;
  if (stored.size() < 3)
    return fail(Errc::Invalid, shape_text(stored) + " is no FRACTAL_NZ shape [..., C1, R, c0]");
  ASSAY_TRY_STATUS(checked_count(stored));
  std::optional<Tiling> tiling = matrix_tiling("*CRc", stored, rows, columns);
  if (!tiling && stored[stored.size() - 2] == kFractalRows)
    tiling = matrix_tiling("*CRrc", stored, rows, columns);
  if (!tiling)
    return fail(Errc::Invalid, "a matrix [" + std::to_string(rows) + ", " +
                                   std::to_string(columns) + "] does not fit into NZ " +
                                   shape_text(stored));
  ASSAY_TRY(const Tensor tiles, contiguous(nz));
  return untile(tiles.view, *tiling);
}

Result<Tensor> nd_to_nz(const Tensor& nd) {
  const auto stored = fractal_nz_shape(nd.view.shape, nz_block_columns(nd.view.dtype));
  if (!stored)
    return fail(Errc::Invalid, "FRACTAL_NZ needs a matrix, not shape " + shape_text(nd.view.shape));
  ASSAY_TRY_STATUS(checked_count(*stored));
  const auto tiling = find_tiling("*CRc", *stored, "*RC", nd.view.shape);
  if (!tiling) return fail(Errc::TooLarge, "a tensor of shape " + shape_text(nd.view.shape));
  return tile(nd.view, *stored, *tiling);
}

}  // namespace assay::reference
