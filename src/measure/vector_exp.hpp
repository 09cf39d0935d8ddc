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

/// Vectors of which every step is taken together: one alone is a chain of forty dependent steps,
/// and the processor does not look far enough ahead to find the next chain behind it. Plain loops:
/// what a lambda holds by reference GCC 12 keeps in memory.
template <int kCount>
struct Vectors {
  simd::f64x8 at[kCount];

  [[gnu::always_inline]] friend Vectors operator+(const Vectors& a, const Vectors& b) {
    Vectors out;
    for (int i = 0; i < kCount; ++i) out.at[i] = a.at[i] + b.at[i];
    return out;
  }
  [[gnu::always_inline]] friend Vectors operator-(const Vectors& a, const Vectors& b) {
    Vectors out;
    for (int i = 0; i < kCount; ++i) out.at[i] = a.at[i] - b.at[i];
    return out;
  }
  [[gnu::always_inline]] friend Vectors operator*(const Vectors& a, const Vectors& b) {
    Vectors out;
    for (int i = 0; i < kCount; ++i) out.at[i] = a.at[i] * b.at[i];
    return out;
  }
  [[gnu::always_inline]] friend Vectors operator+(const Vectors& a, double b) {
    Vectors out;
    for (int i = 0; i < kCount; ++i) out.at[i] = a.at[i] + b;
    return out;
  }
  [[gnu::always_inline]] friend Vectors operator-(const Vectors& a, double b) {
    Vectors out;
    for (int i = 0; i < kCount; ++i) out.at[i] = a.at[i] - b;
    return out;
  }
  [[gnu::always_inline]] friend Vectors operator*(const Vectors& a, double b) {
    Vectors out;
    for (int i = 0; i < kCount; ++i) out.at[i] = a.at[i] * b;
    return out;
  }
};

/// Below this exp is given as 0 (true value below 3.4e-308), so that no subnormals arise.
inline constexpr double kExpUnderflow = -708.0;

/// exp(r) - 1 - r for |r| <= ln 2 / 2. Here and below V is a vector or Vectors.
template <typename V>
[[gnu::always_inline]] inline V small_excess(V r) {
  // In pairs, then pairs of pairs: a third of the latency of Horner's rule.
  const V r2 = r * r;
  const V r4 = r2 * r2;
  const V c0 = r * 0x1.5555555555556p-3 + 0x1.0000000000001p-1;
  const V c2 = r * 0x1.11111111109adp-7 + 0x1.5555555553d4fp-5;
  const V c4 = r * 0x1.a01a01a7c8d47p-13 + 0x1.6c16c17893833p-10;
  const V c6 = r * 0x1.71de0d9c145d0p-19 + 0x1.a019b8ef67c6cp-16;
  const V c8 = r * 0x1.af38d53857513p-26 + 0x1.2891a8c1d838dp-22;
  const V q = (c0 + r2 * c2) + r4 * ((c4 + r2 * c6) + r4 * c8);
  return r2 * q;
}

// x = k ln 2 + r, for x between -750 and 710; of other values the results make no sense.
inline constexpr double kRound = 0x1.8p52;
/// k in the low bits.
template <typename V>
[[gnu::always_inline]] inline V shifted_exponent(V x) {
  constexpr double kLog2E = 1.4426950408889634;
  return x * kLog2E + kRound;
}
/// r
template <typename V>
[[gnu::always_inline]] inline V exponent_remainder(V x, V shifted) {
  // ln 2 in two parts; the first has 21 zero bits at its end, so that k times it is exact.
  constexpr double kLn2High = 6.93147180369123816490e-01;
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  const V k = shifted - kRound;
  return (x - k * kLn2High) - k * kLn2Low;
}
/// 2^k; infinite from k = 1024 on.
[[gnu::always_inline]] inline simd::f64x8 power_of_two(simd::f64x8 shifted) {
  return (simd::f64x8)(((simd::u64x8)shifted + 1023u) << 52);
}

struct ExpParts {
  simd::f64x8 power;      // 2^k; infinite from x = 709.43 on
  simd::f64x8 remainder;  // r
  simd::f64x8 excess;     // exp(r) - 1 - r, never negative
};

[[gnu::always_inline]] inline ExpParts exp_parts(simd::f64x8 x) {
  using simd::f64x8;
  const f64x8 lowest = f64x8{} + (kExpUnderflow - 40);
  const f64x8 highest = f64x8{} + 710.0;
  x = x < lowest ? lowest : x;
  x = x > highest ? highest : x;
  const f64x8 shifted = shifted_exponent(x);
  const f64x8 r = exponent_remainder(x, shifted);
  return {x >= kExpUnderflow ? power_of_two(shifted) : f64x8{}, r, small_excess(r)};
}

[[gnu::always_inline]] inline simd::f64x8 exp_of(const ExpParts& parts) {
  return parts.power * (1.0 + (parts.remainder + parts.excess));
}

/// exp of values that are not positive, with the bits of exp_of(exp_parts(x)).
template <int kCount>
[[gnu::always_inline]] inline Vectors<kCount> exp_of_nonpositive(const Vectors<kCount>& x) {
  const Vectors<kCount> shifted = shifted_exponent(x);
  const Vectors<kCount> r = exponent_remainder(x, shifted);
  const Vectors<kCount> mantissa = (r + small_excess(r)) + 1.0;
  Vectors<kCount> out;
  for (int i = 0; i < kCount; ++i) {
    // Whatever came out of a value that is too low for the reduction.
    const simd::f64x8 exponential = power_of_two(shifted.at[i]) * mantissa.at[i];
    out.at[i] = x.at[i] >= kExpUnderflow ? exponential : simd::f64x8{};
  }
  return out;
}

}  // namespace assay::measure
