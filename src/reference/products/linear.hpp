// SPDX-License-Identifier: Apache-2.0
// Linear layers: float, quantised and per batch.   docs/opcheck/products.md
#pragma once
#include <optional>

#include "reference/products/matmul.hpp"

namespace assay::reference {

struct LinearOptions {
  bool transpose_x = false;
  bool transpose_w = true;  // [..., n, k], as layers of networks store their weight
  int jobs = 1;
  /// The product is rounded to this type before the bias is added, as kernels do that store it.
  std::optional<DType> product_type = {};
};

/// x . w + bias
///
/// x         [..., m, k], or [..., k, m] with transpose_x
/// w         [..., n, k], or [..., k, n] without transpose_w; leading sizes broadcast
/// bias      nullptr; [n], [1, n] or any shape that broadcasts to the result; [b, n] when x and w
///           have three dimensions: a row for each batch
/// returns   [..., m, n]
/// errors    of matmul() | Invalid (bias of another shape)
[[nodiscard]] Result<Wide> linear(const TensorView& x, const TensorView& w, const TensorView* bias,
                                  const LinearOptions& options = {});

/// y[m, b, n] = sum over k of x[m, b, k] w[b, k, n], plus bias[b, n]: each batch has a column of
/// rows of its own.
///
/// x         [m, b, k]
/// w         [b, k, n] or [k, n]; with transpose_w [b, n, k] or [n, k]
/// bias      nullptr, or of a shape that broadcasts to [m, b, n]
/// errors    Invalid (shapes) | of matmul()
[[nodiscard]] Result<Wide> linear_per_batch(const TensorView& x, const TensorView& w,
                                            const TensorView* bias,
                                            const LinearOptions& options = {});

/// Factors that int8 sums are multiplied by, as double. 64-bit integers hold a float32 in their low
/// 32 bits.
/// errors  of widen()
[[nodiscard]] Result<Wide> dequantisation_scales(const TensorView& scales);

/// (x . w + bias) scale row_scale, of integers: sums and bias are exact.
///
/// bias       nullptr or as in linear()
/// scale      dequantisation_scales(): one value, [n], or as bias
/// row_scale  nullptr, or one value for each row of the result, in C order
/// errors     of linear() | Invalid (scales of another shape)
[[nodiscard]] Result<Wide> quantised_linear(const TensorView& x, const TensorView& w,
                                            const TensorView* bias, const TensorView& scale,
                                            const TensorView* row_scale,
                                            const LinearOptions& options = {});

/// x . ((w + offset) scale): only the weight is quantised. w' stays exact, whatever type a kernel
/// keeps it in.
///
/// x           [..., m, k]
/// w           one matrix: [n, k], or [k, n] without transpose_w
/// offset      nullptr, one value, [n], or as scale
/// scale       one value or [n]; with groups [groups], [groups, 1] or [groups, n]
/// group_size  rows of k that share a scale, the last group may have fewer; 0: no groups
/// errors      Invalid (shapes; a group size below 0; groups without their scale) | of matmul()
[[nodiscard]] Result<Wide> weight_quantised_linear(const TensorView& x, const TensorView& w,
                                                   const TensorView* offset,
                                                   const TensorView& scale, int64_t group_size,
                                                   const LinearOptions& options = {});

/// How the scale of a row and x / scale are computed. x = max / 2 is 63.5 scales exactly, and what
/// float32 makes of it decides whether that becomes 63 or 64.
enum class RowScale : uint8_t { Exact, Float32 };

/// Each row of x is quantised to int8 with a scale of its own, max|row| / 127; the product of
/// integers is multiplied by both scales, then bias is added.
///
/// x        [..., m, k], floats
/// w        integers; scale, bias as above
/// errors   of quantised_linear()
[[nodiscard]] Result<Wide> dynamic_quantised_linear(const TensorView& x, const TensorView& w,
                                                    const TensorView& scale, const TensorView* bias,
                                                    RowScale row_scale = RowScale::Exact,
                                                    const LinearOptions& options = {});

}  // namespace assay::reference
