// SPDX-License-Identifier: Apache-2.0
// From real values to int8 and 8-bit floats and back.   docs/opcheck/elementwise.md
// Quantised values come before their rounding, so that a result one off can be told from a tie:
// rounded_to_int8() ends the computation.
#pragma once
#include <optional>

#include "reference/wide.hpp"

namespace assay::reference {

enum class ScaleUse : uint8_t {
  Divide,    // x / scale + offset
  Multiply,  // x * scale + offset
};

/// x / scale + offset, not yet rounded; computed in place of x.
///
/// x         any shape
/// scale     broadcasts to x: [], [1], [channels] or any shape that x's ends with
/// offset    the same; nullptr or a tensor without elements: 0
/// errors    Invalid (shapes that do not broadcast to x) | of widen()
[[nodiscard]] Result<Wide> quantise_per_channel(Wide x, const TensorView& scale,
                                                const TensorView* offset,
                                                ScaleUse use = ScaleUse::Divide);

/// clamp((y - offset) * scale, -65504, 65504): int8 or float16 values back to what a float16 can
/// hold. Arguments as above, y in place of x.
/// errors  of quantise_per_channel()
[[nodiscard]] Result<Wide> dequantise_per_channel(Wide y, const TensorView& scale,
                                                  const TensorView* offset);

struct DynamicQuantised {
  Wide values;                     // shape of x; before rounding; 0 in rows whose scale is 0
  Wide scales;                     // shape of x without its last dimension
  Wide offsets;                    // the same, of asymmetric quantisation; otherwise shape [0]
  int64_t rows_without_scale = 0;  // all zeros, or (asymmetric) all values the same
};

/// Each row (last dimension) with a scale of its own.
///   symmetric    s = max|x| / limit, values x / s; limit 127 for Int8, 32768 HiFloat8,
///                57344 Float8E5M2, 448 Float8E4M3FN
///   asymmetric   s = (max - min) / 255, o = -(max + min) / (2 s), values clamp(x / s + o, -128, 127);
///                Int8 only
/// A NaN makes its whole row NaN.
/// errors  Invalid (x without dimensions) | Unsupported (another target)
[[nodiscard]] Result<DynamicQuantised> dynamic_quantise(Wide x, bool asymmetric = false,
                                                        DType target = DType::Int8);

/// quantise_int8() of every value.
[[nodiscard]] Wide rounded_to_int8(Wide values);

/// rounded_to_int8(), or the nearest value of Float8E4M3FN, Float8E5M2 or HiFloat8; too large ones
/// become the largest finite (Float8E5M2: infinity). HiFloat8 rounds halves away from zero, as its
/// encoding is published; the others to even.
/// errors  Unsupported (another type)
[[nodiscard]] Result<Wide> rounded_to(Wide values, DType target);

}  // namespace assay::reference
