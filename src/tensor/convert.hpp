// SPDX-License-Identifier: Apache-2.0
// Values of any element type as double, block by block, in C order of the view.
#pragma once
#include <span>

#include "tensor/tensor_view.hpp"

namespace assay {

/// Values per element when read as real numbers: 2 for complex (real, imaginary), element_values
/// otherwise.
[[nodiscard]] int values_per_element(DType dtype);

/// Writes the values of elements [first_element, first_element + count) in C order into `out`,
/// whose size must be count * values_per_element(dtype). Lazy conj and neg bits are applied. Bool
/// gives 0 and 1, int64 beyond 2^53 is rounded to nearest, Bits types give their unsigned
/// sub-values.
void read_values(const TensorView& view, int64_t first_element, int64_t count,
                 std::span<double> out);

/// Copies elements [first_element, first_element + count) in C order, unconverted (lazy bits not
/// applied). Whole-byte types only; `out` has count * element size bytes.
void gather_bytes(const TensorView& view, int64_t first_element, int64_t count,
                  std::span<std::byte> out);

/// Changes elements that gather_bytes() copied to the values that the view's lazy conj and neg bits
/// stand for: signs of floats flipped, integers negated. Whole-byte types only.
void apply_lazy_bits(const TensorView& view, std::span<std::byte> elements);

}  // namespace assay
