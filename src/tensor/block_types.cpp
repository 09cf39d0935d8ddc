// SPDX-License-Identifier: Apache-2.0
// A visit_ function for each type goes through the values of a block with their codes and scales;
// decode_blocks() and code_reaches() differ in what they make of them. In the comments d is the
// scale of a block, m its minimum, dmin the scale of its minimums: float16 unless said otherwise.
#include "tensor/block_types.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <new>
#include <string>

#include "tensor/block_types_grids.hpp"
#include "tensor/half.hpp"

namespace assay {
namespace {

constexpr std::array<BlockTypeInfo, kBlockTypeCount> kInfo = {{
    {"q4_0", 2, 32, 18},      {"q4_1", 3, 32, 20},      {"q5_0", 6, 32, 22},
    {"q5_1", 7, 32, 24},      {"q8_0", 8, 32, 34},      {"q8_1", 9, 32, 36},
    {"q2_K", 10, 256, 84},    {"q3_K", 11, 256, 110},   {"q4_K", 12, 256, 144},
    {"q5_K", 13, 256, 176},   {"q6_K", 14, 256, 210},   {"q8_K", 15, 256, 292},
    {"iq2_xxs", 16, 256, 66}, {"iq2_xs", 17, 256, 74},  {"iq3_xxs", 18, 256, 98},
    {"iq1_s", 19, 256, 50},   {"iq4_nl", 20, 32, 18},   {"iq3_s", 21, 256, 110},
    {"iq2_s", 22, 256, 82},   {"iq4_xs", 23, 256, 136}, {"iq1_m", 29, 256, 56},
    {"tq1_0", 34, 256, 54},   {"tq2_0", 35, 256, 66},   {"mxfp4", 39, 32, 17},
    {"nvfp4", 40, 64, 36},    {"q1_0", 41, 128, 18},
}};

using Bytes = const std::byte*;

uint32_t u8(Bytes at) { return std::to_integer<uint32_t>(*at); }
float i8(Bytes at) { return static_cast<float>(load<int8_t>(at)); }
uint32_t u16(Bytes at) { return load<uint16_t>(at); }
float f16(Bytes at) { return float16_to_float(load<uint16_t>(at)); }
float to_float(uint32_t code) { return static_cast<float>(code); }
float signed_code(uint32_t code, int zero) {
  return static_cast<float>(static_cast<int>(code) - zero);
}

/// Half the distance between two neighbouring halves: what storing a number as one may cost.
float half_rounding(float value) { return std::max(std::abs(value) * 0x1p-11F, 0x1p-25F); }

/// Values that share a scale: scale * code - minimum.
struct Group {
  float scale = 0;
  float minimum = 0;
  // Of the quantiser, for CodeReach: what it rounded after it had chosen the codes, and how far
  // a number may be from the last code that it was clipped to, beyond two steps.
  float scale_error = 0;
  float minimum_error = 0;
  float clipping = 0;
};

/// Each function below passes the values of one block, in any order, to
///   emit(index, group, code, half_gap, is_last)
/// half_gap is half the distance to the farther of the neighbouring codes; is_last marks the two
/// ends of the codes.

/// q4_0, q4_1, q5_0, q5_1: d; m where there is one; 4 bytes of fifth bits, lowest first; 16 bytes:
/// value i in the low half of byte i, value i + 16 in the high half. d * (code - half of all
/// codes), or d * code + m.
template <uint32_t bits, bool has_minimum, typename Emit>
void visit_small_codes(Bytes block, Emit emit) {
  constexpr uint32_t kLast = (1U << bits) - 1;
  const Bytes fifth_bits = block + (has_minimum ? 4 : 2);
  const Bytes low = fifth_bits + (bits == 5 ? 4 : 0);
  const uint32_t fifth = bits == 5 ? load<uint32_t>(fifth_bits) : 0;
  const float d = f16(block);
  Group group{.scale = d, .scale_error = half_rounding(d)};
  if constexpr (has_minimum) {
    const float m = f16(block + 2);
    group.minimum = -m;
    group.minimum_error = half_rounding(m);
  }
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t code = (u8(low + i % 16) >> (i / 16 * 4) & 15) | (fifth >> i & 1) << 4;
    emit(i, group, signed_code(code, has_minimum ? 0 : (kLast + 1) / 2), 0.5F,
         code == 0 || code == kLast);
  }
}

/// Codes of one byte with one scale.
template <typename Emit>
void visit_bytes(Bytes codes, uint32_t count, const Group& group, Emit emit) {
  for (uint32_t i = 0; i < count; ++i) {
    const float code = i8(codes + i);
    emit(i, group, code, 0.5F, std::abs(code) >= 127);
  }
}

/// d, 32 signed bytes
template <typename Emit>
void visit_q8_0(Bytes block, Emit emit) {
  const float d = f16(block);
  visit_bytes(block + 2, 32, {.scale = d, .scale_error = half_rounding(d)}, emit);
}

/// d, d * sum of the codes, 32 signed bytes
template <typename Emit>
void visit_q8_1(Bytes block, Emit emit) {
  const float d = f16(block);
  visit_bytes(block + 4, 32, {.scale = d, .scale_error = half_rounding(d)}, emit);
}

/// d as float32, 256 signed bytes, 16 sums of 16 codes
template <typename Emit>
void visit_q8_k(Bytes block, Emit emit) {
  visit_bytes(block + 4, 256, {.scale = load<float>(block)}, emit);
}

/// What the steps of the inner scales and minimums cost where codes are clipped: half a step of the
/// scale for each of `span` codes, half a step of the minimum; and what rounding d and dmin costs.
float inner_clipping(float d, float dmin, float span) {
  constexpr float kMaxInner = 128;  // of the inner scales, over all types
  const float scale = 0.5F * std::abs(d) + kMaxInner * half_rounding(d);
  const float minimum = 0.5F * std::abs(dmin) + kMaxInner * half_rounding(dmin);
  return scale * span + minimum;
}

/// 16 bytes of scales (low half) and minimums (high half) for 16 values each, 64 bytes of codes of
/// 2 bits, d, dmin. Values 128 h + 32 s + i are bits 2 s of byte 32 h + i.
template <typename Emit>
void visit_q2_k(Bytes block, Emit emit) {
  const float d = f16(block + 80);
  const float dmin = f16(block + 82);
  for (uint32_t g = 0; g < 16; ++g) {
    const uint32_t scale = u8(block + g);
    const Group group{.scale = d * to_float(scale & 15),
                      .minimum = dmin * to_float(scale >> 4),
                      .clipping = inner_clipping(d, dmin, 3)};
    for (uint32_t i = 16 * g; i < 16 * g + 16; ++i) {
      const uint32_t code = u8(block + 16 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
      emit(i, group, to_float(code), 0.5F, code == 0 || code == 3 || group.scale == 0);
    }
  }
}

/// 32 bytes of high bits, 64 bytes of codes of 2 bits as in q2_K, 12 bytes of 16 scales of 6 bits,
/// d. A high bit of 0 takes 4 off the code.
template <typename Emit>
void visit_q3_k(Bytes block, Emit emit) {
  const float d = f16(block + 108);
  const Bytes scales = block + 96;
  for (uint32_t g = 0; g < 16; ++g) {
    const uint32_t low = u8(scales + g % 8) >> (g / 8 * 4) & 15;
    const uint32_t high = u8(scales + 8 + g % 4) >> (g / 4 * 2) & 3;
    const Group group{.scale = d * signed_code(low | high << 4, 32),
                      .clipping = inner_clipping(d, 0, 4)};
    for (uint32_t i = 16 * g; i < 16 * g + 16; ++i) {
      const uint32_t code = u8(block + 32 + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
      const uint32_t bit = u8(block + i % 32) >> (i / 32) & 1;
      const float value = signed_code(code + 4 * bit, 4);
      emit(i, group, value, 0.5F, value == -4 || value == 3 || group.scale == 0);
    }
  }
}

/// Scale and minimum of 6 bits of group g of 8, out of 12 bytes: bytes 0-3 and 4-7 hold those of
/// groups 0-3, and in their two high bits those of groups 4-7, whose low halves are in bytes 8-11.
struct ScaleAndMinimum {
  uint32_t scale;
  uint32_t minimum;
};
ScaleAndMinimum six_bits(Bytes packed, uint32_t g) {
  if (g < 4) return {u8(packed + g) & 63, u8(packed + 4 + g) & 63};
  const uint32_t low = u8(packed + 4 + g);
  return {(low & 15) | u8(packed + g - 4) >> 6 << 4, low >> 4 | u8(packed + g) >> 6 << 4};
}

Group k_group(float d, float dmin, Bytes packed, uint32_t g, float span) {
  const ScaleAndMinimum inner = six_bits(packed, g);
  return {.scale = d * to_float(inner.scale),
          .minimum = dmin * to_float(inner.minimum),
          .clipping = inner_clipping(d, dmin, span)};
}

/// q4_K, q5_K: d, dmin, 12 bytes of scales; 32 bytes whose bit g is the fifth of group g; 128
/// bytes: values 64 p + i and 64 p + 32 + i are the halves of byte 32 p + i.
template <uint32_t bits, typename Emit>
void visit_k_codes(Bytes block, Emit emit) {
  constexpr uint32_t kLast = (1U << bits) - 1;
  const Bytes low = block + (bits == 5 ? 48 : 16);
  const float d = f16(block);
  const float dmin = f16(block + 2);
  for (uint32_t g = 0; g < 8; ++g) {
    const Group group = k_group(d, dmin, block + 4, g, to_float(kLast));
    for (uint32_t i = 0; i < 32; ++i) {
      uint32_t code = u8(low + g / 2 * 32 + i) >> (g % 2 * 4) & 15;
      if constexpr (bits == 5) code |= (u8(block + 16 + i) >> g & 1) << 4;
      emit(32 * g + i, group, to_float(code), 0.5F, code == 0 || code == kLast || group.scale == 0);
    }
  }
}

/// 128 bytes of low halves, 64 bytes of two high bits, 16 signed scales, d. Value 128 h + 32 s + i:
/// low half s / 2 of byte 64 h + 32 (s % 2) + i, bits 2 s of high byte 32 h + i.
template <typename Emit>
void visit_q6_k(Bytes block, Emit emit) {
  const float d = f16(block + 208);
  for (uint32_t g = 0; g < 16; ++g) {
    const Group group{.scale = d * i8(block + 192 + g), .clipping = inner_clipping(d, 0, 32)};
    for (uint32_t i = 16 * g; i < 16 * g + 16; ++i) {
      const uint32_t s = i % 128 / 32;
      const uint32_t low = u8(block + i / 128 * 64 + s % 2 * 32 + i % 32) >> (s / 2 * 4) & 15;
      const uint32_t high = u8(block + 128 + i / 128 * 32 + i % 32) >> (2 * s) & 3;
      const uint32_t code = low | high << 4;
      emit(i, group, signed_code(code, 32), 0.5F, code == 0 || code == 63 || group.scale == 0);
    }
  }
}

/// The 16 values of iq4_nl and iq4_xs, closer together around zero.
constexpr std::array<float, 16> kNonlinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};
float nonlinear_half_gap(uint32_t code) {
  const float below = code > 0 ? kNonlinear[code] - kNonlinear[code - 1] : 0;
  const float above = code < 15 ? kNonlinear[code + 1] - kNonlinear[code] : 0;
  return std::max(below, above) / 2;
}

/// d, 16 bytes as in q4_0
template <typename Emit>
void visit_iq4_nl(Bytes block, Emit emit) {
  const float d = f16(block);
  const Group group{.scale = d, .scale_error = half_rounding(d)};
  for (uint32_t i = 0; i < 32; ++i) {
    const uint32_t code = u8(block + 2 + i % 16) >> (i / 16 * 4) & 15;
    emit(i, group, kNonlinear[code], nonlinear_half_gap(code), code == 0 || code == 15);
  }
}

/// d, 2 bytes of high bits and 4 bytes of low halves of 8 scales, 128 bytes: 32 values as in q4_0
/// for each scale
template <typename Emit>
void visit_iq4_xs(Bytes block, Emit emit) {
  const float d = f16(block);
  for (uint32_t g = 0; g < 8; ++g) {
    const uint32_t low = u8(block + 4 + g / 2) >> (g % 2 * 4) & 15;
    const float scale = signed_code(low | (u16(block + 2) >> (2 * g) & 3) << 4, 32);
    const Group group{.scale = d * scale,
                      .scale_error = half_rounding(d) * std::abs(scale),
                      .clipping = inner_clipping(d, 0, 127)};
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t code = u8(block + 8 + 16 * g + i % 16) >> (i / 16 * 4) & 15;
      emit(32 * g + i, group, kNonlinear[code], nonlinear_half_gap(code),
           code == 0 || code == 15 || scale == 0);
    }
  }
}

/// Five values of -1, 0, 1 a byte, in base 3 as a fraction of 256: multiplying by 3^n modulo 256
/// brings the n-th to the top. 32 bytes with 5 x 32 values, 16 with 5 x 16, 4 with 4 x 4, d.
template <typename Emit>
void visit_tq1_0(Bytes block, Emit emit) {
  constexpr std::array<uint32_t, 5> kPowers = {1, 3, 9, 27, 81};
  const float d = f16(block + 52);
  const Group group{.scale = d, .scale_error = half_rounding(d)};
  const auto part = [&](uint32_t first_value, uint32_t first_byte, uint32_t bytes,
                        uint32_t digits) {
    for (uint32_t n = 0; n < digits; ++n) {
      for (uint32_t i = 0; i < bytes; ++i) {
        const uint32_t fraction = u8(block + first_byte + i) * kPowers[n] & 255;
        const float code = signed_code(fraction * 3 >> 8, 1);
        emit(first_value + n * bytes + i, group, code, 0.5F, code != 0);
      }
    }
  };
  part(0, 0, 32, 5);
  part(160, 32, 16, 5);
  part(240, 48, 4, 4);
}

/// 64 bytes of codes of 2 bits as in q2_K, less 1; d
template <typename Emit>
void visit_tq2_0(Bytes block, Emit emit) {
  const float d = f16(block + 64);
  const Group group{.scale = d, .scale_error = half_rounding(d)};
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t code = u8(block + i / 128 * 32 + i % 32) >> (i % 128 / 32 * 2) & 3;
    emit(i, group, signed_code(code, 1), 0.5F, code != 1);
  }
}

/// Twice the values of e2m1, so that they are integers; bit 3 is the sign.
constexpr std::array<float, 8> kDoubledE2M1 = {0, 1, 2, 3, 4, 6, 8, 12};
constexpr std::array<float, 8> kDoubledE2M1HalfGap = {0.5F, 0.5F, 0.5F, 0.5F, 1, 1, 2, 2};

template <typename Emit>
void emit_e2m1(uint32_t index, const Group& group, uint32_t nibble, Emit emit) {
  const uint32_t magnitude = nibble & 7;
  // Without a sign on zero, as the integers of the engine.
  const bool negative = nibble > 8;
  emit(index, group, negative ? -kDoubledE2M1[magnitude] : kDoubledE2M1[magnitude],
       kDoubledE2M1HalfGap[magnitude], magnitude == 7 || group.scale == 0);
}

/// The exponent e, for 2^(e - 128): half of what e8m0 says, since the codes are doubled. 16 bytes
/// as in q4_0.
template <typename Emit>
void visit_mxfp4(Bytes block, Emit emit) {
  const uint32_t e = u8(block);
  const Group group{.scale = std::bit_cast<float>(e < 2 ? 0x00200000U << e : (e - 1) << 23)};
  for (uint32_t i = 0; i < 32; ++i)
    emit_e2m1(i, group, u8(block + 1 + i % 16) >> (i / 16 * 4) & 15, emit);
}

/// e4m3 without a sign, halved since the codes are doubled; 0x7F counts as 0.
float halved_e4m3(uint32_t bits) {
  if (bits == 0 || bits == 0x7F) return 0;
  return 0.5F * small_float_magnitude(bits >> 3 & 15, bits & 7, 3, 7);
}

/// 4 scales, 4 x 8 bytes: 16 values as the 32 of q4_0 for each scale
template <typename Emit>
void visit_nvfp4(Bytes block, Emit emit) {
  for (uint32_t g = 0; g < 4; ++g) {
    const float scale = halved_e4m3(u8(block + g));
    // Half the distance between two scales; a group of smaller numbers than the smallest scale is
    // all zeros.
    const float scale_error = std::max(scale * 0x1p-4F, 0x1p-11F);
    const Group group{.scale = scale,
                      .scale_error = scale_error,
                      .clipping = scale == 0 ? kDoubledE2M1.back() * scale_error : 0};
    for (uint32_t i = 0; i < 16; ++i)
      emit_e2m1(16 * g + i, group, u8(block + 4 + 8 * g + i % 8) >> (i / 8 * 4) & 15, emit);
  }
}

/// d, 128 bits, lowest first: d or -d. Any number may have been rounded to either.
template <typename Emit>
void visit_q1_0(Bytes block, Emit emit) {
  const Group group{.scale = f16(block), .clipping = INFINITY};
  for (uint32_t i = 0; i < 128; ++i)
    emit(i, group, (u8(block + 2 + i / 8) >> (i % 8) & 1) != 0 ? 1.0F : -1.0F, 1.0F, true);
}

// The iq types of one to three bits choose whole points, of 8 or 4 values, from a table, and weigh
// the values while they do. So nothing bounds how far one number may be from its value:
// compare/gguf_weights.cpp looks at whole blocks instead.

/// Half the distance to the farther neighbour of a value, by the table; behind each are the values,
/// which have either sign.
constexpr float kIq2HalfGap = 9;     // 8 25 43
constexpr float kIq3XxsHalfGap = 5;  // 4 12 20 28 36 44 52 62
constexpr float kIq3SHalfGap = 1;    // 1 3 ... 15
constexpr float kIq1HalfGap = 0.5F;  // -1 0 1

/// signs   bit i for value i
template <size_t digits, typename Emit>
void emit_point(uint32_t first, const Group& group, const std::array<int8_t, digits>& point,
                uint32_t signs, float half_gap, Emit emit) {
  for (uint32_t i = 0; i < digits; ++i) {
    const auto value = static_cast<float>(point[i]);
    emit(first + i, group, (signs >> i & 1) != 0 ? -value : value, half_gap, true);
  }
}

/// Eight signs in 7 bits: their number is even, so the last follows from the others.
uint32_t even_signs(uint32_t seven) {
  return seven | static_cast<uint32_t>(std::popcount(seven) & 1) << 7;
}

/// The groups of points: `factor` times d, which was rounded after the points were chosen.
Group point_group(float d, float factor) {
  return {.scale = d * factor, .scale_error = half_rounding(d) * factor, .clipping = INFINITY};
}

/// d, 8 groups of 32 values: 4 bytes that name points, and a word of 4 x 7 signs and 4 bits of
/// scale.
template <typename Emit>
void visit_iq2_xxs(Bytes block, Emit emit) {
  const float d = f16(block);
  for (uint32_t g = 0; g < 8; ++g) {
    const Bytes at = block + 2 + 8 * g;
    const auto word = load<uint32_t>(at + 4);
    const Group group = point_group(d, (0.5F + to_float(word >> 28)) / 4);
    for (uint32_t p = 0; p < 4; ++p)
      emit_point(32 * g + 8 * p, group, kIq2XxsGrid[u8(at + p)], even_signs(word >> (7 * p) & 127),
                 kIq2HalfGap, emit);
  }
}

/// d, 32 words of 9 bits that name a point and 7 signs, 8 bytes of 16 scales of 4 bits for 16
/// values each
template <typename Emit>
void visit_iq2_xs(Bytes block, Emit emit) {
  const float d = f16(block);
  for (uint32_t p = 0; p < 32; ++p) {
    const uint32_t word = u16(block + 2 + 2 * p);
    const uint32_t scale = u8(block + 66 + p / 4) >> (p / 2 % 2 * 4) & 15;
    emit_point(8 * p, point_group(d, (0.5F + to_float(scale)) / 4), kIq2XsGrid[word & 511],
               even_signs(word >> 9), kIq2HalfGap, emit);
  }
}

/// d, 32 bytes that name points, 32 bytes of signs, 8 bytes of 32 times two higher bits, 8 bytes of
/// scales as in iq2_xs
template <typename Emit>
void visit_iq2_s(Bytes block, Emit emit) {
  const float d = f16(block);
  for (uint32_t p = 0; p < 32; ++p) {
    const uint32_t high = u8(block + 66 + p / 4) >> (p % 4 * 2) & 3;
    const uint32_t scale = u8(block + 74 + p / 4) >> (p / 2 % 2 * 4) & 15;
    emit_point(8 * p, point_group(d, (0.5F + to_float(scale)) / 4),
               kIq2SGrid[u8(block + 2 + p) | high << 8], u8(block + 34 + p), kIq2HalfGap, emit);
  }
}

/// d, 64 bytes that name points of 4 values, 8 words of 4 x 7 signs of 8 values and 4 bits of scale
/// for 32
template <typename Emit>
void visit_iq3_xxs(Bytes block, Emit emit) {
  const float d = f16(block);
  for (uint32_t p = 0; p < 64; ++p) {
    const auto word = load<uint32_t>(block + 66 + p / 8 * 4);
    const uint32_t signs = even_signs(word >> (p / 2 % 4 * 7) & 127) >> (p % 2 * 4);
    emit_point(4 * p, point_group(d, (0.5F + to_float(word >> 28)) / 2),
               kIq3XxsGrid[u8(block + 2 + p)], signs, kIq3XxsHalfGap, emit);
  }
}

/// d, 64 bytes that name points of 4 values, 8 bytes of their ninth bits, 32 bytes of signs, 4
/// bytes of 8 scales of 4 bits: d times an odd number
template <typename Emit>
void visit_iq3_s(Bytes block, Emit emit) {
  const float d = f16(block);
  for (uint32_t p = 0; p < 64; ++p) {
    const uint32_t high = u8(block + 66 + p / 8) >> (p % 8) & 1;
    const uint32_t scale = u8(block + 106 + p / 16) >> (p / 8 % 2 * 4) & 15;
    emit_point(4 * p, point_group(d, to_float(2 * scale + 1)),
               kIq3SGrid[u8(block + 2 + p) | high << 8], u8(block + 74 + p / 2) >> (p % 2 * 4),
               kIq3SHalfGap, emit);
  }
}

/// One point of iq1: every value has an eighth added or taken off.
template <typename Emit>
void emit_iq1_point(uint32_t first, const Group& group, uint32_t point, bool less, Emit emit) {
  for (uint32_t i = 0; i < 8; ++i) {
    const auto value = static_cast<float>(kIq1Grid[point][i]);
    emit(first + i, group, value + (less ? -0.125F : 0.125F), kIq1HalfGap, true);
  }
}

/// d, 32 bytes that name points, 8 words for 32 values each: 4 x 3 higher bits, 3 bits of scale,
/// one whether an eighth is taken off
template <typename Emit>
void visit_iq1_s(Bytes block, Emit emit) {
  const float d = f16(block);
  for (uint32_t p = 0; p < 32; ++p) {
    const uint32_t word = u16(block + 34 + p / 4 * 2);
    const uint32_t point = u8(block + 2 + p) | (word >> (p % 4 * 3) & 7) << 8;
    emit_iq1_point(8 * p, point_group(d, to_float(2 * (word >> 12 & 7) + 1)), point,
                   word >> 15 != 0, emit);
  }
}

/// 32 bytes that name points, 16 bytes of 32 times three higher bits and whether an eighth is taken
/// off, 4 words of 4 x 3 bits of scale for 16 values each and, in the top 4 bits, a quarter of d,
/// lowest first
template <typename Emit>
void visit_iq1_m(Bytes block, Emit emit) {
  uint32_t bits = 0;
  for (uint32_t i = 0; i < 4; ++i) bits |= u16(block + 48 + 2 * i) >> 12 << (4 * i);
  const float d = float16_to_float(static_cast<uint16_t>(bits));
  for (uint32_t p = 0; p < 32; ++p) {
    const uint32_t high = u8(block + 32 + p / 2) >> (p % 2 * 4);
    const uint32_t scale = u16(block + 48 + p / 8 * 2) >> (p / 2 % 4 * 3) & 7;
    emit_iq1_point(8 * p, point_group(d, to_float(2 * scale + 1)), u8(block + p) | (high & 7) << 8,
                   (high & 8) != 0, emit);
  }
}

template <typename Emit>
void visit(BlockType type, Bytes block, Emit emit) {
  switch (type) {
    case BlockType::Q4_0:
      return visit_small_codes<4, false>(block, emit);
    case BlockType::Q4_1:
      return visit_small_codes<4, true>(block, emit);
    case BlockType::Q5_0:
      return visit_small_codes<5, false>(block, emit);
    case BlockType::Q5_1:
      return visit_small_codes<5, true>(block, emit);
    case BlockType::Q8_0:
      return visit_q8_0(block, emit);
    case BlockType::Q8_1:
      return visit_q8_1(block, emit);
    case BlockType::Q2_K:
      return visit_q2_k(block, emit);
    case BlockType::Q3_K:
      return visit_q3_k(block, emit);
    case BlockType::Q4_K:
      return visit_k_codes<4>(block, emit);
    case BlockType::Q5_K:
      return visit_k_codes<5>(block, emit);
    case BlockType::Q6_K:
      return visit_q6_k(block, emit);
    case BlockType::Q8_K:
      return visit_q8_k(block, emit);
    case BlockType::IQ4_NL:
      return visit_iq4_nl(block, emit);
    case BlockType::IQ4_XS:
      return visit_iq4_xs(block, emit);
    case BlockType::TQ1_0:
      return visit_tq1_0(block, emit);
    case BlockType::TQ2_0:
      return visit_tq2_0(block, emit);
    case BlockType::MXFP4:
      return visit_mxfp4(block, emit);
    case BlockType::NVFP4:
      return visit_nvfp4(block, emit);
    case BlockType::Q1_0:
      return visit_q1_0(block, emit);
    case BlockType::IQ2_XXS:
      return visit_iq2_xxs(block, emit);
    case BlockType::IQ2_XS:
      return visit_iq2_xs(block, emit);
    case BlockType::IQ3_XXS:
      return visit_iq3_xxs(block, emit);
    case BlockType::IQ1_S:
      return visit_iq1_s(block, emit);
    case BlockType::IQ3_S:
      return visit_iq3_s(block, emit);
    case BlockType::IQ2_S:
      return visit_iq2_s(block, emit);
    case BlockType::IQ1_M:
      return visit_iq1_m(block, emit);
  }
}

Status check_blocks(BlockType type, ByteSpan blocks, size_t value_count) {
  const BlockTypeInfo& layout = info(type);
  const size_t count = blocks.size() / layout.block_bytes;
  if (blocks.size() % layout.block_bytes != 0 || value_count != count * layout.block_values) {
    return fail(Errc::Usage, std::to_string(blocks.size()) + " bytes are not the blocks of " +
                                 std::to_string(value_count) + " values of " +
                                 std::string(layout.name));
  }
  return {};
}

}  // namespace

const BlockTypeInfo& info(BlockType type) { return kInfo[static_cast<size_t>(type)]; }

std::optional<BlockType> block_type_from_name(std::string_view text) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].name == text) return static_cast<BlockType>(i);
  }
  return std::nullopt;
}

std::optional<BlockType> block_type_from_ggml(uint32_t ggml_type) {
  for (size_t i = 0; i < kInfo.size(); ++i) {
    if (kInfo[i].ggml_type == ggml_type) return static_cast<BlockType>(i);
  }
  return std::nullopt;
}

std::optional<uint64_t> blocked_bytes(BlockType type, const Dims& shape) {
  const auto count = element_count(shape);
  const BlockTypeInfo& layout = info(type);
  if (!count || shape.empty() || shape[shape.size() - 1] % layout.block_values != 0)
    return std::nullopt;
  uint64_t bytes = 0;
  if (mul_overflows(static_cast<uint64_t>(*count) / layout.block_values,
                    uint64_t{layout.block_bytes}, &bytes))
    return std::nullopt;
  return bytes;
}

Status decode_blocks(BlockType type, ByteSpan blocks, std::span<float> out) {
  ASSAY_TRY_STATUS(check_blocks(type, blocks, out.size()));
  const BlockTypeInfo& layout = info(type);
  float* values = out.data();
  for (size_t at = 0; at < blocks.size(); at += layout.block_bytes, values += layout.block_values) {
    visit(type, blocks.data() + at,
          [values](uint32_t i, const Group& group, float code, float, bool) {
            values[i] = group.scale * code - group.minimum;
          });
  }
  return {};
}

Result<Tensor> decode_tensor(BlockType type, const Dims& shape, ByteSpan blocks) {
  if (blocked_bytes(type, shape) != blocks.size()) {
    return fail(Errc::Invalid, std::to_string(blocks.size()) + " bytes are not " +
                                   std::string(name(type)) + list_text(shape.span()));
  }
  const auto count = static_cast<size_t>(element_count(shape).value_or(0));
  const std::shared_ptr<float[]> values(new (std::nothrow) float[count]);
  if (values == nullptr)
    return fail(Errc::TooLarge, "no memory for " + std::to_string(count) + " decoded values");
  ASSAY_TRY_STATUS(decode_blocks(type, blocks, {values.get(), count}));
  ASSAY_TRY(const TensorView view,
            make_view(DType::Float32, shape, std::as_bytes(std::span(values.get(), count))));
  return Tensor{view, values};
}

Status code_reaches(BlockType type, ByteSpan blocks, std::span<CodeReach> out) {
  ASSAY_TRY_STATUS(check_blocks(type, blocks, out.size()));
  constexpr float kClippedHalfSteps = 4;  // quantisers that search for a scale clip up to 1.5 steps
  constexpr float kFloatRounding = 0x1p-20F;  // of their arithmetic, relative
  const BlockTypeInfo& layout = info(type);
  CodeReach* reaches = out.data();
  for (size_t at = 0; at < blocks.size();
       at += layout.block_bytes, reaches += layout.block_values) {
    visit(type, blocks.data() + at,
          [reaches](uint32_t i, const Group& group, float code, float half_gap, bool is_last) {
            const float magnitude = std::abs(group.scale * code) + std::abs(group.minimum);
            // Of a number that was so many codes away, counted in the scale before it was rounded.
            const auto distance = [&](float codes) {
              return codes * std::abs(group.scale) + group.minimum_error +
                     (std::abs(code) + codes) * group.scale_error + magnitude * kFloatRounding;
            };
            const float half_step = distance(half_gap);
            const float clipped = distance(kClippedHalfSteps * half_gap) + group.clipping;
            reaches[i] = {2 * half_gap * std::abs(group.scale), half_step,
                          is_last ? clipped : half_step};
          });
  }
  return {};
}

}  // namespace assay
