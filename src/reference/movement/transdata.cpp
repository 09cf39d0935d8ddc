// SPDX-License-Identifier: Apache-2.0
#include "reference/movement/transdata.hpp"

#include "reference/movement/bytes.hpp"
#include "tensor/sentence.hpp"

namespace assay::reference {
namespace {

/// The two readings of an NZ shape, both as [batch dims..., C1, R, c0].
struct NzShape {
  size_t batch_dims = 0;
  bool rows_in_blocks = false;
  int64_t blocks = 0;  // C1
  int64_t rows = 0;    // R, or R1 * R0
};

Result<NzShape> read_shape(const TensorView& nz, bool rows_in_blocks) {
  const size_t rank = nz.shape.size();
  NzShape shape{rank - (rows_in_blocks ? 4 : 3), rows_in_blocks, 0, 0};
  shape.blocks = nz.shape[shape.batch_dims];
  shape.rows = nz.shape[rank - 2];
  if (rows_in_blocks && mul_overflows(shape.rows, nz.shape[rank - 3], &shape.rows))
    return fail(Errc::TooLarge, "an NZ tensor of shape ", nz.shape);
  return shape;
}

Result<int64_t> stored_columns(const TensorView& nz, const NzShape& shape) {
  int64_t columns = 0;
  if (mul_overflows(shape.blocks, nz.shape[nz.shape.size() - 1], &columns))
    return fail(Errc::TooLarge, "an NZ tensor of shape ", nz.shape);
  return columns;
}

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

}  // namespace

int64_t nz_block_columns(DType dtype) { return info(dtype).element_bits == 8 ? 32 : 16; }

Result<Tensor> nz_to_nd(const Tensor& nz, int64_t rows, int64_t columns) {
  const size_t rank = nz.view.shape.size();
  if (rank < 3)
    return fail(Errc::Invalid, nz.view.shape, " is no FRACTAL_NZ shape [..., C1, R, c0]");
  ASSAY_TRY_STATUS(checked_count(nz.view.shape));
  const bool blocks_fit = rank >= 4 && nz.view.shape[rank - 2] == kNzBlockRows;
  ASSAY_TRY(NzShape shape, read_shape(nz.view, false));
  ASSAY_TRY(int64_t stored, stored_columns(nz.view, shape));
  if (blocks_fit && (rows > shape.rows || columns > stored)) {
    ASSAY_TRY(shape, read_shape(nz.view, true));
    ASSAY_TRY(stored, stored_columns(nz.view, shape));
  }
  if (rows < 0) rows = shape.rows;
  if (columns < 0) columns = stored;
  if (rows > shape.rows || columns > stored)
    return fail(Errc::Invalid, "a matrix [", rows, ", ", columns, "] does not fit into NZ ",
                nz.view.shape);

  // [..., R, C1, c0] or [..., R1, R0, C1, c0] is the same memory in another order of dimensions.
  TensorView turned = nz.view;
  const auto copy_dim = [&](size_t to, size_t from) {
    turned.shape[to] = nz.view.shape[from];
    turned.strides[to] = nz.view.strides[from];
  };
  for (size_t i = shape.batch_dims; i + 2 < rank; ++i) copy_dim(i, i + 1);
  copy_dim(rank - 2, shape.batch_dims);
  if (!shape.rows_in_blocks) turned.shape[shape.batch_dims] = rows;
  ASSAY_TRY(const Tensor matrix, contiguous({turned, nz.owner}));

  TensorView view = matrix.view;
  view.shape.resize(shape.batch_dims);
  view.shape.push_back(rows);
  view.shape.push_back(columns);
  Dims strides;
  strides.resize(shape.batch_dims + 2);
  strides[shape.batch_dims + 1] = 1;
  strides[shape.batch_dims] = stored;
  int64_t step = (shape.rows_in_blocks ? shape.rows : rows) * stored;
  for (size_t i = shape.batch_dims; i-- > 0; step *= view.shape[i]) strides[i] = step;
  view.strides = strides;
  return Tensor{view, matrix.owner};
}

Result<Tensor> nd_to_nz(const Tensor& nd) {
  const size_t rank = nd.view.shape.size();
  if (rank < 2) return fail(Errc::Invalid, "FRACTAL_NZ needs a matrix, not shape ", nd.view.shape);
  ASSAY_TRY_STATUS(checked_count(nd.view.shape));
  const int64_t rows = nd.view.shape[rank - 2];
  const int64_t columns = nd.view.shape[rank - 1];
  const int64_t block = nz_block_columns(nd.view.dtype);
  const int64_t blocks = round_up(columns, block) / block;
  const int64_t padded_rows = round_up(rows, kNzBlockRows);
  Dims shape = nd.view.shape;
  shape[rank - 2] = blocks;
  shape[rank - 1] = padded_rows;
  shape.push_back(block);
  ASSAY_TRY(const NewTensor made, new_zeros(nd.view.dtype, shape));
  if (nd.view.element_count() == 0) return made.tensor();

  // Whole blocks of columns first, then what is left of the last one.
  TensorView part = nd.view;
  part.shape.resize(rank + 1);
  part.strides.resize(rank + 1);
  Dims strides = made.tensor().view.strides;
  std::swap(strides[rank - 2], strides[rank - 1]);  // [..., R, C1, c0]
  part.strides[rank] = nd.view.strides[rank - 1];
  part.strides[rank - 1] = nd.view.strides[rank - 1] * block;
  part.shape[rank - 1] = columns / block;
  part.shape[rank] = block;
  scatter_bytes(part, made.data(), strides);
  if (columns % block != 0) {
    part.shape[rank - 1] = 1;
    part.shape[rank] = columns % block;
    part.offset_elements += columns / block * block * nd.view.strides[rank - 1];
    const int64_t last = (blocks - 1) * padded_rows * block;
    scatter_bytes(part, made.data() + last * made.element_bytes, strides);
  }
  return made.tensor();
}

}  // namespace assay::reference
