// SPDX-License-Identifier: Apache-2.0
// Vectors of small float formats as float32 and as doubles, for kernels that stay in vector
// registers.
#pragma once
#include <cstddef>

#include "base/simd.hpp"
#include "tensor/half.hpp"

namespace assay::simd {

typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));

/// Binary16 bit patterns, one per lane, as float32: exact, subnormals included, NaN payloads kept.
/// Neither F16C nor float subnormals take part, so the host's flush-to-zero mode does not change
/// the result.
template <typename Floats, typename Integers, typename Bits>
[[gnu::always_inline]] inline Floats widen_float16_lanes(Bits bits) {
  const Bits sign = (bits & 0x8000u) << 16;
  const Bits magnitude = bits & 0x7FFFu;
  // Exponent 1..30 moves from bias 15 to 127; exponent 31 (NaN, infinity) moves on to 255.
  const Bits rebias = magnitude >= 0x7C00u ? Bits{} + (224u << 23) : Bits{} + (112u << 23);
  const Bits normal = (magnitude << 13) + rebias;
  const Floats subnormal = __builtin_convertvector((Integers)magnitude, Floats) * 0x1p-24f;
  return (Floats)(sign | (magnitude < 0x400u ? (Bits)subnormal : normal));
}
[[gnu::always_inline]] inline f32x16 widen_float16(u32x16 bits) {
  return widen_float16_lanes<f32x16, i32x16>(bits);
}

/// Lane by lane: GCC 12 makes one instruction of this, and four of __builtin_convertvector, which
/// says the same.
[[gnu::always_inline]] inline f64x8 to_doubles(f32x8 v) {
  return f64x8{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
}
[[gnu::always_inline]] inline u32x8 load_uint16(const std::byte* source) {
  const auto v = load<u16x8>(source);
  return u32x8{v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7]};
}

// Elements at any address as doubles: one, and eight.

struct Float32Elements {
  static constexpr int64_t kBytes = 4;
  [[gnu::always_inline]] static double one(const std::byte* source) {
    return static_cast<double>(load<float>(source));
  }
  [[gnu::always_inline]] static f64x8 eight(const std::byte* source) {
    return to_doubles(load<f32x8>(source));
  }
};
struct BFloat16Elements {
  static constexpr int64_t kBytes = 2;
  [[gnu::always_inline]] static double one(const std::byte* source) {
    return static_cast<double>(bfloat16_to_float(load<uint16_t>(source)));
  }
  [[gnu::always_inline]] static f64x8 eight(const std::byte* source) {
    return to_doubles((f32x8)(load_uint16(source) << 16));
  }
};
struct Float16Elements {
  static constexpr int64_t kBytes = 2;
  [[gnu::always_inline]] static double one(const std::byte* source) {
    return static_cast<double>(float16_to_float(load<uint16_t>(source)));
  }
  [[gnu::always_inline]] static f64x8 eight(const std::byte* source) {
    return to_doubles(widen_float16_lanes<f32x8, i32x8>(load_uint16(source)));
  }
};

}  // namespace assay::simd
