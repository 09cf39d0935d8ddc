// SPDX-License-Identifier: Apache-2.0
// Activation functions of transformer layers.   docs/opcheck/elementwise.md
// x: any shape and real type. Every function of one tensor returns x's shape.
// errors of all: Unsupported (complex and packed types) | TooLarge
#pragma once
#include "reference/wide.hpp"

namespace assay::reference {

/// max(x, 0); NaN stays NaN.
[[nodiscard]] Result<Wide> relu(const TensorView& x);

enum class GeluForm : uint8_t {
  Tanh,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  Erf,   // 0.5 x (1 + erf(x / sqrt 2))
};
[[nodiscard]] Result<Wide> gelu(const TensorView& x, GeluForm form);

/// x sigmoid(1.702 x), the approximation that two kernels of the library share.
[[nodiscard]] Result<Wide> fast_gelu(const TensorView& x);

/// x sigmoid(scale x); scale 1 is SiLU.
[[nodiscard]] Result<Wide> swish(const TensorView& x, double scale = 1.0);

/// Natural logarithm: -inf of 0, NaN below.
[[nodiscard]] Result<Wide> log(const TensorView& x);

[[nodiscard]] Result<Wide> sigmoid(const TensorView& x);

/// a sigmoid(a) b, with (a, b) the halves of x along `axis`, whose size halves in the result.
/// errors  Invalid (no such axis, or one of odd size)
[[nodiscard]] Result<Wide> swiglu(const TensorView& x, int64_t axis = -1);

/// The gradient of swiglu() with respect to x.
/// dy      shape of swiglu(x)
/// errors  Invalid (as swiglu(), or dy of another shape)
[[nodiscard]] Result<Wide> swiglu_backward(const TensorView& dy, const TensorView& x,
                                           int64_t axis = -1);

}  // namespace assay::reference
