// SPDX-License-Identifier: Apache-2.0
// Arithmetic, comparison and logic of values, one by one.   docs/opcheck/elementwise.md
// Two operands broadcast as NumPy's do.
#pragma once
#include "reference/wide.hpp"

namespace assay::reference {

// Functions of one value: x's shape. errors: Unsupported (complex and packed types) | TooLarge
[[nodiscard]] Result<Wide> cosine(const TensorView& x);
[[nodiscard]] Result<Wide> sine(const TensorView& x);
[[nodiscard]] Result<Wide> hyperbolic_tangent(const TensorView& x);
/// -x; exact for integers: an Int64 tensor for those, Float64 otherwise.
[[nodiscard]] Result<Tensor> negated(const TensorView& x);
/// x times a number.
[[nodiscard]] Result<Wide> scaled(const TensorView& x, double factor);
/// 1 where x is 0.
[[nodiscard]] Result<Whole> logical_not(const TensorView& x);

enum class Arithmetic : uint8_t { Add, Subtract, Multiply, Divide };
/// Float64; Int64 for two integer tensors, wrapped to their type where both have the same, except
/// Divide.
/// errors  Invalid (shapes do not broadcast) | Unsupported (complex and packed types) | TooLarge
[[nodiscard]] Result<Tensor> arithmetic(Arithmetic operation, const TensorView& a,
                                        const TensorView& b);

enum class Comparison : uint8_t { Less, Greater, Equal };
/// 0 or 1; false for NaN. Integers are compared exactly.
/// errors  as arithmetic()
[[nodiscard]] Result<Whole> compare(Comparison comparison, const TensorView& a,
                                    const TensorView& b);

enum class Logic : uint8_t { And, Or };
/// Of truth values: everything but 0 is true.
/// errors  as arithmetic()
[[nodiscard]] Result<Whole> logical(Logic logic, const TensorView& a, const TensorView& b);

/// The values in another type: floats rounded to nearest even, floats to integers cut off toward
/// zero and clamped (NaN: 0), integers to narrower integers by their low bits.
/// errors  Unsupported (complex and packed types)
[[nodiscard]] Result<Tensor> cast(const TensorView& x, DType dtype);

}  // namespace assay::reference
