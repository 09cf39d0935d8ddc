// SPDX-License-Identifier: Apache-2.0
// Vectors of small float formats as float32, for kernels that stay in vector registers.
#pragma once
#include "base/simd.hpp"

namespace assay::simd {

/// Sixteen binary16 bit patterns, one per lane, as float32: exact, subnormals included, NaN
/// payloads kept. Neither F16C nor float subnormals take part, so the host's flush-to-zero mode
/// does not change the result.
[[gnu::always_inline]] inline f32x16 widen_float16(u32x16 bits) {
  const u32x16 sign = (bits & 0x8000u) << 16;
  const u32x16 magnitude = bits & 0x7FFFu;
  // Exponent 1..30 moves from bias 15 to 127; exponent 31 (NaN, infinity) moves on to 255.
  const u32x16 rebias = magnitude >= 0x7C00u ? u32x16{} + (224u << 23) : u32x16{} + (112u << 23);
  const u32x16 normal = (magnitude << 13) + rebias;
  const f32x16 subnormal = __builtin_convertvector((i32x16)magnitude, f32x16) * 0x1p-24f;
  return (f32x16)(sign | (magnitude < 0x400u ? (u32x16)subnormal : normal));
}

}  // namespace assay::simd
