// SPDX-License-Identifier: Apache-2.0
// FRACTAL_NZ, the blocked layout of matrices on Atlas 300I Duo and of int8 weights, and back.
#pragma once
#include <cstdint>

#include "tensor/tensor_view.hpp"

namespace assay::reference {

/// Columns of one NZ block: 32 for types of one byte, 16 for all others.
[[nodiscard]] int64_t nz_block_columns(DType dtype);
inline constexpr int64_t kNzBlockRows = 16;

/// Element (r, c) of the matrix is nz[..., c / c0, r, c % c0]. Padding is cropped, nothing is
/// converted.
///
/// nz             [..., C1, R, c0], or with rows in blocks too [..., C1, R1, 16, c0]; the second
///                form is taken when the first one has too few rows or columns
/// rows, columns  of the matrix; -1: all that are stored
/// returns        [..., rows, columns] of the same type, contiguous
/// errors         Invalid (fewer than three dimensions, more rows or columns than stored) |
///                Unsupported (packed types) | TooLarge
[[nodiscard]] Result<Tensor> nz_to_nd(const Tensor& nz, int64_t rows, int64_t columns);

/// The other way, rows filled up with zeros to a multiple of 16 and columns to one of c0.
///
/// nd       [..., rows, columns], at least two dimensions
/// returns  [..., ceil(columns / c0), round_up(rows, 16), c0], c0 = nz_block_columns()
/// errors   Invalid (a vector) | Unsupported (packed types) | TooLarge
[[nodiscard]] Result<Tensor> nd_to_nz(const Tensor& nd);

}  // namespace assay::reference
