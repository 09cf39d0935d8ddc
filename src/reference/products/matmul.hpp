// SPDX-License-Identifier: Apache-2.0
// Matrix products in float64 of operands of any type, without widening a whole weight.
//   docs/opcheck/products.md
#pragma once
#include "reference/wide.hpp"

namespace assay::reference {

struct MatmulOptions {
  bool transpose_x = false;  // x is [..., k, m]
  bool transpose_w = false;  // w is [..., n, k], as layers of networks store it
  /// Threads; <= 0: one per core. Never changes a bit of the result.
  int jobs = 1;
  bool absolute = false;  // |x| . |w|: the size of what a product adds up
};

/// x . w as NumPy's matmul has it, every product and sum in float64. Products of integers are exact
/// as long as sums stay below 2^53: k < 2^39 for int8.
///
/// x         [..., m, k] or [k]: any real type, any strides
/// w         [..., k, n]
/// returns   [..., m, n], of one-dimensional x [..., n]; leading sizes broadcast against each
///           other. k = 0 gives zeros
/// errors    Invalid (shapes that do not fit) | Unsupported (complex, Bits, types with several
///           values in an element) | TooLarge
/// memory    the result, 32 MB of widened rows of x, and 2 MB of widened w a thread
/// sources   dgemm of OpenBLAS; up to four rows an own loop that reads w once
[[nodiscard]] Result<Wide> matmul(const TensorView& x, const TensorView& w,
                                  const MatmulOptions& options = {});

/// The shape of that result; nothing is computed.
/// errors  of matmul()
[[nodiscard]] Result<Dims> matmul_shape(const TensorView& x, const TensorView& w,
                                        const MatmulOptions& options = {});

/// The same view with its last two dimensions exchanged. Precondition: at least two dimensions.
[[nodiscard]] TensorView transposed(TensorView view);
/// Elements [first, first + count) of dimension `axis`. Precondition: they are there.
[[nodiscard]] TensorView section(TensorView view, size_t axis, int64_t first, int64_t count);

/// One product of two matrices into memory of the caller, out[i * row_stride + j].
/// Precondition: x [m, k] and w [k, n] are of real types, one value an element, and fit each other.
/// absolute  of the magnitudes of their values
void multiply_into(const TensorView& x, const TensorView& w, double* out, int64_t row_stride,
                   int jobs, bool absolute = false);

}  // namespace assay::reference
