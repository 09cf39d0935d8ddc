// SPDX-License-Identifier: Apache-2.0
// exp of eight doubles at once.
//
//   x = k ln 2 + r,  |r| <= ln 2 / 2 = 0.347       k by adding and subtracting 1.5 * 2^52
//   exp(r) - 1 - r = r^2 Q(r)                     Q of degree 9, interpolated at the Chebyshev nodes of that
//                                                 interval in 60 digits: within 2.4e-16 relative
//   exp(x) = 2^k (1 + (r + r^2 Q(r)))
//
// The middle line is kept separate: it is what a divergence of nearly equal distributions is made
// of, and it is accurate to 6e-16 relative however small r is. exp itself is within 5e-16 relative
// of the true value (2.5 ulp) on [-708, 709], as compare_test holds against std::exp in long
// double. No fused multiply-add takes part.
#pragma once
#include "base/simd.hpp"

namespace assay::measure {

struct ExpParts {
  simd::f64x8 power;      // 2^k; infinite from x = 709.43 on
  simd::f64x8 remainder;  // r
  simd::f64x8 excess;     // exp(r) - 1 - r, never negative
};

/// Below this exp is given as 0 (true value below 3.4e-308), so that no subnormals arise.
inline constexpr double kExpUnderflow = -708.0;

/// exp(r) - 1 - r for |r| <= ln 2 / 2.
[[gnu::always_inline]] inline simd::f64x8 small_excess(simd::f64x8 r) {
  using simd::f64x8;
  // In pairs, then pairs of pairs: a third of the latency of Horner's rule.
  const f64x8 r2 = r * r;
  const f64x8 r4 = r2 * r2;
  const f64x8 c0 = 0x1.0000000000001p-1 + r * 0x1.5555555555556p-3;
  const f64x8 c2 = 0x1.5555555553d4fp-5 + r * 0x1.11111111109adp-7;
  const f64x8 c4 = 0x1.6c16c17893833p-10 + r * 0x1.a01a01a7c8d47p-13;
  const f64x8 c6 = 0x1.a019b8ef67c6cp-16 + r * 0x1.71de0d9c145d0p-19;
  const f64x8 c8 = 0x1.2891a8c1d838dp-22 + r * 0x1.af38d53857513p-26;
  const f64x8 q = (c0 + r2 * c2) + r4 * ((c4 + r2 * c6) + r4 * c8);
  return r2 * q;
}

[[gnu::always_inline]] inline ExpParts exp_parts(simd::f64x8 x) {
  using simd::f64x8;
  using simd::u64x8;
  constexpr double kLog2E = 1.4426950408889634;
  // ln 2 in two parts; the first has 21 zero bits at its end, so that k times it is exact.
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  constexpr double kRound = 0x1.8p52;
  const f64x8 lowest = f64x8{} + (kExpUnderflow - 40);
  const f64x8 highest = f64x8{} + 710.0;
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  const f64x8 shifted = x * kLog2E + kRound;
  const f64x8 k = shifted - kRound;
  const f64x8 r = (x - k * kLn2High) - k * kLn2Low;
  const u64x8 power = ((u64x8)shifted + 1023u) << 52;
  return {x >= kExpUnderflow ? (f64x8)power : f64x8{}, r, small_excess(r)};
}

[[gnu::always_inline]] inline simd::f64x8 exp_of(const ExpParts& parts) {
  return parts.power * (1.0 + (parts.remainder + parts.excess));
}

}  // namespace assay::measure
