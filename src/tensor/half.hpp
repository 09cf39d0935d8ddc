// SPDX-License-Identifier: Apache-2.0
// Small float formats widened to float, one value at a time: the plain definitions that fast
// kernels are tested against. Bit layouts: OCP OFP8 1.0 (e4m3, e5m2), OCP MX 1.0 (e8m0, e3m2, e2m3,
// e2m1), IEEE 754 binary16; "fnuz" as in ONNX and torch (no infinities, no negative zero, NaN is
// 0x80, bias one larger).
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace assay {

[[nodiscard]] inline float bfloat16_to_float(uint16_t bits) {
  // bf16 is the upper half of a float32, so widening is a 16-bit shift and never rounds.
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

[[nodiscard]] inline float float16_to_float(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t exponent = (bits >> 10) & 0x1Fu;
  const uint32_t fraction = bits & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (fraction << 13));
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;  // subnormal: exact
  return sign != 0 ? -magnitude : magnitude;
}

/// A float with `exponent_bits` and `fraction_bits` below a sign bit, with subnormals; NaN and Inf
/// rules are the caller's.
[[nodiscard]] inline float small_float_magnitude(uint32_t exponent, uint32_t fraction,
                                                 int fraction_bits, int bias) {
  const float scale = std::ldexp(1.0f, -fraction_bits);
  if (exponent == 0) return std::ldexp(static_cast<float>(fraction) * scale, 1 - bias);
  return std::ldexp(1.0f + static_cast<float>(fraction) * scale, static_cast<int>(exponent) - bias);
}

[[nodiscard]] inline float float8_e4m3fn_to_float(uint8_t bits) {
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  if ((bits & 0x7F) == 0x7F) return std::numeric_limits<float>::quiet_NaN();
  return sign * small_float_magnitude((bits >> 3) & 0xFu, bits & 7u, 3, 7);
}
[[nodiscard]] inline float float8_e5m2_to_float(uint8_t bits) {
  // e5m2 is the upper byte of a binary16.
  return float16_to_float(static_cast<uint16_t>(bits << 8));
}
[[nodiscard]] inline float float8_e4m3fnuz_to_float(uint8_t bits) {
  if (bits == 0x80) return std::numeric_limits<float>::quiet_NaN();
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  return sign * small_float_magnitude((bits >> 3) & 0xFu, bits & 7u, 3, 8);
}
[[nodiscard]] inline float float8_e5m2fnuz_to_float(uint8_t bits) {
  if (bits == 0x80) return std::numeric_limits<float>::quiet_NaN();
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  return sign * small_float_magnitude((bits >> 2) & 0x1Fu, bits & 3u, 2, 16);
}
[[nodiscard]] inline float float8_e8m0fnu_to_float(uint8_t bits) {
  if (bits == 0xFF) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, static_cast<int>(bits) - 127);
}
/// The four low bits: sign, two exponent bits (bias 1), one fraction bit. Values 0 0.5 1 1.5 2 3 4
/// 6 and negatives.
[[nodiscard]] inline float float4_e2m1fn_to_float(uint8_t nibble) {
  const float sign = (nibble & 8) != 0 ? -1.0f : 1.0f;
  return sign * small_float_magnitude((nibble >> 1) & 3u, nibble & 1u, 1, 1);
}

/// The four low bits: sign, one exponent bit (bias 1), two fraction bits. Values 0 to 1.75 in steps
/// of 0.25 and negatives.
[[nodiscard]] inline float float4_e1m2_to_float(uint8_t nibble) {
  const float sign = (nibble & 8) != 0 ? -1.0f : 1.0f;
  return sign * small_float_magnitude((nibble >> 2) & 1u, nibble & 3u, 2, 1);
}
/// The six low bits: sign, three exponent bits (bias 3), two fraction bits. Neither infinities nor
/// NaN; at most 28.
[[nodiscard]] inline float float6_e3m2_to_float(uint8_t bits) {
  const float sign = (bits & 0x20) != 0 ? -1.0f : 1.0f;
  return sign * small_float_magnitude((bits >> 2) & 7u, bits & 3u, 2, 3);
}
/// The six low bits: sign, two exponent bits (bias 1), three fraction bits. Neither infinities nor
/// NaN; at most 7.5.
[[nodiscard]] inline float float6_e2m3_to_float(uint8_t bits) {
  const float sign = (bits & 0x20) != 0 ? -1.0f : 1.0f;
  return sign * small_float_magnitude((bits >> 3) & 3u, bits & 7u, 3, 1);
}

/// HiFloat8, whose field widths depend on the value: sign, a prefix code ("dot") that says how many
/// exponent bits follow, the exponent as sign and magnitude with its leading one hidden, the rest
/// fraction.
///
///   dot    exponent bits   |exponent|   fraction bits
///   11     4               8 to 15      1
///   10     3               4 to 7       2
///   01     2               2 or 3       3
///   001    1               1            3
///   0001   0               0            3
///   0000   -               2^(m - 23) for m = 1 to 7; m = 0 is zero, with the sign bit NaN
///
/// 0x6F and 0xEF, the largest magnitudes, are infinities.
/// source  "Ascend HiFloat8 Format for Deep Learning", arXiv 2409.16626, tables 1 to 4
[[nodiscard]] inline float hifloat8_to_float(uint8_t bits) {
  const float sign = (bits & 0x80) != 0 ? -1.0f : 1.0f;
  const uint32_t body = bits & 0x7Fu;
  if (body == 0) return bits == 0 ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  if (body == 0x6F) return sign * std::numeric_limits<float>::infinity();
  if (body < 8) return sign * std::ldexp(1.0f, static_cast<int>(body) - 23);
  int exponent_bits = 0;
  int fraction_bits = 3;
  if (body >= 0x20) {
    exponent_bits = static_cast<int>(body >> 5) + 1;
    fraction_bits = 5 - exponent_bits;
  } else if (body >= 0x10) {
    exponent_bits = 1;
  }
  int exponent = 0;
  if (exponent_bits != 0) {
    const uint32_t field = (body >> fraction_bits) & ((1u << exponent_bits) - 1u);
    const uint32_t leading_one = 1u << (exponent_bits - 1);
    const int magnitude = static_cast<int>(leading_one | (field & (leading_one - 1u)));
    exponent = (field & leading_one) != 0 ? -magnitude : magnitude;
  }
  const auto fraction = static_cast<float>(body & ((1u << fraction_bits) - 1u));
  return sign * std::ldexp(1.0f + std::ldexp(fraction, -fraction_bits), exponent);
}

}  // namespace assay
